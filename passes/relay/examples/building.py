"""What the examples of Relay passes are built with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from relascope.passes.catalogue.example import draw, stepped
from relascope.passes.relay.ir.program import RelayProgram


@dataclass(frozen=True)
class Tensors:
    """Makes the tensors of an example, of a dtype."""

    dtype: str

    def var(self, name: str, *shape: int, dtype: str = "") -> Any:
        """An argument; of another dtype where one is named."""
        return relay.var(name, shape=shape, dtype=dtype or self.dtype)

    def constant(self, name: str, *shape: int) -> Any:
        """A constant, such as a weight that was bound."""
        return relay.const(draw(name, *shape, dtype=self.dtype), self.dtype)


def after(pipeline: str, program: RelayProgram) -> RelayProgram:
    """A program after the passes that it needs to have behind it."""
    return stepped("relay", pipeline, program)


def program(arguments: Sequence[Any], body: Any, weights: Sequence[str] = ()) -> RelayProgram:
    """A typed program of one function, "main".

    Args:
        arguments: of "main", in order.
        body: what "main" computes.
        weights: names of the arguments that are parameters; their values are drawn.
    """
    return of_module(tvm.IRModule({"main": relay.Function(list(arguments), body)}), weights)


def of_module(mod: Any, weights: Sequence[str] = ()) -> RelayProgram:
    """A typed program of a module with a function "main"."""
    mod = relay.transform.InferType()(mod)
    kinds = {p.name_hint: p.checked_type for p in mod["main"].params}
    values = {n: draw(n, *map(int, kinds[n].shape), dtype=kinds[n].dtype) for n in weights}
    result = mod["main"].ret_type
    return RelayProgram(
        mod=mod,
        params={n: tvm.nd.array(v) for n, v in values.items()},
        inputs=tuple(n for n in kinds if n not in weights),
        outputs=len(result.fields) if isinstance(result, tvm.ir.TupleType) else 1,
    )
