"""Products in the forms that TVM's passes and schedules support: nn.dense, batch_matmul by rows."""

from typing import Any

import numpy as np
from tvm import relay

from relascope.core.operators import BROADCASTS, RESHAPES
from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite, shape, turned


@listed("batch_matmul to NT form", "ours")
def batch_matmul_nt(program: RelayProgram) -> RelayProgram:
    """Writes batch_matmul(a, b) as batch_matmul(a, transpose(b), transpose_b=True), the form that
    CombineParallelBatchMatmul takes.

    If an operand is a transpose of its last two axes, the transpose is removed. If not, one is
    added, which FoldConstant computes if the operand is a weight.

    After: Every batch_matmul has transpose_a=False and transpose_b=True.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        turn_a, turn_b = bool(call.attrs.transpose_a), bool(call.attrs.transpose_b)
        if not turn_a and turn_b:
            return None
        a, b = args
        a = turned(a, [0, 2, 1]) if turn_a else a
        b = b if turn_b else turned(b, [0, 2, 1])
        return relay.nn.batch_matmul(a, b, call.attrs.out_dtype, False, True)

    return rewrite(program, {"nn.batch_matmul": visit})


@listed("linear layers to nn.dense", "ours")
def linear_to_dense(program: RelayProgram) -> RelayProgram:
    """Writes a matmul whose right operand is one matrix for the whole batch as nn.dense, which has
    good CPU schedules.

    The frontend makes `batch_matmul(x, broadcast(transpose(weight)))` of a linear layer on a batch
    of sequences: the weight is copied once per sequence, and the CPU's batch_matmul schedules are
    slow. `(batch, rows, k) x (k, n)` is the same product as `dense((batch * rows, k), (n, k))`.
    A bias that follows moves before the final reshape, where FuseOps joins it to the product.

    After: Products with one matrix for the whole batch are nn.dense, with their bias before the
        reshape.
    """
    return rewrite(program, {"nn.batch_matmul": _dense, "nn.bias_add": _bias_first})


def _dense(call: Any, args: list[Any]) -> Any:
    if bool(call.attrs.transpose_a):
        return None
    weight = _shared_matrix(call.args[1], args[1], bool(call.attrs.transpose_b))
    if weight is None:
        return None
    batch, rows, k = shape(call.args[0])
    out = shape(call)
    if out[0] != batch:  # the left operand is broadcast
        return None
    flat = relay.reshape(args[0], [batch * rows, k])
    product = relay.nn.dense(flat, weight, units=out[2], out_dtype=call.attrs.out_dtype)
    return relay.reshape(product, list(out))


def _shared_matrix(before: Any, operand: Any, transposed: bool) -> Any:
    """The (n, k) weight behind a right operand that repeats one matrix, or None. `before` is the
    original operand, typed, (batch, k, n), or (batch, n, k) if transposed; `operand` is the
    rewritten one."""
    batch = shape(before)[0]
    if isinstance(operand, relay.Constant):
        values = operand.data.numpy()
        if batch > 1 and not (values == values[:1]).all():
            return None
        matrix = values[0] if transposed else values[0].T
        return relay.const(np.ascontiguousarray(matrix), values.dtype)
    # Below reshapes and broadcasts that only repeat it, the matrix has the same last two axes, and
    # only ones before them.
    rows, columns = shape(before)[1:]
    inner, seen = before, operand
    while op_name(inner) in RESHAPES | BROADCASTS and op_name(seen) == op_name(inner):
        if shape(inner.args[0])[-2:] != (rows, columns):
            return None
        inner, seen = inner.args[0], seen.args[0]
    if int(np.prod(shape(inner))) != rows * columns:
        return None
    matrix = seen if len(shape(inner)) == 2 else relay.reshape(seen, [rows, columns])
    return matrix if transposed else turned(matrix, [1, 0])


def _bias_first(call: Any, args: list[Any]) -> Any:
    """bias_add(reshape(dense)) as reshape(bias_add(dense)), if the last axis stays."""
    if int(call.attrs.axis) not in (-1, len(shape(call)) - 1):
        return None
    inner = args[0]
    while op_name(inner) in RESHAPES:
        inner = inner.args[0]
    if op_name(inner) != "nn.dense" or inner.same_as(args[0]):
        return None
    if shape(call)[-1] != int(inner.attrs.units):
        return None
    return relay.reshape(relay.nn.bias_add(inner, args[1], axis=-1), list(shape(call)))
