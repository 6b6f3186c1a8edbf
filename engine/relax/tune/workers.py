"""Measuring kernels: built here on all cores at a time, timed one by one, here or on a fleet."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tvm.support.popen_pool import PopenWorker

from relascope.core.errors import lines_of
from relascope.core.graph import TensorType
from relascope.core.place import with_import_root
from relascope.engine.protocol.tuning import Fleet
from relascope.engine.relax.tune import trial

BUILD_SECONDS = 30.0
RUN_SECONDS = 20.0
FLEET_SECONDS = 60.0
"""What building a kernel, timing it here, and timing it on a fleet may take; the last includes
waiting for a device."""

BUILDS = 400
"""After so many kernels workers start anew: LLVM keeps some memory of everything it built."""


Outcome = tuple[float | None, str]
"""Milliseconds, or None and why."""


class Workers:
    """Builds and times kernels in processes on this machine; to be closed.

    Args:
        target: TVM's.
        ours: whether it is a target with our schedules.
        threads: that kernels use.
        cores: how many kernels are built at a time.
        fleet: whose device times them; None for this machine.
    """

    def __init__(
        self, target: Any, ours: bool, threads: int, cores: int, fleet: Fleet | None = None
    ) -> None:
        self._fleet = fleet
        os.environ["PYTHONPATH"] = with_import_root(os.environ.get("PYTHONPATH", ""))
        self._target, self._ours, self._threads = dict(target.export()), ours, threads
        self._device = "cpu" if str(target.kind.name) == "llvm" else str(target.kind.name)
        self._workers = [PopenWorker(trial.start, (threads,)) for _ in range(cores)]
        self._built = 0

    def measure(self, mods: Sequence[Any], arguments: Sequence[TensorType]) -> list[Outcome]:
        """Time scheduled kernels, each "main" of a module, which all take the same arguments."""
        count = len(self._workers)
        shares = [range(i, len(mods), count) for i in range(count)]
        errors = [""] * len(mods)

        def build(worker: PopenWorker, slots: Sequence[int]) -> None:
            for slot in slots:
                request = (slot, mods[slot], self._target, self._ours)
                _, errors[slot] = _asked(worker, trial.build, request, BUILD_SECONDS)

        if self._built > BUILDS:
            self.close()  # the next request starts them
            self._built = 0
        self._built += len(mods)
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(build, self._workers, shares))
        types = shapes(arguments)
        found: list[Outcome] = [(None, "")] * len(mods)
        for worker, share in zip(self._workers, shares, strict=True):
            for slot in share:
                if not errors[slot]:
                    found[slot] = self._time(worker, slot, types)
                if found[slot] == (None, "") and not errors[slot]:
                    build(worker, [slot])  # its process ended with a kernel before it
                    found[slot] = self._time(worker, slot, types)
        return [(ms, error or errors[i]) for i, (ms, error) in enumerate(found)]

    def _time(self, worker: PopenWorker, slot: int, types: trial.Shapes) -> Outcome:
        if self._fleet is None:
            return _asked(worker, trial.time, (slot, types, self._device), RUN_SECONDS)
        there = (slot, types, self._device, self._fleet, self._threads)
        return _asked(worker, trial.time_there, there, FLEET_SECONDS)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.kill()


def shapes(arguments: Sequence[TensorType]) -> trial.Shapes:
    """Shapes and dtypes as what travels to a worker."""
    return tuple((tuple(int(d) for d in a.shape), a.dtype) for a in arguments)


def _asked(
    worker: PopenWorker, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float
) -> Outcome:
    """What a worker answers; a kernel may fail, hang or crash, which is an answer, too."""
    try:
        worker.send(function, arguments, timeout=seconds)
        return worker.recv(), ""
    except TimeoutError:
        return None, f"It took more than {seconds:.0f} s."
    except ChildProcessError:
        return None, "Its process ended."
    except Exception as error:  # whatever TVM raises about this kernel
        return None, lines_of(error)[-1][:200]
