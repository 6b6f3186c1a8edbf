"""The Relax engine's builds, as libraries to take apart, and their launches on a GPU.

Without a GPU, TVM returns CUDA source; otherwise `engine.building.cuda_compiler` compiles it.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from relascope.engine.building.cuda_compiler import compile_cuda
from relascope.engine.building.disassemble import Library, library_of
from relascope.engine.building.launches import Launches
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.cpu_kernels.openblas import NOTE, OPENBLAS
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.targets import BLAS, parse
from relascope.engine.relax.kernels.gpu_schedules import RULE, extents

_NOTES = {
    OPENBLAS: NOTE,
    BLAS: "The library calls functions that relascope implements in Python with PyTorch, such as "
    "relascope.matmul_nt, so it needs relascope to run.",
}


def library(function: Function, phase: str, target: str) -> Library:
    """See `engine.server.backend.Backend`."""
    watch, asked = launches(), (function.program, BuildOptions(target), function.name)
    on_gpu = "gpu" in parse(target).keys
    watching = [watch.instrument(tvm.instrument.pass_instrument)] if on_gpu else []
    executable = runtime.executable(*asked, watching)
    return library_of(executable, executable.mod, phase, target, _NOTES, watch.launches)


@partial(tvm_ffi.register_global_func, "tvm_callback_cuda_compile", override=True)
def _compiled(source: str) -> bytes:
    """TVM calls this to compile CUDA source for this machine's GPU."""
    return compile_cuda(source, str(tvm.target.Target.current().attrs["arch"]), "cubin")


def launches() -> Launches:
    return Launches(extents, _shared, _rule)


def _shared(function: Any) -> Iterator[int]:
    buffers: list[Any] = []

    def see(node: Any) -> None:
        if str(node.buffer.scope()).startswith("shared"):
            buffers.append(node.buffer)

    tvm_ffi.structural_walk(function.body, [(tirx.AllocBuffer, see)], order="post")
    for buffer in buffers:
        kind = tvm.DataType(str(buffer.dtype))
        yield math.prod(int(d) for d in buffer.shape) * kind.bits * kind.lanes // 8


def _rule(function: Any) -> str:
    rule = function.attrs.get(RULE)
    return "" if rule is None else f"DLight's {rule}"
