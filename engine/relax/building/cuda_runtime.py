"""The library of Relax's TVM that drives NVIDIA's GPUs.

TVM's import does not report its failure: without a driver, or where the loader does not find CUDA's
runtime, as that of PyTorch in a Python package.
"""

import functools
from pathlib import Path

import tvm

from relascope.engine.building.cuda_libraries import load


@functools.cache
def missing() -> str:
    """Load it where TVM could not; why it cannot be loaded, in a sentence, or ""."""
    if tvm.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return ""
    runtime = Path(tvm.base._LOADED_LIBS["tvm_runtime"]._name).resolve()
    said = load(str(runtime.with_name("libtvm_runtime_cuda.so")))
    if not said:
        return ""
    if said.startswith("libcuda.so"):
        return "There is no NVIDIA driver on this machine."
    advice = " Run `pip install nvidia-cuda-runtime`." if said.startswith("libcudart.so") else ""
    return f"TVM's part that drives NVIDIA's GPUs does not load: {said}.{advice}"


missing()
