"""What the Relay engine can compile for on this machine, the best first.

Every target that is said to run here has built and run a small kernel in this process, with the
right numbers coming out.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from engine.cpu import cpu_target
from engine.relay.boot import boot, cuda_missing
from engine.session import Target

BLAS = "-libs=mkl"
"""What a CPU target says to have its matmuls done by PyTorch's BLAS; see `engine.relay.blas`."""


@functools.cache
def targets() -> tuple[Target, ...]:
    """The targets, the best first; those that do not run here come last and say why.

    A kernel is built and run for each once in a process, a few tens of milliseconds.
    """
    boot()
    found = (_cuda(), *_cpu())
    return tuple(sorted(found, key=lambda t: not t.runs_here))


def _cpu() -> tuple[Target, ...]:
    """The CPU by TVM's own kernels, and by PyTorch's BLAS for matmuls (`engine.relay.blas`)."""
    import tvm

    best, device = cpu_target(_known)
    problem = ""
    for target in dict.fromkeys([best, "llvm"]):
        problem = _try(target, tvm.cpu(0))
        if not problem:
            library = f"{target} {BLAS}"
            return (
                Target(target, device, True),
                Target(library, f"{device}, matmuls by PyTorch's BLAS", True),
            )
    return (Target("llvm", device, False, f"TVM cannot build for the CPU here: {problem}"),)


def _known(wanted: frozenset[str]) -> dict[str, frozenset[str]]:
    import tvm

    codegen: Any = tvm.target.codegen
    if not hasattr(codegen, "llvm_get_cpu_archlist"):  # an older TVM, of the user's own
        return {}
    llvm = tvm.target.Target("llvm")
    names = {str(n) for n in codegen.llvm_get_cpu_archlist(llvm)} & wanted
    return {
        n: frozenset(
            str(f) for f in codegen.llvm_get_cpu_features(tvm.target.Target(f"llvm -mcpu={n}"))
        )
        for n in names
    }


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
