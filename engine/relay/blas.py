"""Matrix products by PyTorch's BLAS inside functions that TVM builds.

For a target with `engine.relay.targets.BLAS`, TVM's schedules for the CPU leave matmuls to packed
functions called `tvm.contrib.mkl.*`. The TVM here was built without MKL, so those names are free:
they are given to functions that call PyTorch, which has the very BLAS that eager mode runs on.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import torch
import tvm


@functools.cache
def register() -> None:
    """Give TVM the matmuls."""
    tvm.register_func("tvm.contrib.mkl.matmul", _matmul, override=True)
    tvm.register_func("tvm.contrib.mkl.batch_matmul", _batch_matmul, override=True)
    # TVM's check of operand shapes reads the left one's where it means the right one's, and so
    # refuses a right operand that is not transposed. Shapes were checked by type inference before.
    theirs = sys.modules["tvm.topi.x86.batch_matmul"]
    theirs.batch_matmul_blas_common = _batch_matmul_compute  # type: ignore[attr-defined]


def _batch_matmul_compute(
    cfg: Any, a: Any, b: Any, out_shape: Any, trans_a: bool, trans_b: bool, library: Any
) -> Any:
    batch, rows, inner = a.shape
    columns = b.shape[1] if trans_b else b.shape[2]
    if trans_a:
        rows, inner = inner, rows
    cfg.add_flop(batch * rows * inner * columns * 2)
    return library.batch_matmul(a, b, trans_a, trans_b)


def _matmul(a: Any, b: Any, c: Any, turn_a: int, turn_b: int) -> None:
    left, right = _tensor(a), _tensor(b)
    torch.mm(left.t() if turn_a else left, right.t() if turn_b else right, out=_tensor(c))


def _batch_matmul(a: Any, b: Any, c: Any, turn_a: int, turn_b: int) -> None:
    left, right, result = _tensor(a), _tensor(b), _tensor(c)
    left = left.transpose(1, 2) if turn_a else left
    right = right.transpose(1, 2) if turn_b else right
    if left.shape[0] != right.shape[0]:
        left = left.expand(result.shape[0], -1, -1)
        right = right.expand(result.shape[0], -1, -1)
    torch.bmm(left, right, out=result)


def _tensor(array: Any) -> torch.Tensor:
    """A TVM array, which need not own its memory, as a torch tensor on the same memory."""
    content = array.handle.contents
    shape = tuple(content.shape[i] for i in range(content.ndim))
    kind = content.dtype
    return _at(content.data + content.byte_offset, shape, kind.bits)


@functools.lru_cache(4096)
def _at(address: int, shape: tuple[int, ...], bits: int) -> torch.Tensor:
    """A tensor on given memory. It owns nothing, so keeping it keeps nothing alive."""
    dtype = torch.float32 if bits == 32 else torch.float64
    size = bits // 8
    for dimension in shape:
        size *= dimension
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
