"""What the Relax engine builds, as libraries to take apart, and the compiler for CUDA's source.

For CUDA, TVM hands out source where there is no GPU; where there is one, it has it compiled by
`engine.building.cuda_compiler`.
"""

from functools import partial
from typing import Any

import tvm
import tvm_ffi

from relascope.engine.building.cuda_compiler import compile_cuda
from relascope.engine.building.disassemble import Library, library_of
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.cpu_kernels.openblas import NOTE, OPENBLAS
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.launches import launches
from relascope.engine.relax.building.targets import BLAS, parse

_NOTES = {
    OPENBLAS: NOTE,
    BLAS: "The library calls functions that relascope registers in Python over PyTorch's, such as "
    "relascope.matmul_nt; it runs beside relascope alone.",
}


def library(function: Function, phase: str, target: str) -> Library:
    """One function of a program, built for a target that need not be here.

    Raises:
        EngineError: kind "target"; TVM could not build it; gives TVM's reason.
    """
    watch, asked = launches(), (function.program, BuildOptions(target), function.name)
    on_gpu = "gpu" in parse(target).keys
    watching = [watch.instrument(tvm.instrument.pass_instrument)] if on_gpu else []
    executable = runtime.executable(*asked, watching)
    return library_of(executable, executable.mod, phase, target, _NOTES, watch.found)


def compiler_for(target: str) -> Any:
    """A function that compiles CUDA source; see `engine.building.disassemble.Compile`."""
    arch = str(parse(target).attrs.get("arch", ""))
    return lambda source, form: compile_cuda(source, arch, form)


@partial(tvm_ffi.register_global_func, "tvm_callback_cuda_compile", override=True)
def _compiled(source: str) -> bytes:
    """What TVM calls to have CUDA's source compiled for a GPU that is here."""
    return compile_cuda(source, str(tvm.target.Target.current().attrs["arch"]), "cubin")
