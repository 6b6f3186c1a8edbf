"""Products of small matrices, in the form that `cpu_kernels.schedules` lays out in registers.

Each attention head of a model that is given few tokens has one. Calling a library costs more than
they do, and as plain loops they make no vectors.
"""

from typing import Any

import tvm
from tvm import te, tir

from relascope.engine.cpu_kernels import packed_matmul
from relascope.engine.cpu_kernels.schedules import SMALL

_VECTOR_BITS = 32 * packed_matmul.LANES
_TILES = {1: (8, 7, 6, 5, 4, 3, 2), 2: (5, 4, 3, 2), 3: (3, 2)}
"""How many rows go with so many vectors in a tile of sums that stay in registers."""


def small_products(left: Any, right: Any, turn_left: bool, turn_right: bool) -> Any:
    """The products of matrices, pair by pair.

    Args:
        left, right: tensors of shape (batch, rows, inner) and (batch, inner, columns), the last
            two axes in the other order where it is turned; a batch of 1 goes with all of the
            other's.

    Returns:
        A tensor of shape (batch, rows, columns).
    """
    batch = max(int(left.shape[0]), int(right.shape[0]))
    inner, rows = (int(left.shape[axis]) for axis in ((1, 2) if turn_left else (2, 1)))
    columns = int(right.shape[1 if turn_right else 2])
    lanes = _VECTOR_BITS // tvm.DataType(left.dtype).bits
    vectors = -(-columns // lanes)
    wide = next(w for w in (3, 2, 1) if vectors % w == 0)
    high = next((h for h in _TILES[wide] if rows % h == 0), 1)

    def one(b: Any, i: Any, k: Any) -> Any:
        b = 0 if int(left.shape[0]) == 1 else b
        return left[b, k, i] if turn_left else left[b, i, k]

    def other(b: Any, k: Any, j: Any) -> Any:
        b = 0 if int(right.shape[0]) == 1 else b
        return right[b, j, k] if turn_right else right[b, k, j]

    if turn_right or columns % lanes:
        filled = te.compute(
            (batch, inner, vectors * lanes),
            lambda b, k, j: tir.if_then_else(j < columns, other(b, k, j), tir.const(0, left.dtype)),
            name=packed_matmul.ROWS,
        )
        other = filled
    k = te.reduce_axis((0, inner), name="k")
    summed = te.compute(
        (batch, rows, vectors * lanes),
        lambda b, i, j: te.sum(one(b, i, k) * other(b, k, j), axis=k),
        name=SMALL,
        attrs=packed_matmul.MatmulTile(high, wide * lanes, lanes).notes,
    )
    if not columns % lanes:
        return summed
    return te.compute((batch, rows, columns), lambda b, i, j: summed[b, i, j], name="product")
