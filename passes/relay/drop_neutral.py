"""Removes operators without effect: with neutral operands, idle views, transposes that cancel."""

from typing import Any

from tvm import relay

from relascope.core.operators import KEEPS_NUMBERS, ONES, RESHAPES, TRANSPOSES, ZEROS
from relascope.passes.catalogue.entry import listed
from relascope.passes.constants import number_of
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import axes_of, op_name, post_order, rewrite, shape

_FITTED = {"broadcast_to", "collapse_sum_to"}


@listed("views that change nothing", "ours")
def drop_identities(program: RelayProgram) -> RelayProgram:
    """Removes reshapes, squeezes, broadcasts and transposes that change nothing, and merges two
    reshapes into one.

    A reshape of a reshape (or squeeze) becomes one reshape of the first operand.

    After: Every view changes something, and none reads another reshape.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        name, result = op_name(call), shape(call)
        if name in TRANSPOSES:
            axes = [int(a) for a in call.attrs.axes or ()]
            return args[0] if axes == list(range(len(result))) else None
        if shape(call.args[0]) == result:
            return args[0]
        if name in _FITTED:
            return None
        inner = args[0]
        while op_name(inner) in RESHAPES:
            inner = inner.args[0]
        return None if inner.same_as(args[0]) else relay.reshape(inner, list(result))

    return rewrite(program, dict.fromkeys(RESHAPES | TRANSPOSES | _FITTED, visit))


@listed("x + 0", "the tutorial's ZeroZapp")
def drop_zeros(program: RelayProgram) -> RelayProgram:
    """Removes the zeros that each gradient sum starts from.

    After: No sum has an operand of zeros, except one that broadcasts the other operand.
    """
    return _without(program, 0.0, "add", "subtract")


@listed("x * 1", "the tutorial's OneZapp")
def drop_ones(program: RelayProgram) -> RelayProgram:
    """Removes products with the ones that the chain rule starts from.

    After: No product has a factor of ones, except one that broadcasts the other factor.
    """
    return _without(program, 1.0, "multiply", "divide")


def _without(program: RelayProgram, number: float, either: str, right: str) -> RelayProgram:
    """Remove a number on either side of one operator, and on the right of another."""
    values = _uniform_values(program.main.body)

    def visit(call: Any, args: list[Any]) -> Any:
        for kept in (0, 1) if op_name(call) == either else (0,):
            neutral = values.get(call.args[1 - kept].handle.value) == number
            if neutral and call.args[kept].checked_type == call.checked_type:
                return args[kept]
        return None

    return rewrite(program, dict.fromkeys((either, right), visit))


def _uniform_values(body: Any) -> dict[int, float]:
    """By handle, the number that all elements of an expression equal, if known."""
    values: dict[int, float] = {}
    for expr in post_order(body):
        name, handle = op_name(expr), expr.handle.value
        if isinstance(expr, relay.Constant):
            if (number := number_of(expr.data.numpy())) is not None:
                values[handle] = number
        elif name in ZEROS:
            values[handle] = 0.0
        elif name in ONES:
            values[handle] = 1.0
        elif name in KEEPS_NUMBERS or name in ("full", "full_like"):
            source = expr.args[1 if name == "full_like" else 0].handle.value
            if source in values:
                values[handle] = values[source]
    return values


@listed("transpose of transpose", "the tutorial's TransposeDedup")
def transpose_dedup(program: RelayProgram) -> RelayProgram:
    """Merges two transposes into one, and removes both if they undo each other.

    After: No transpose reads a transpose.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        rank = len(shape(call))
        axes, operand = axes_of(call, rank), args[0]
        if op_name(operand) == "transpose":  # rewritten already, so never a third below
            inner = axes_of(operand, rank)
            axes, operand = [inner[a] for a in axes], operand.args[0]
        elif axes != list(range(rank)):
            return None
        return operand if axes == list(range(rank)) else relay.transpose(operand, axes)

    return rewrite(program, {"transpose": visit})
