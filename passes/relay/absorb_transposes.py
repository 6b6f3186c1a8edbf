"""Matmuls that read a transposed matrix in place."""

from collections import Counter
from typing import Any

from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import axes_of, children, op_name, post_order, rewrite

_TURNED = {"nn.dense": [1, 0], "nn.batch_matmul": [0, 2, 1]}  # the axes of a transposed operand


def absorb_transposes(program: RelayProgram) -> RelayProgram:
    """Write a product of a transposed matrix as nn.matmul or nn.batch_matmul with a flag. A
    transposed product that nothing else reads, such as a linear layer's gradient, becomes the
    product of the transposed operands in reverse order. For targets with a BLAS, which reads
    transposed operands in place: TVM's own CPU schedules have no nn.matmul."""
    readers = Counter(c.handle.value for e in post_order(program.main.body) for c in children(e))

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) == "transpose" and readers[call.args[0].handle.value] == 1:
            turns = axes_of(call, len(call.checked_type.shape)) == [1, 0]
            return _turned(args[0]) if turns else None
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


def _turned(product: Any) -> Any:
    """A product of two matrices, transposed; None for other expressions."""
    if op_name(product) not in ("nn.dense", "nn.matmul"):
        return None
    (left, right), attrs, plain = product.args, product.attrs, op_name(product) == "nn.matmul"
    turn_left, turn_right = plain and attrs.transpose_a, not plain or attrs.transpose_b
    return relay.nn.matmul(right, left, None, attrs.out_dtype or "", not turn_right, not turn_left)


def _behind(operand: Any, axes: list[int]) -> tuple[Any, bool]:
    """The operand of a transpose with these axes, and True; else the expression itself, and
    False."""
    if op_name(operand) != "transpose" or axes_of(operand, len(axes)) != axes:
        return operand, False
    return operand.args[0], True
