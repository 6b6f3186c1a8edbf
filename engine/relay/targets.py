"""What the Relay engine can compile for on this machine, the best first.

Every target that is said to run here has built and run a small kernel in this process, with the
right numbers coming out.
"""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path
from typing import Any

import numpy as np

from engine.relay.boot import boot, cuda_missing
from engine.session import Target

BLAS = "-libs=mkl"
"""What a CPU target says to have its matmuls done by PyTorch's BLAS; see `engine.relay.blas`."""

# Processors that LLVM can write code for, by falling use, each asked whether all that its code
# would use is there. AMD's own come first on AMD: they are scheduled for what the machine is.
_AMD = ("znver2", "znver1")
_X86 = ("cascadelake", "skylake-avx512", "haswell", "sandybridge", "nehalem", "x86-64")

# What a code generator uses without being asked, by LLVM's name, with the kernel's name for it
# where they differ. Other features of a processor only serve programs that name them.
_USED = {
    "sse3": "pni",
    "ssse3": "",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "popcnt": "",
    "cx16": "",
    "avx": "",
    "avx2": "",
    "fma": "",
    "f16c": "",
    "bmi": "bmi1",
    "bmi2": "",
    "lzcnt": "abm",
    "movbe": "",
    "avx512f": "",
    "avx512bw": "",
    "avx512cd": "",
    "avx512dq": "",
    "avx512vl": "",
    "avx512ifma": "",
    "avx512vbmi": "",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "gfni": "",
    "vaes": "",
    "vpclmulqdq": "",
}


@functools.cache
def targets() -> tuple[Target, ...]:
    """The targets, the best first; those that do not run here come last and say why.

    A kernel is built and run for each once in a process, a few tens of milliseconds.
    """
    boot()
    found = (_cuda(), *_cpu())
    return tuple(sorted(found, key=lambda t: not t.runs_here))


def cpu_name(flags: frozenset[str], vendor: str, known: dict[str, frozenset[str]]) -> str:
    """The processor to compile for: all that LLVM's code for it may use is among `flags`.

    A virtual machine often hides features of the processor it runs on, so its model's name is no
    promise; and an old LLVM does not know new names.

    Args:
        flags: the features of the machine, by the Linux kernel's names.
        vendor: "AuthenticAMD", "GenuineIntel", …
        known: the processors that LLVM knows, with their features by LLVM's names.

    Returns:
        A name for `-mcpu`, or "" where none fits.
    """
    names = _X86 if vendor != "AuthenticAMD" or "avx512f" in flags else (*_AMD, *_X86)
    for name in names:
        if name in known:
            used = {_USED[f] or f for f in known[name] if f in _USED}
            if used <= flags:
                return name
    return ""


def _cpu() -> tuple[Target, ...]:
    """The CPU by TVM's own kernels, and by PyTorch's BLAS for matmuls (`engine.relay.blas`)."""
    import tvm

    info = _cpu_info(Path("/proc/cpuinfo"))
    flags = frozenset(info.get("flags", "").split())
    name = ""
    if platform.machine() in ("x86_64", "AMD64"):
        name = cpu_name(flags, info.get("vendor_id", ""), _known())
    device = _cpu_words(info, flags)
    problem = ""
    for target in dict.fromkeys([f"llvm -mcpu={name}" if name else "llvm", "llvm"]):
        problem = _try(target, tvm.cpu(0))
        if not problem:
            library = f"{target} {BLAS}"
            return (
                Target(target, device, True),
                Target(library, f"{device}, matmuls by PyTorch's BLAS", True),
            )
    return (Target("llvm", device, False, f"TVM cannot build for the CPU here: {problem}"),)


def _known() -> dict[str, frozenset[str]]:
    import tvm

    codegen: Any = tvm.target.codegen
    if not hasattr(codegen, "llvm_get_cpu_archlist"):  # an older TVM, of the user's own
        return {}
    llvm = tvm.target.Target("llvm")
    names = {str(n) for n in codegen.llvm_get_cpu_archlist(llvm)} & {*_AMD, *_X86}
    return {
        n: frozenset(
            str(f) for f in codegen.llvm_get_cpu_features(tvm.target.Target(f"llvm -mcpu={n}"))
        )
        for n in names
    }


def _cpu_info(path: Path) -> dict[str, str]:
    """The first processor of Linux's list; nothing elsewhere."""
    try:
        first = path.read_text().split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_words(info: dict[str, str], flags: frozenset[str]) -> str:
    model = info.get("model name") or platform.processor() or platform.machine()
    model = re.sub(r"\((R|TM|r|tm)\)|\bCPU\b|@.*|\b\d+-Core\b|\bProcessor\b", " ", model)
    vector = next(
        (w for f, w in (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("avx", "AVX")) if f in flags), ""
    )
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = f"{count} core" if count == 1 else f"{count} cores"
    parts = [" ".join(model.split()), vector, cores]
    return f"the CPU ({', '.join(p for p in parts if p)})"


def _cuda() -> Target:
    import tvm

    device = tvm.cuda(0)
    if tvm.get_global_func("device_api.cuda", allow_missing=True) is None:
        return Target("cuda", "an NVIDIA GPU", False, "This TVM was built without CUDA.")
    if not device.exist:
        why = cuda_missing() or "The NVIDIA driver is here but shows no GPU to this process."
        return Target("cuda", "an NVIDIA GPU", False, why)
    version = str(device.compute_version)
    name = f"cuda -arch=sm_{version.replace('.', '')}"
    words = f"{device.device_name} (compute capability {version})"
    problem = _try(name, device)
    if problem:
        return Target(name, words, False, f"TVM sees it but cannot use it: {problem}")
    return Target(name, words, True)


def _try(target: str, device: Any) -> str:
    """Build and run `y = 2 x + 1` on 64 numbers; what went wrong, or ""."""
    import tvm
    from tvm import te

    try:
        x = te.placeholder((64,), name="x")
        y = te.compute((64,), lambda i: x[i] * 2.0 + 1.0, name="y")
        schedule = te.create_schedule(y.op)
        outer, inner = schedule[y].split(y.op.axis[0], 16)
        if device.device_type == tvm.cpu(0).device_type:
            schedule[y].vectorize(inner)
        else:
            schedule[y].bind(outer, te.thread_axis("blockIdx.x"))
            schedule[y].bind(inner, te.thread_axis("threadIdx.x"))
        kernel = tvm.build(schedule, [x, y], tvm.target.Target(target))
        given = np.arange(64, dtype="float32")
        result = tvm.nd.empty((64,), "float32", device)
        kernel(tvm.nd.array(given, device), result)
        if not np.array_equal(result.numpy(), given * 2 + 1):
            return "a small kernel gave wrong numbers."
    except Exception as error:  # whatever keeps it from running is the answer to the question
        lines = str(error).strip().splitlines()
        return lines[-1] if lines else type(error).__name__
    return ""
