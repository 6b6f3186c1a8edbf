"""The library of Relax's TVM that drives NVIDIA GPUs.

Importing TVM hides that it fails to load: without a driver, or if the loader does not find CUDA's
runtime, such as PyTorch's, which is inside a Python package.
"""

import functools
from pathlib import Path

import tvm

from relascope.engine.building.cuda_libraries import load_library


@functools.cache
def missing() -> str:
    """Load it if TVM could not; returns a sentence that says why it cannot be loaded, or ""."""
    if tvm.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return ""
    runtime = Path(tvm.base._LOADED_LIBS["tvm_runtime"]._name).resolve()
    said = load_library(str(runtime.with_name("libtvm_runtime_cuda.so")))
    if not said:
        return ""
    if said.startswith("libcuda.so"):
        return "There is no NVIDIA driver on this machine."
    advice = " Run `pip install nvidia-cuda-runtime`." if said.startswith("libcudart.so") else ""
    return f"TVM's library for NVIDIA GPUs does not load: {said}.{advice}"


missing()
