"""The work of a tuner's process: build and time one schedule."""

import statistics
from typing import Any
from unittest.mock import patch

import numpy as np

from relascope.engine.protocol.target_text import gpu_index
from relascope.engine.relay.tvm.boot import boot

boot()

import tvm
from tvm import autotvm
from tvm.autotvm.measure import measure_methods

from relascope.core.graph import TensorType
from relascope.engine.building.threads import set_threads
from relascope.engine.relay.building.targets import parse

REPEATS = 3
LEAST_MS = 20  # of one repeat: shorter ones are made of several runs


def timed(wanted: Any, target: str, threads: int) -> float:
    """Seconds of an operator with one configuration, an AutoTVM `MeasureInput`. It is built and run
    here, because TVM's builder leaves a file that a compiler would have to link."""
    set_threads(threads)
    # Without what the build does ahead of time.
    with patch.object(autotvm.GLOBAL_SCOPE, "in_tuning", True):
        module, kinds = measure_methods._build_func_common(wanted, checks=_limits(target))
    device = tvm.device(str(wanted.target.kind), gpu_index(target))
    timer = module.time_evaluator(module.entry_name, device, 1, REPEATS, min_repeat_ms=LEAST_MS)
    arrays = [tvm.nd.array(values(TensorType(*kind)), device) for kind in kinds]
    return float(statistics.median(timer(*arrays).results))


def _limits(target: str) -> dict[str, Any]:
    """The limits of a GPU's kernels, which TVM checks before it runs one."""
    made = parse(target)
    if "gpu" not in made.keys:
        return {}
    device = tvm.device(str(made.kind), gpu_index(target))
    named = ("max_shared_memory_per_block", "max_threads_per_block")
    limits = {name: getattr(device, name) for name in named}
    axes = zip("xyz", device.max_thread_dimensions, strict=True)
    return {"gpu": limits | {f"max_thread_{axis}": most for axis, most in axes}}


def values(kind: TensorType) -> np.ndarray:
    """A tensor of a type, between -1 and 1."""
    shape = [int(d) for d in kind.shape]
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(kind.dtype)
