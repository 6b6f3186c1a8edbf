"""What the Relax engine can compile for on this machine, the best first.

Every target that is said to run here has built and run a small function in this process, with the
right numbers coming out.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tvm
from tvm import relax

from engine.cpu import cpu_target
from engine.session import EngineError, Target

BLAS = "-libs=blas"
"""What a CPU target says to have its matmuls done by PyTorch's BLAS; see `engine.relax.blas`."""


def parse(target: str) -> Any:
    """A target's text as this TVM's target, which it takes as a dictionary only.

    Args:
        target: "llvm -mcpu=znver2", "cuda -arch=sm_90".

    Raises:
        EngineError: kind "target"; an option is not written as `-name=value`, or TVM refuses it.
    """
    kind, *options = target.split()
    found: dict[str, Any] = {"kind": kind}
    for option in options:
        name, equals, value = option.removeprefix("-").partition("=")
        if not option.startswith("-") or not equals:
            raise EngineError(
                "target", f"Cannot read {option!r} in the target {target!r}.", target,
                'Write a kind and options, such as "llvm -mcpu=haswell" or "cuda -arch=sm_90".',
            )  # fmt: skip
        if option != BLAS:
            found[name] = value
    try:
        return tvm.target.Target(found)
    except Exception as wrong:
        reason = str(wrong).strip().splitlines()[-1]
        raise EngineError("target", f"TVM refuses this target: {reason}", target) from wrong


@functools.cache
def targets() -> tuple[Target, ...]:
    """The targets, the best first; those that do not run here come last and say why.

    A function is built and run for each once in a process, a few tens of milliseconds.
    """
    return tuple(sorted((*_cuda(), *_cpu()), key=lambda t: not t.runs_here))


def _cpu() -> tuple[Target, ...]:
    """The CPU by TVM's own kernels, and by PyTorch's BLAS for matmuls."""
    best, device = cpu_target(_known)
    problem = ""
    for target in dict.fromkeys([best, "llvm"]):
        problem = _try(target, tvm.cpu(0))
        if not problem:
            return (
                Target(f"{target} {BLAS}", f"{device}, matmuls by PyTorch's BLAS", True),
                Target(target, device, True),
            )
    return (Target("llvm", device, False, f"TVM cannot build for the CPU here: {problem}"),)


def _known(wanted: frozenset[str]) -> dict[str, frozenset[str]]:
    codegen: Any = tvm.target.codegen
    names = {str(n) for n in codegen.llvm_get_cpu_archlist(parse("llvm"))} & wanted
    return {
        n: frozenset(str(f) for f in codegen.llvm_get_cpu_features(parse(f"llvm -mcpu={n}")))
        for n in names
    }


def _cuda() -> tuple[Target, ...]:
    device = tvm.cuda(0)
    if tvm.get_global_func("device_api.cuda", allow_missing=True) is None:
        return (Target("cuda", "an NVIDIA GPU", False, "This TVM was built without CUDA."),)
    if not device.exist:
        why = "There is no NVIDIA GPU here, or its driver shows none to this process."
        return (Target("cuda", "an NVIDIA GPU", False, why),)
    version = str(device.compute_version)
    name = f"cuda -arch=sm_{version.replace('.', '')}"
    words = f"{device.device_name} (compute capability {version})"
    problem = _try(name, device)
    if problem:
        return (Target(name, words, False, f"TVM sees it but cannot use it: {problem}"),)
    return (Target(name, words, True),)


def _try(target: str, device: Any) -> str:
    """Build and run `y = 2 x + 1` on 64 numbers; what went wrong, or ""."""
    try:
        x = relax.Var("x", relax.TensorType([64], "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                doubled = builder.emit(relax.op.multiply(x, relax.const(2.0)))
                y = builder.emit_output(relax.op.add(doubled, relax.const(1.0)))
            builder.emit_func_output(y)
        chosen = parse(target)
        built = tvm.compile(
            builder.get(), chosen, relax_pipeline=relax.get_default_pipeline(chosen)
        )
        given = np.arange(64, dtype="float32")
        result = relax.VirtualMachine(built, device)["main"](tvm.runtime.tensor(given, device))
        if not np.array_equal(result.numpy(), given * 2 + 1):
            return "a small function gave wrong numbers."
    except Exception as error:  # whatever keeps it from running is the answer to the question
        lines = str(error).strip().splitlines()
        return lines[-1] if lines else type(error).__name__
    return ""
