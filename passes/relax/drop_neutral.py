"""Operands that change nothing: zeros in sums, ones in products."""

from typing import Any

import tvm
from tvm import relax

from relascope.core.operators import KEEPS_NUMBERS, ONES, ZEROS
from relascope.passes.catalogue.entry import listed
from relascope.passes.constants import number_of
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, dtype, op_name, rewrite, shape


@listed("x + 0", "the tutorial's ZeroZapp")
def drop_zeros(program: RelaxProgram) -> RelaxProgram:
    """Removes sums with zeros, which gradients start from.

    After: No sum has an operand of zeros, except one that broadcasts the other operand."""
    return _without(program, 0.0, "add", "subtract")


@listed("x * 1", "the tutorial's OneZapp")
def drop_ones(program: RelaxProgram) -> RelaxProgram:
    """Removes products with the ones that the chain rule starts from.

    After: No product has a factor of ones, except one that broadcasts the other factor."""
    return _without(program, 1.0, "multiply", "divide")


def _without(program: RelaxProgram, number: float, either: str, right: str) -> RelaxProgram:
    """Remove a number on either side of one operator, and on the right of another."""

    def rule(call: Any, maker: Maker) -> Any:
        for kept in (0, 1) if op_name(call) == either else (0,):
            same = shape(call.args[kept]) == shape(call) and dtype(call.args[kept]) == dtype(call)
            if same and _uniform(call.args[1 - kept], maker) == number:
                return call.args[kept]
        return None

    return rewrite(program, dict.fromkeys((either, right), rule))


def _uniform(expr: Any, maker: Maker) -> float | None:
    """The number that all elements of a variable or constant equal, or None."""
    while True:
        value = maker.look(expr)
        if isinstance(value, relax.TupleGetItem):  # as at the start of a split's gradient
            made = maker.look(value.tuple_value)
            if isinstance(made, relax.Tuple):
                expr = made.fields[int(value.index)]
                continue
        name = op_name(value)
        if name in ONES:
            return 1.0
        if name in ZEROS:
            return 0.0
        if name == "full":
            value, name = value.args[1], ""
        if name not in KEEPS_NUMBERS:
            constant = isinstance(value, tvm.ir.GenericConst)
            return number_of(value.value.numpy()) if constant else None
        expr = value.args[0]
