"""Transposes of transposes."""

from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import axes_of, op_name, rewrite, shape


@listed("transpose of transpose", "the tutorial's TransposeDedup")
def transpose_dedup(program: RelayProgram) -> RelayProgram:
    """Makes one transpose of two, and none where they undo each other.

    After: No transpose reads a transpose.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) != "transpose":
            return None
        rank = len(shape(call))
        axes, operand = axes_of(call, rank), args[0]
        if op_name(operand) == "transpose":  # rewritten already, so never a third below
            inner = axes_of(operand, rank)
            axes, operand = [inner[a] for a in axes], operand.args[0]
        elif axes != list(range(rank)):
            return None
        return operand if axes == list(range(rank)) else relay.transpose(operand, axes)

    return rewrite(program, visit)
