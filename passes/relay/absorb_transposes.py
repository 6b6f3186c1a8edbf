"""Matmuls that read a transposed matrix as it lies."""

from typing import Any

from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import axes_of, op_name, rewrite

_TURNED = {"nn.dense": [1, 0], "nn.batch_matmul": [0, 2, 1]}  # the axes of a transposed operand


def absorb_transposes(program: RelayProgram) -> RelayProgram:
    """Write a product of a transposed matrix as nn.matmul or nn.batch_matmul with a flag.

    Linear layers' gradients are such. A BLAS reads a transposed operand in place; TVM's own CPU
    schedules have no nn.matmul, so this serves targets with a BLAS.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        axes = _TURNED.get(op_name(call))
        if axes is None:
            return None
        (left, turned_left), (right, turned_right) = (_behind(a, axes) for a in args)
        if not (turned_left or turned_right):
            return None
        dtype, attrs = call.attrs.out_dtype or "", call.attrs
        if len(axes) == 2:
            return relay.nn.matmul(left, right, None, dtype, turned_left, not turned_right)
        turned_left ^= bool(attrs.transpose_a)
        return relay.nn.batch_matmul(
            left, right, dtype, turned_left, bool(attrs.transpose_b) != turned_right
        )

    return rewrite(program, visit)


def _behind(operand: Any, axes: list[int]) -> tuple[Any, bool]:
    """What is transposed there with these axes, and whether anything is."""
    if op_name(operand) != "transpose" or axes_of(operand, len(axes)) != axes:
        return operand, False
    return operand.args[0], True
