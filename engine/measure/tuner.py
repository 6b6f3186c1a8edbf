"""Tune a program's kernels, for either IR: the shares of tasks, the run, and its records.

An engine supplies the kernels (`Tunable`) and a `Tuner` that measures schedules batch by batch.
This module writes what is kept on disk beside TVM's own records."""

import statistics
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.building.cpu import machine
from relascope.engine.measure.profile import Profiled, Tensors, watched
from relascope.engine.protocol import records
from relascope.engine.protocol.records import Untuned
from relascope.engine.protocol.session import Progress, part
from relascope.engine.protocol.tuning import Trial, Tuned, TuneResult, TuneTask
from relascope.engine.turns import alone

RUNS = 3
"""How often the program runs for the shares of its tasks, after one uncounted run."""

ROUNDS = 5
"""How often a kernel, built without records and with its best record, is timed in turns."""


@dataclass(frozen=True)
class Workload:
    """An engine's task, as `engine.protocol.tuning.TuneTask`, with its own program to schedule."""

    key: str
    name: str
    arguments: tuple[TensorType, ...]
    flops: float | None
    program: Any


@dataclass(frozen=True)
class Tunable:
    """A function's kernels. `workloads` are the distinct ones that can be tuned; `calls` has the
    task's key, or None, for each kernel call in order. `profiled` is the function without records,
    whose kernels are `calls`; None if the target does not run here, or no times are wanted."""

    workloads: tuple[Workload, ...]
    calls: tuple[str | None, ...]
    profiled: Profiled | None


@dataclass(frozen=True)
class MeasuredSchedule:
    """One schedule that was built and run: fields as in `engine.protocol.tuning.Trial`."""

    candidate: str
    ms: float | None
    error: str = ""


Batch = tuple[MeasuredSchedule, ...]
Report = Callable[[Batch], None]


class Tuner(Protocol):
    """Measures kernels for a target, with a number of threads."""

    notes: tuple[str, ...]  # sentences on the result

    def before(self, workload: Workload, place: Path) -> tuple[float, float | None] | None:
        """Milliseconds of a kernel built without records, and of its best record in the task's own
        folder (None without one), in turns; None if it cannot run here."""

    def search(self, workload: Workload, place: Path, trials: int, report: Report) -> None:
        """Measure schedules in batches, starting from the best on disk, until `trials` or their
        end. Each is reported when TVM's records of it are on disk, in the task's folder."""


def tasks(
    functions: Mapping[str, Tunable], values: Tensors, place: Path, progress: Progress
) -> tuple[TuneTask, ...]:
    """The tasks of a program, those with the largest share first. `functions` are by phase
    ("forward", "backward") and run on `values` by name; `place` has the target's records."""
    calls = Counter(key for f in functions.values() for key in f.calls)
    nodes: dict[str | None, dict[str, None]] = defaultdict(dict)
    taken: dict[str | None, list[float]] = defaultdict(list)
    for index, (phase, function) in enumerate(functions.items()):
        if function.profiled is None:
            continue
        progress(index / len(functions), f"running the {phase}, kernel by kernel")
        with alone():
            runs = [watched(function.profiled, values) for _ in range(RUNS + 1)]
        times = [statistics.median(each) for each in zip(*runs[1:], strict=True)]
        for key, site, ms in zip(function.calls, function.profiled.kernels, times, strict=True):
            taken[key].append(ms)
            nodes[key].update(dict.fromkeys(site.nodes))
    book, found = records.read(place), []
    for key, workload in {w.key: w for f in functions.values() for w in f.workloads}.items():
        if not calls[key]:  # the build made it a view, such as a reshape between two kernels
            continue
        before = book.before_ms(key)
        if before is None and key in taken:
            before = statistics.mean(taken[key])
        task = key, workload.name, workload.arguments, tuple(nodes[key]), calls[key], workload.flops
        known = before, book.with_record_ms(key), len(book.of(key)), book.takes(key)
        found.append(TuneTask(*task, None, *known))
    if not taken:
        return tuple(found)
    spent = {t.key: t.calls * ((t.best_ms if t.uses_record else t.before_ms) or 0.0) for t in found}
    total = sum(spent.values()) + sum(taken[None])  # of kernels that are not tasks
    shared = [replace(t, share=spent[t.key] / total if total else None) for t in found]
    return tuple(sorted(shared, key=lambda t: -(t.share or 0.0)))


def tune(
    functions: Mapping[str, Tunable],
    keys: Sequence[str],
    trials: int,
    tuner: AbstractContextManager[Tuner],
    place: Path,
    about: tuple[str, int],
    progress: Progress,
) -> TuneResult:
    """Measure schedules of some tasks, and keep the records. `keys` are those of the tasks, none
    for all; each gets `trials`. `place` is the target's folder of records; `about` has the target's
    text and the threads, for the result."""
    workloads = {w.key: w for f in functions.values() for w in f.workloads}
    unknown = [k for k in keys if k not in workloads]
    if unknown:
        message = f"The program has no such task: {', '.join(unknown)}."
        raise EngineError("usage", message, unknown[0], "`relascope tasks` lists them.")
    chosen = [workloads[k] for k in keys or workloads]
    run, began, target, threads = uuid.uuid4().hex[:12], time.perf_counter(), *about
    done: list[Tuned] = []
    with records.locked(place), tuner as measuring:
        notes = records.read(place).notes
        for index, workload in enumerate(chosen):
            step = part(progress, index / len(chosen), (index + 1) / len(chosen))
            done.append(_tune_one(workload, place, trials, run, began, measuring, step))
        notes += measuring.notes
    took, found = time.perf_counter() - began, (machine(), target, threads, tuple(done))
    return TuneResult(run, str(place), *found, took, notes=notes)


def _tune_one(
    workload: Workload,
    place: Path,
    trials: int,
    run: str,
    began: float,
    tuner: Tuner,
    progress: Progress,
) -> Tuned:
    key, own, made, before = workload.key, place / workload.key, 0, None
    start = records.read(place)
    best, earlier, number = start.best_ms(key), start.with_record_ms(key), len(start.of(key))

    def rival() -> float | None:
        """Measure the kernel built without records, and write the times to disk."""
        measured = tuner.before(workload, own)
        if measured is None:
            return None
        records.add(place, records.UNTUNED, [Untuned(key, run, number + made, *measured)])
        return measured[0]

    def report(batch: Batch) -> None:
        nonlocal made, best
        lines, seconds = [], time.perf_counter() - began
        for measured in batch:
            made += 1
            best = min((b for b in (best, measured.ms) if b is not None), default=None)
            named = measured.candidate, measured.error
            lines.append(Trial(key, run, number + made, measured.ms, best, seconds, *named))
        records.add(place, records.CURVE, lines)
        progress(min(1.0, made / trials), _words(workload.name, made, trials, best, before))

    progress(0.0, f"{workload.name}: timing it without records")
    before = rival()
    progress(0.0, _words(workload.name, 0, trials, best, before))
    tuner.search(workload, own, trials, report)
    if made:
        rival()
    return records.read(place).tuned(run, key, workload.name, earlier)


def _words(name: str, made: int, trials: int, best: float | None, before: float | None) -> str:
    words = f"{name}: trial {made} of {trials}"
    words += "" if best is None else f", best {best:.4g} ms"
    return words + ("" if before is None else f", {before:.4g} ms without records")


def in_turns(timers: Sequence[Callable[[], Any]]) -> tuple[float, float | None]:
    """Median milliseconds of the first TVM timer, and of the second if there is one."""
    rounds = [[float(timer().mean) for timer in timers] for _ in range(ROUNDS)]
    first, *second = (1e3 * statistics.median(times) for times in zip(*rounds, strict=True))
    return first, second[0] if second else None
