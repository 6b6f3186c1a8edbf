"""Transposes of transposes."""

from __future__ import annotations

from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite, shape


@listed("transpose of transpose", "the tutorial's TransposeDedup")
def transpose_dedup(program: RelayProgram) -> RelayProgram:
    """Makes one transpose of two, and none where they undo each other.

    After: No transpose reads a transpose.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) != "transpose":
            return None
        rank = len(shape(call))
        axes, operand = _axes(call, rank), args[0]
        if op_name(operand) == "transpose":  # rewritten already, so never a third below
            inner = _axes(operand, rank)
            axes, operand = [inner[a] for a in axes], operand.args[0]
        elif axes != list(range(rank)):
            return None
        return operand if axes == list(range(rank)) else relay.transpose(operand, axes)

    return rewrite(program, visit)


def _axes(call: Any, rank: int) -> list[int]:
    """The axes of a transpose, none below zero; without any it turns them all around."""
    axes = call.attrs.axes
    return [int(a) % rank for a in axes] if axes else list(range(rank))[::-1]
