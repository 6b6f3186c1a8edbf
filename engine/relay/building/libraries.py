"""The Relay engine's builds, as libraries to take apart, and their launches on a GPU.

TVM compiles CUDA source while it builds. Here it gets no machine code, so that the source can be
read without a compiler; such a build does not run and is not kept.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import tvm
from tvm import tir

from relascope.engine.building.disassemble import Library, library_of
from relascope.engine.building.launches import Launches
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.cpu_kernels.openblas import NOTE, OPENBLAS
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.targets import BLAS, CUBLAS, parse

_CALLBACK = "tvm_callback_cuda_compile"


_NOTES = {
    OPENBLAS: NOTE,
    BLAS: "The library calls tvm.contrib.mkl.matmul and batch_matmul, which relascope implements "
    "in Python with PyTorch. Elsewhere it needs a TVM built with MKL, and must have no transposed "
    "convolution and none whose weight is an argument: PyTorch computes those, too.",
    CUBLAS: "The library calls tvm.contrib.cublas.matmul and batch_matmul, which relascope "
    "implements in Python with PyTorch. Elsewhere it needs a TVM built with cuBLAS.",
}


def library(function: Function, phase: str, target: str) -> Library:
    """See `engine.server.backend.Backend`."""
    watch, asked = launches(), (function.program, BuildOptions(target), function.name)
    on_gpu = "gpu" in parse(target).keys
    watching = [watch.instrument(tvm.instrument.pass_instrument)] if on_gpu else []
    with _source_alone() if str(parse(target).kind) == "cuda" else nullcontext():
        built = runtime.library(*asked, watching)
    return library_of(built, built.lib, phase, target, _NOTES, watch.launches)


@contextmanager
def _source_alone() -> Iterator[None]:
    """Leave CUDA source uncompiled while TVM builds."""
    theirs = tvm.get_global_func(_CALLBACK, allow_missing=True)
    tvm.register_func(_CALLBACK, lambda source, target: bytearray(b"\0"), override=True)
    try:
        yield
    finally:
        tvm._ffi.registry.remove_global_func(_CALLBACK)
        if theirs is not None:
            tvm.register_func(_CALLBACK, theirs, override=True)


def launches() -> Launches:
    return Launches(_extents, _shared)


def _extents(function: Any) -> dict[str, int]:
    found: dict[str, int] = {}

    def see(node: Any) -> None:
        if isinstance(node, tir.AttrStmt) and node.attr_key == "thread_extent":
            found[str(node.node.thread_tag)] = int(node.value)

    if isinstance(function, tir.PrimFunc):
        tir.stmt_functor.post_order_visit(function.body, see)
    return found


def _shared(function: Any) -> Iterator[int]:
    allocated: list[Any] = []

    def see(node: Any) -> None:
        if isinstance(node, tir.Allocate):
            allocated.append(node)

    tir.stmt_functor.post_order_visit(function.body, see)
    for node in allocated:
        if not str(node.buffer_var.type_annotation.storage_scope).startswith("shared"):
            continue
        kind = tvm.DataType(node.dtype)
        yield math.prod(int(d) for d in node.extents) * kind.bits * kind.lanes // 8
