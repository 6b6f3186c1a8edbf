"""Matmuls that read a transposed matrix as it lies."""

from __future__ import annotations

from typing import Any

from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite


def absorb_transposes(program: RelayProgram) -> RelayProgram:
    """Write a product of a transposed matrix as nn.matmul or nn.batch_matmul with a flag.

    The gradient of a linear layer is made of such products. A BLAS reads a transposed operand in
    place; TVM's own CPU schedules know no nn.matmul, so this serves targets with a BLAS.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        name = op_name(call)
        if name == "nn.dense":
            return _matmul(call, args)
        if name == "nn.batch_matmul":
            return _batch_matmul(call, args)
        return None

    return rewrite(program, visit)


def _matmul(call: Any, args: list[Any]) -> Any:
    left, turn_left = _behind(args[0], [1, 0])
    right, turned_right = _behind(args[1], [1, 0])
    if not (turn_left or turned_right):
        return None
    return relay.nn.matmul(
        left, right, None, call.attrs.out_dtype or "", turn_left, not turned_right
    )


def _batch_matmul(call: Any, args: list[Any]) -> Any:
    left, turned_left = _behind(args[0], [0, 2, 1])
    right, turned_right = _behind(args[1], [0, 2, 1])
    if not (turned_left or turned_right):
        return None
    return relay.nn.batch_matmul(
        left,
        right,
        call.attrs.out_dtype or "",
        bool(call.attrs.transpose_a) != turned_left,
        bool(call.attrs.transpose_b) != turned_right,
    )


def _behind(operand: Any, axes: list[int]) -> tuple[Any, bool]:
    """What is transposed there with these axes, and whether anything is."""
    if op_name(operand) != "transpose":
        return operand, False
    own = [int(a) % len(axes) for a in operand.attrs.axes or range(len(axes) - 1, -1, -1)]
    return (operand.args[0], True) if own == axes else (operand, False)
