"""What a tuner's worker process does: build a kernel, and time it.

TVM's own builder starts new processes for every batch, and each reads the tensor instructions of
every GPU first, which takes half a minute. These processes stay, and keep what they built until it
is timed.
"""

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm.support import tar

from relascope.engine.measure.fleet import connected
from relascope.engine.measure.remote import threads_of, upload
from relascope.engine.protocol.tuning import Fleet
from relascope.engine.relax.kernels import schedules

REPEATS = 3
SHORTEST_MS = 20
"""A measurement is the median of so many blocks of calls, each at least so long."""

Shapes = tuple[tuple[tuple[int, ...], str], ...]
"""Of each argument, its shape and its dtype."""

_built: dict[int, Any] = {}


def build(slot: int, mod: Any, target: Mapping[str, Any], ours: bool) -> None:
    """Build a scheduled kernel, "main" of a module, and keep it under a number.

    Args:
        target: as TVM's dictionary.
        ours: whether it is a target with our schedules: then exp and the like are our polynomials.
    """
    made = tvm.target.Target(dict(target))
    with schedules.ARITHMETIC.used(ours):
        plain = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
        _built[slot] = tvm.tirx.build(plain, target=made)


def time(slot: int, arguments: Shapes, device: str) -> float | None:
    """Milliseconds of one call of what was built under a number, which is forgotten; None where
    nothing is: the process that built it has ended.

    Args:
        arguments: of the kernel; see `values`.
    """
    if slot not in _built:
        return None
    return _median(_built.pop(slot), arguments, tvm.device(device))


def time_there(
    slot: int, arguments: Shapes, device: str, fleet: Fleet, threads: int
) -> float | None:
    """The same on a free device of a fleet, by its clock.

    Args:
        threads: that the device is to use.
    """
    if slot not in _built:
        return None
    library = _built.pop(slot)
    with connected(fleet, lambda fraction, text: None) as session:
        threads_of(session, threads)
        there = upload(session, library, "kernel", tar.tar)
        return _median(there, arguments, session.device(device))


def _median(library: Any, arguments: Shapes, device: Any) -> float:
    options = {"number": 1, "repeat": REPEATS, "min_repeat_ms": SHORTEST_MS}
    timed = library.time_evaluator("main", device, **options)(*values(arguments, device))
    return 1e3 * float(statistics.median(timed.results))


def values(arguments: Shapes, device: Any) -> list[Any]:
    """TVM's tensors of such types: floats are random, whole numbers 0, which is a valid index."""
    numbers = np.random.default_rng(0)
    drawn = (
        numbers.random(shape).astype(dtype) if "float" in dtype else np.zeros(shape, dtype)
        for shape, dtype in arguments
    )
    return [tvm.runtime.tensor(array, device) for array in drawn]


def start(threads: int) -> None:
    """Have kernels use so many threads, tied to no kind of core."""
    tvm.get_global_func("runtime.config_threadpool")(0, threads)
