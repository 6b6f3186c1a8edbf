"""GPU faults: from the messages of drivers, compilers and frameworks to one sentence."""

import re
from collections.abc import Callable

from relascope.core.errors import EngineError


def gpu_fault(error: object, where: str = "") -> EngineError | None:
    """A GPU's fault in a sentence, kind "target"; None if the error is something else."""
    text = str(error)
    for pattern, message, hint in _FAULTS:
        if match := re.search(pattern, text, re.IGNORECASE):
            said = message if isinstance(message, str) else message(match, text)
            return EngineError("target", said, where, hint)
    return None


_ASKED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
_FREE = re.compile(r"total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free")


def _full(match: re.Match[str], text: str) -> str:
    asked, free = _ASKED.search(text), _FREE.search(text)
    more = f": {asked[1]} more were asked for" if asked else ""
    if free:
        more += f"{',' if more else ':'} and {free[2]} of {free[1]} are free"
    return f"The GPU's memory is full{more}."


def _old_driver(match: re.Match[str], text: str) -> str:
    version = re.search(r"found version (\d+)", text)
    serves = ""
    if version:
        number = int(version[1])
        serves = f": it supports CUDA up to {number // 1000}.{number % 1000 // 10}"
    return f"The NVIDIA driver is too old for the CUDA in use{serves}."


def _architecture(match: re.Match[str], text: str) -> str:
    name = next((g for g in match.groups() if g), "")
    what = f" {name.replace('compute_', 'sm_')}" if name else " asked for"
    return f"The CUDA compiler here does not know the architecture{what}."


_FAULTS: tuple[tuple[str, str | Callable[[re.Match[str], str], str], str], ...] = (
    (
        r"CUDA:? out of memory|(CUDA_|cuda)Error_?(OutOf|Memory|OUT_OF_)\w*|"
        r"CUBLAS_STATUS_ALLOC_FAILED",
        _full,
        "Choose a smaller batch, fewer tokens, or a cut that saves less; or end other processes on "
        "the GPU (nvidia-smi lists them).",
    ),
    (
        r"driver on your system is too old|driver version is insufficient for CUDA runtime|"
        r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION|compiled with an unsupported toolchain|"
        r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|unsupported display driver / cuda driver combination|"
        r"forward compatibility was attempted on non supported HW",
        _old_driver,
        "Update the driver, or install a PyTorch built for a CUDA that it supports.",
    ),
    (
        r"no kernel image is available for execution|CUDA_ERROR_NO_BINARY_FOR_GPU",
        "The compiled program has no code for this GPU's architecture.",
        "Choose the target from the list of targets, with this GPU's own -arch=sm_…; if PyTorch's "
        "own kernels fail, install a PyTorch built for this GPU.",
    ),
    (
        r"Unsupported gpu architecture '(\w+)'|Value '(\w+)' is not defined for option 'gpu-name'|"
        r"invalid value for --gpu-architecture(?: \(-arch\))?(?: '?(\w+))?",
        _architecture,
        "Name another with -arch=sm_…, or install a CUDA toolkit at least as new as the GPU (the "
        "Python package nvidia-cuda-nvrtc has a compiler, too).",
    ),
    (
        r"CUDA_ERROR_INVALID_PTX|CUDA_ERROR_INVALID_IMAGE|device kernel image is invalid",
        "The driver refuses the code: it is for another architecture, or a kernel asks for more "
        "than this GPU has.",
        "Choose the target from the list of targets; `relascope compile` lists what each kernel "
        "asks for.",
    ),
    (
        r"too many resources requested for launch|CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES|"
        r"CUDALaunch Error: \w*INVALID_VALUE",
        "The GPU cannot launch a kernel: it asks for more threads, registers or shared memory than "
        "a block may have.",
        "`relascope compile` lists what each kernel asks for; try another -schedules or -libs.",
    ),
    (
        r"illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|unspecified launch failure|"
        r"CUDA_ERROR_LAUNCH_FAILED|misaligned address|device-side assert",
        "A kernel on the GPU read or wrote where it must not; this process can no longer use the "
        "GPU.",
        "Restart the engine. With CUDA_LAUNCH_BLOCKING=1 in the environment, the kernel at fault "
        "raises the error.",
    ),
    (
        r"Found no NVIDIA driver|Torch not compiled with CUDA enabled|CUDA_ERROR_NO_DEVICE|"
        r"no CUDA-capable device|CUDA driver initialization failed|No CUDA GPUs are available",
        lambda match, text: (
            "This PyTorch was built without CUDA."
            if "not compiled" in match[0]
            else "This process sees no GPU: there is none, there is no driver, or it is hidden."
        ),
        "Install PyTorch's build for CUDA and the GPU's driver; CUDA_VISIBLE_DEVICES, if set, must "
        "name the GPU. Or choose a target for the CPU.",
    ),
    (
        r"(lib(?:cuda|cudart|cublas|cublasLt|cudnn|nvrtc|nvrtc-builtins|nvJitLink)"
        r"[\w.-]*): cannot open shared object|"
        r"Could not load library (lib\w+\.so[\w.]*)|Unable to load any of \{(lib[\w.]+)",
        lambda match, text: (
            f"The library {next(filter(None, match.groups()))} is missing; the GPU needs it."
        ),
        "Install it: libcuda comes with the driver, others with PyTorch's build for CUDA or the "
        "Python packages nvidia-…-cu12. Or name its folder in LD_LIBRARY_PATH.",
    ),
)
"""A pattern of a fault's message, what to say, perhaps from the match, and what to do."""
