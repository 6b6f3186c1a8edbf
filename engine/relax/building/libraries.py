"""What the Relax engine builds, as libraries to take apart, and the compiler for CUDA's source.

For CUDA, TVM hands out source: it is compiled when it is loaded beside a GPU, by nvrtc where the
Python package `cuda-bindings` is, else by nvcc.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import Any

from relascope.engine.building.disassemble import Library, library_of
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.cpu_kernels.openblas import NOTE, OPENBLAS
from relascope.engine.relax.building import runtime
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
    executable = runtime.executable(function.program, BuildOptions(target), function.name)
    return library_of(executable, executable.mod, phase, target, _NOTES)


def compiler_for(target: str) -> Any:
    """A function that compiles CUDA source; see `engine.building.disassemble.Compile`."""

    def compile_cuda(source: str, form: str) -> bytes:
        from tvm.support import nvcc

        choose_compiler()
        compiler = os.environ.get("TVM_CUDA_COMPILE_MODE", "nvrtc")
        if compiler == "nvcc" and shutil.which("nvcc") is None:
            raise RuntimeError(
                "Neither nvcc nor nvrtc is here: install CUDA's toolkit, or the Python packages "
                "cuda-bindings and nvidia-cuda-nvrtc"
            )
        with parse(target):  # from which it takes the architecture
            return bytes(nvcc.compile_cuda(source, form, compiler=compiler))

    return compile_cuda


def choose_compiler() -> None:
    """Let nvcc compile CUDA's source where nvrtc cannot be had, unless the user says which."""
    if "TVM_CUDA_COMPILE_MODE" not in os.environ and not _nvrtc():
        os.environ["TVM_CUDA_COMPILE_MODE"] = "nvcc"


def _nvrtc() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:  # not even its parent is there
        return False


choose_compiler()
