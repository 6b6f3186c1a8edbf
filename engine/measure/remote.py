"""Run and time a program on a device of a fleet; an engine builds it.

Its results on the model's inputs are compared with PyTorch's here. The device's own clock times it,
so the network does not count.
"""

import statistics
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relascope.core.errors import EngineError, lines_of, reporting
from relascope.core.graph import TensorType
from relascope.engine.building import executables
from relascope.engine.building.executables import Compiled, Tensors
from relascope.engine.measure import timing
from relascope.engine.measure.compare import Built, compare
from relascope.engine.measure.fleet import check, connect, connected
from relascope.engine.measure.timing import Measured
from relascope.engine.protocol.session import Progress, silent
from relascope.engine.protocol.target_text import gpu_index, library
from relascope.engine.protocol.targets import Target
from relascope.engine.protocol.times import TimeResult
from relascope.engine.protocol.tuning import Fleet
from relascope.engine.turns import alone

ROUNDS = 5
"""How often a kernel as built without records and its best record are timed in turns."""

TRIAL_SECONDS = 60
"""After which a device ends the measurement of a schedule."""


class Remote(Compiled):
    """One function on the device; an IR says how TVM runs it there.

    Args:
        session: TVM's, on the device.
        built: a library of TVM's, with `export_library`.
        name: of the function in its module.
        target: its text, and TVM's name of the device's kind.
        pack: TVM's function `tar`, which makes an archive of object files.
        arguments: types by name, of those that a result depends on.
    """

    def __init__(
        self,
        session: Any,
        built: Any,
        name: str,
        target: tuple[str, str],
        pack: Any,
        arguments: Mapping[str, TensorType],
    ) -> None:
        self._name, self._arguments, self.used = name, arguments, tuple(arguments)
        there = upload(session, built, name, pack)
        with understood(name):
            self.device = session.device(target[1].replace("llvm", "cpu"), gpu_index(target[0]))
            self.start(there)

    def start(self, there: Any) -> None:
        """Begin with the library on the device."""
        raise NotImplementedError

    def results(self, arrays: Mapping[str, np.ndarray]) -> list[Any]:
        """Run once; TVM's arrays on the device."""
        raise NotImplementedError

    def timer(self, **options: Any) -> Any:
        """TVM's times of the last call, made again."""
        raise NotImplementedError

    def own_memory(self, values: Tensors) -> executables.OwnMemory | None:
        """Not known of a device elsewhere."""
        return None

    def run(self, values: Tensors, keep: Iterable[str] = ()) -> tuple[torch.Tensor, ...]:
        """Run once there; the results come back."""
        with understood(self._name):
            given = {n: executables.ready(values, n, kind) for n, kind in self._arguments.items()}
            made = self.results({n: value.cpu().numpy() for n, value in given.items()})
            return tuple(torch.from_numpy(r.numpy()) for r in made)

    def seconds(self, repeats: int) -> tuple[float, ...]:
        """Times of calls there, on the arguments of the last `run`; each a mean of a few."""
        timed = self.timer(number=1, repeat=repeats, min_repeat_ms=10)
        return tuple(float(s) for s in timed.results)


def upload(session: Any, library: Any, name: str, pack: Any) -> Any:
    """A library on the device, linked there.

    Args:
        library, pack: as of `Remote`'s `built` and `pack`.
        name: unlike that of the session's other libraries.
    """
    with tempfile.TemporaryDirectory() as folder, understood(name):
        file = Path(folder) / f"{name}.tar"
        library.export_library(str(file), fcompile=pack)
        session.upload(str(file))
        return session.load_module(file.name)


def refuse_library(target: str, ours: Collection[str]) -> None:
    """Refuse a target whose kernels call what a device of a fleet does not have.

    Args:
        ours: options that name a library.

    Raises:
        EngineError: kind "target".
    """
    name = library(target, ours)
    if name:
        message = "A device of a fleet has no PyTorch and no OpenBLAS to call."
        raise EngineError("target", message, target, f"Leave out -libs={name}.")


def check_measurable(target: Target, ours: Collection[str], fleet: Fleet | None) -> None:
    """Refuse to tune for a target that cannot be measured here, or on a fleet.

    Args:
        ours: as of `refuse_library`.

    Raises:
        EngineError: kind "target".
    """
    if fleet is not None:
        refuse_library(target.name, ours)
        check(fleet)
    elif not target.runs_here:
        message = f"Nothing can be measured for it here. {target.missing}"
        hint = "Name a tracker and a key of devices that can, or tune for a target of this machine."
        raise EngineError("target", message, target.name, hint)


def understood(what: str) -> AbstractContextManager[None]:
    message = "The device cannot run it: "
    hint = (
        "It links what it is sent with its C++ compiler, and needs what the target says: "
        "its architecture, and a TVM with a runtime for its GPU."
    )
    return reporting(
        lambda wrong: EngineError("target", f"{message}{lines_of(wrong)[-1][:300]}", what, hint)
    )


def threads_of(session: Any, threads: int) -> int:
    """Let the device use so many threads, 0 for its own number; how many it uses."""
    with understood("threads"):
        if threads:
            session.get_function("runtime.config_threadpool")(0, threads)
            return threads
        return int(session.get_function("runtime.NumThreads")())


@contextmanager
def placed(
    libraries: Sequence[Any], device: str, index: int, fleet: Fleet | None, threads: int, pack: Any
) -> Iterator[tuple[Sequence[Any], Any]]:
    """Libraries where they are to be timed, alone, and TVM's device there.

    Args:
        device, index: TVM's name of its kind, and which of them.
        fleet: whose; None for this machine's.
        pack: as of `upload`.
    """
    if fleet is None:
        import tvm

        with alone():
            yield libraries, tvm.device(device, index)
        return
    with connected(fleet, silent) as session:
        threads_of(session, threads)
        there = [upload(session, x, f"kernel{k}", pack) for k, x in enumerate(libraries)]
        yield there, session.device(device, index)


def in_turns(timers: Sequence[Callable[[], Any]]) -> tuple[float, float | None]:
    """Median milliseconds of the first of TVM's timers, and of the second where there is one."""
    rounds = [[float(timer().mean) for timer in timers] for _ in range(ROUNDS)]
    first, *second = (1e3 * statistics.median(times) for times in zip(*rounds, strict=True))
    return first, second[0] if second else None


def session(fleet: Fleet, threads: int, config: Any) -> Any:
    """A session that measures one schedule: `f_create_session` of TVM's MetaSchedule."""
    found = connect(fleet, silent, lasts=TRIAL_SECONDS)
    threads_of(found, threads)
    return found


def leave(session: Any, path: str | None) -> None:
    """Free the device, whatever of it Python still refers to: TVM's `f_cleanup`."""
    if session is not None:
        session.get_function("CloseRPCConnection")()


def measure_remote(
    built: Built,
    functions: dict[str, Remote],
    about: tuple[str, str, int],
    fleet: Fleet,
    repeats: int,
    progress: Progress,
) -> TimeResult:
    """Compare with PyTorch here, and time there.

    Args:
        built: whose step's functions are on the device.
        functions: those, by phase ("forward", "backward").
        about: the IR, the target's text, and the device's threads.
    """
    ir, target, threads = about
    comparisons = compare(built, lambda f, t: progress(0.5 * f, t))
    progress(0.5, f"timing on {fleet.key}")
    with understood(fleet.key):
        taken = {phase: function.seconds(repeats) for phase, function in functions.items()}
    phases = {"forward": taken["forward"]}
    if "backward" in taken:
        both = zip(taken["forward"], taken["backward"], strict=True)
        phases["forward_backward"] = tuple(a + b for a, b in both)
    what, rows = f"{ir}, {target} on {fleet.key}", []
    for phase, runs in phases.items():
        backward, taken_in = phase == "forward_backward", Measured(tuple((s,) for s in runs))
        worst = max(c.max_abs for c in comparisons if backward or c.name.startswith("output"))
        known = {**built.facts, "target": target}
        rows.append(timing.row(what, phase, taken_in, None, worst, None, **known))
    note = (
        f"These are times of the program alone on a device with the key {fleet.key}, by its own "
        "clock: nothing that crosses the network counts, and PyTorch does not run beside it. "
        "Errors are of a run there on the same inputs, against PyTorch here."
    )
    where, notes = f"{fleet.key} at {fleet.tracker}", (note, *timing.unsteady(rows))
    return TimeResult(
        where, target, threads, tuple(rows), comparisons, built.seconds, notes, built.model.against
    )
