"""Builds the examples of Relay passes."""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relay

from relascope.passes.catalogue.example import Parts
from relascope.passes.relay.ir.program import RelayProgram


class Tensors(Parts):
    """Makes the tensors of an example, and its program."""

    ir, const = "relay", staticmethod(relay.const)

    def variable(self, name: str, shape: Sequence[int], dtype: str) -> Any:
        return relay.var(name, shape=tuple(shape), dtype=dtype)

    def program(self, body: Any) -> RelayProgram:
        return self.of_module(tvm.IRModule({"main": relay.Function(self.arguments, body)}))

    def of_module(self, mod: Any) -> RelayProgram:
        mod = relay.transform.InferType()(mod)
        kinds = {p.name_hint: p.checked_type for p in mod["main"].params}
        return self.typed(RelayProgram, tvm.nd.array, mod, kinds, mod["main"].ret_type)
