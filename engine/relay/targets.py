"""What the Relay engine can compile for on this machine, the best first."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from engine.devices import Tvm
from engine.relay.boot import boot, cuda_missing
from engine.session import EngineError, Target

BLAS = "-libs=mkl"
"""What a CPU target says to have its matmuls done by PyTorch's BLAS; see `engine.relay.blas`."""


def parse(target: str) -> Any:
    """A target's text as TVM's target.

    Args:
        target: "llvm -mcpu=znver2", "cuda -arch=sm_90".

    Raises:
        EngineError: kind "target"; TVM refuses it, or LLVM has no such architecture.
    """
    boot()
    import tvm

    try:
        made = tvm.target.Target(target)
    except Exception as wrong:
        reason = str(wrong).strip().splitlines()[-1]
        raise EngineError("target", f"TVM refuses this target: {reason}", target) from wrong
    _tvm().check(target)
    return made


@functools.cache
def targets() -> tuple[Target, ...]:
    """The targets, the best first; those that do not run here come last and say why.

    A kernel is built and run for each once in a process, a few tens of milliseconds.
    """
    found = (_tvm().cuda(), *_tvm().cpu({BLAS: "matmuls by PyTorch's BLAS"}))
    return tuple(sorted(found, key=lambda t: not t.runs_here))


@functools.cache
def _tvm() -> Tvm:
    boot()
    import tvm

    return Tvm(tvm, parse, _run, cuda_missing)


def _run(target: str, device: Any, given: np.ndarray) -> np.ndarray:
    import tvm
    from tvm import te

    x = te.placeholder(given.shape, name="x")
    y = te.compute(given.shape, lambda i: x[i] * 2.0 + 1.0, name="y")
    schedule = te.create_schedule(y.op)
    outer, inner = schedule[y].split(y.op.axis[0], 16)
    if device.device_type == tvm.cpu(0).device_type:
        schedule[y].vectorize(inner)
    else:
        schedule[y].bind(outer, te.thread_axis("blockIdx.x"))
        schedule[y].bind(inner, te.thread_axis("threadIdx.x"))
    kernel = tvm.build(schedule, [x, y], parse(target))
    result = tvm.nd.empty(given.shape, "float32", device)
    kernel(tvm.nd.array(given, device), result)
    return np.asarray(result.numpy())
