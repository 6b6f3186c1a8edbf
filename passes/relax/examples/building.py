"""What the examples of Relax passes are built with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from relascope.passes.catalogue.example import draw, stepped
from relascope.passes.relax.ir.program import RelaxProgram


@dataclass(frozen=True)
class Tensors:
    """Makes the tensors of an example, of a dtype."""

    dtype: str

    def var(self, name: str, *shape: int, dtype: str = "") -> Any:
        """An argument; of another dtype where one is named."""
        return relax.Var(name, relax.TensorType(shape, dtype or self.dtype))

    def constant(self, name: str, *shape: int) -> Any:
        """A constant, such as a weight that was bound."""
        return relax.const(draw(name, *shape, dtype=self.dtype), self.dtype)


def after(pipeline: str, program: RelaxProgram) -> RelaxProgram:
    """A program after the passes that it needs to have behind it."""
    return stepped("relax", pipeline, program)


Emit = Callable[[str, Any], Any]
"""Binds a value to a name and returns the variable."""


def program(
    arguments: Sequence[Any], body: Callable[[Emit], Any], weights: Sequence[str] = ()
) -> RelaxProgram:
    """A program of one function, "main", which is one dataflow block.

    Args:
        arguments: of "main", in order.
        body: binds what "main" computes, name by name, and returns what it returns, which gets the
            name `result`.
        weights: names of the arguments that are parameters; their values are drawn.
    """
    builder = relax.BlockBuilder()
    with builder.function("main", list(arguments)):
        with builder.dataflow():
            value = body(lambda name, v: builder.emit(v, name_hint=name))
            result = builder.emit_output(value, name_hint="result")
        builder.emit_func_output(result)
    mod = relax.transform.Normalize()(builder.get())
    kinds = {str(p.name): p.ty for p in arguments}
    values = {
        n: draw(n, *map(int, kinds[n].shape.values), dtype=str(kinds[n].dtype)) for n in weights
    }
    kind = mod["main"].ret_ty
    return RelaxProgram(
        mod=mod,
        params={n: tvm.runtime.tensor(v) for n, v in values.items()},
        inputs=tuple(n for n in kinds if n not in weights),
        outputs=len(kind.fields) if isinstance(kind, relax.TupleType) else 1,
    )
