"""Builds the examples of Relax passes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from relascope.passes.catalogue.example import Parts
from relascope.passes.relax.ir.program import RelaxProgram


@dataclass(frozen=True)
class Tensors(Parts):
    """Makes the tensors of an example, and its program of one dataflow block. `bound` are the
    bindings of "main" before its result, in order."""

    ir, const = "relax", staticmethod(relax.const)
    bound: list[Any] = field(default_factory=list)

    def variable(self, name: str, shape: Sequence[int], dtype: str) -> Any:
        return relax.Var(name, relax.TensorType(shape, dtype))

    def bind(self, name: str, value: Any) -> Any:
        """Bind a value to a name; returns the variable."""
        value = relax.BlockBuilder().normalize(value)
        self.bound.append(relax.VarBinding(relax.DataflowVar(name, value.ty), value))
        return self.bound[-1].var

    def program(self, body: Any) -> RelaxProgram:
        builder = relax.BlockBuilder()
        with builder.function("main", self.arguments):
            with builder.dataflow():
                for binding in self.bound:
                    builder.emit_normalized(binding)
                result = builder.emit_output(body, name_hint="result")
            builder.emit_func_output(result)
        return self.of_module(builder.get())

    def of_module(self, mod: Any) -> RelaxProgram:
        mod = relax.transform.Normalize()(mod)
        kinds = {str(p.name): p.ty for p in mod["main"].params}
        return self.typed(RelaxProgram, tvm.runtime.tensor, mod, kinds, mod["main"].ret_ty)
