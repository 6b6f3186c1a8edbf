"""Transposes of transposes."""

from typing import Any

from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, op_name, rewrite


@listed("transpose of transpose", "the tutorial's TransposeDedup")
def transpose_dedup(program: RelaxProgram) -> RelaxProgram:
    """Makes one permute_dims of two, and none where they undo each other.

    After: No permute_dims reads a permute_dims, and none leaves the axes in order.
    """
    return rewrite(program, _joined)


def _joined(call: Any, maker: Maker) -> Any:
    if op_name(call) != "permute_dims":
        return None
    operand = call.args[0]
    order, inner = axes_of(call), maker.look(operand)
    if op_name(inner) == "permute_dims":  # rewritten already, so never a third below
        below = axes_of(inner)
        order, operand = [below[a] for a in order], inner.args[0]
    elif order != list(range(len(order))):
        return None
    return operand if order == list(range(len(order))) else relax.op.permute_dims(operand, order)


def axes_of(call: Any) -> list[int]:
    """The axes of a permute_dims, none below zero; without any it turns them all around."""
    rank, axes = int(call.args[0].ty.ndim), call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(a) % rank for a in axes]
