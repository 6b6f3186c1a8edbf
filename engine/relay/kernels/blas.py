"""Matrix products by PyTorch's BLAS inside functions that TVM builds.

With `engine.relay.building.targets.BLAS`, TVM's CPU schedules call packed functions named
`tvm.contrib.mkl.*`. This TVM has no MKL, so functions over PyTorch take these names; likewise
`tvm.contrib.cublas.*` on NVIDIA's GPUs.
"""

import ctypes
import functools
import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import tvm
from tvm import te
from tvm.contrib import cublas, mkl
from tvm.relay.op import strategy

from relascope.engine.cpu_kernels import openblas, packed_matmul
from relascope.engine.relay.kernels import schedules

_GPU = ["cuda", "gpu"]
"""The target keys that TVM registers GPU strategies for."""

FLOATS = {"float32": torch.float32, "float64": torch.float64}


@functools.cache
def register() -> None:
    for name, library in (("mkl", mkl), ("cublas", cublas)):
        tvm.register_func(f"tvm.contrib.{name}.matmul", _matmul, override=True)
        tvm.register_func(f"tvm.contrib.{name}.batch_matmul", _batch_matmul, override=True)
        library.matmul = functools.partial(_matmul_stage, name)
        library.batch_matmul = functools.partial(_batch_matmul_stage, name)
    # TVM's check of operand shapes reads the left one's where it means the right one's, and so
    # refuses a right operand that is not transposed. Shapes were checked by type inference before.
    theirs = sys.modules["tvm.topi.x86.batch_matmul"]
    theirs.batch_matmul_blas_common = _batch_matmul_compute  # type: ignore[attr-defined]
    for name in ("matmul", "dense", "batch_matmul"):
        for module, kind, keys in ((strategy.x86, "cpu", "cpu"), (strategy.cuda, "cuda", _GPU)):
            chosen = functools.partial(_of_floats, getattr(module, f"{name}_strategy_{kind}"))
            getattr(strategy.generic, f"{name}_strategy").register(keys, chosen, True)


def _of_floats(
    theirs: Callable[..., Any], attrs: Any, inputs: Any, out_type: Any, target: Any
) -> Any:
    """TVM's schedules, with the library only for products that it has: TVM would hand it any type
    (float16, integers) in a batch_matmul, and quantized ones in the others."""
    kinds = {str(t.dtype) for t in (*inputs, out_type)}
    if target.libs and not (len(kinds) == 1 and kinds <= FLOATS.keys()):
        target = tvm.target.Target({k: v for k, v in target.export().items() if k != "libs"})
    return theirs(attrs, inputs, out_type, target)


def _matmul_stage(
    library: str, left: Any, right: Any, transa: bool = False, transb: bool = False, **_: Any
) -> Any:
    rows = left.shape[1 if transa else 0]
    columns = right.shape[0 if transb else 1]
    if library == "mkl" and schedules.active():
        made = _packed(left, right, transa, transb)
        if made is not None:
            return made
    return _stage(f"tvm.contrib.{library}.matmul", (rows, columns), left, right, transa, transb)


def _batch_matmul_stage(
    library: str, left: Any, right: Any, transa: bool = False, transb: bool = False, **_: Any
) -> Any:
    batch = max(int(left.shape[0]), int(right.shape[0]))
    shape = batch, left.shape[2 if transa else 1], right.shape[1 if transb else 2]
    return _stage(f"tvm.contrib.{library}.batch_matmul", shape, left, right, transa, transb)


def _packed(left: Any, right: Any, turn_a: bool, turn_b: bool) -> Any | None:
    """A product by our own kernel; None if the library is faster."""
    if turn_a:
        tile = None if turn_b else schedules.outer_tile_for(left, right)
        return None if tile is None else packed_matmul.outer_products(te, left, right, tile)
    tile = schedules.tile_for(left, right, turn_b)
    make = packed_matmul.dots if turn_b else packed_matmul.product
    return None if tile is None else make(te, tvm.tir, left, right, tile, [int(left.shape[0])])


def _stage(
    name: str, shape: tuple[Any, ...], left: Any, right: Any, turn_a: bool, turn_b: bool
) -> Any:
    """A call of a packed function, or of OpenBLAS, that writes a tensor.

    TVM's own way gives buffers an unknown offset, which kernels lowered to TensorIR never learn;
    here all begin where they are allocated.
    """

    if _by_openblas(left, right):
        one, other = (tuple(int(d) for d in t.shape) for t in (left, right))
        product = openblas.Product(one, other, turn_a, turn_b, str(left.dtype))
        return product.kernel(te, tvm.tir, left, right)

    def call(ins: Any, outs: Any) -> Any:
        return tvm.tir.call_packed(name, ins[0], ins[1], outs[0], turn_a, turn_b)

    shapes = left.shape, right.shape, shape
    *given, made = (tvm.tir.decl_buffer(s, left.dtype) for s in shapes)
    about = {"name": "C", "in_buffers": given, "out_buffers": [made]}
    return te.extern(shape, [left, right], call, **about)


def _by_openblas(left: Any, right: Any) -> bool:
    extents = (*left.shape, *right.shape)
    known = all(isinstance(d, tvm.tir.IntImm) and int(d) for d in extents)
    libraries = tvm.target.Target.current().libs
    return known and "openblas" in libraries and str(left.dtype) in openblas.FUNCTIONS


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
    left, right = tensor(a), tensor(b)
    torch.mm(left.t() if turn_a else left, right.t() if turn_b else right, out=tensor(c))


def _batch_matmul(a: Any, b: Any, c: Any, turn_a: int, turn_b: int) -> None:
    left, right, result = tensor(a), tensor(b), tensor(c)
    left = left.transpose(1, 2) if turn_a else left
    right = right.transpose(1, 2) if turn_b else right
    if left.shape[0] != right.shape[0]:
        left = left.expand(result.shape[0], -1, -1)
        right = right.expand(result.shape[0], -1, -1)
    torch.bmm(left, right, out=result)


_CPU = tvm.cpu(0).device_type


def tensor(array: Any) -> torch.Tensor:
    content = array.handle.contents
    shape = tuple(content.shape[: content.ndim])
    kind = content.dtype
    at = content.data + content.byte_offset
    if content.device.device_type != _CPU:
        return _on(content.device.device_id, at, shape, kind.bits)
    return _at(at, shape, kind.bits)


@functools.lru_cache(4096)
def _on(gpu: int, address: int, shape: tuple[int, ...], bits: int) -> torch.Tensor:
    """A tensor on memory of a GPU, which it does not own, by NVIDIA's and Numba's interface."""
    about = {"shape": shape, "typestr": f"<f{bits // 8}", "data": (address, False), "version": 3}
    memory = SimpleNamespace(__cuda_array_interface__=about)
    return torch.as_tensor(memory, device=torch.device("cuda", gpu))


@functools.lru_cache(4096)
def _at(address: int, shape: tuple[int, ...], bits: int) -> torch.Tensor:
    size = math.prod(shape) * bits // 8
    return memory(address, size).view(FLOATS[f"float{bits}"]).view(shape)


def memory(address: int, nbytes: int) -> torch.Tensor:
    """Memory of the process, as bytes."""
    return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)
