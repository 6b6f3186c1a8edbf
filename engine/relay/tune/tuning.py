"""Tuning Relay's kernels with AutoTVM: the search, and the records in a build.

AutoTVM's templates fall back to a schedule of their own where there is no record, so a program is
never left half tuned. Its genetic tuner proposes configurations; `engine.relay.tune.trial` builds
and times them in a process of its own.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, lines_of
from relascope.core.memo import Memo
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.measure.fleet import check
from relascope.engine.measure.remote import refuse_library
from relascope.engine.measure.tuner import MeasuredSchedule, Tunable, Workload
from relascope.engine.protocol import records
from relascope.engine.protocol.target_text import library, without
from relascope.engine.protocol.tuning import RECORDS, Fleet
from relascope.engine.relay.building import targets, templates
from relascope.engine.relay.building.apply_records import best_record
from relascope.engine.relay.building.profiled import Profiled
from relascope.engine.relay.building.runtime import prepared
from relascope.engine.relay.building.targets import LIBRARIES, parse
from relascope.engine.relay.tune import trial
from relascope.engine.relay.tune.trial import CannotMeasure, Place
from relascope.engine.relay.tvm.boot import spawning

# The runtime has loaded the TVM that has Relay.
from tvm import autotvm  # isort: skip
from tvm.autotvm.measure import MeasureInput, MeasureResult  # isort: skip
from tvm.autotvm.tuner import GATuner  # isort: skip
from tvm.contrib.popen_pool import PopenWorker  # isort: skip

_BATCH = 4  # what a kill may lose
_POPULATION = 16  # of the genetic tuner: small, since a task gets tens of trials, not thousands
_FIRST = 8  # trials of each template before they are held against each other
_FAR = 1.5  # a template whose best is so much slower than another's is given up
_STALE = 200  # batches without anything new, after which a template counts as exhausted
_SECONDS = 10.0  # to build and time a schedule
_FLEET_SECONDS = 60.0  # as far as a fleet's device does it, waiting for one included
_ALONE_SECONDS = 120.0  # to build and time a kernel as it is without records

_workloads: Memo[dict[str, Workload | None]] = Memo(8)


def tunable(tuned: Function, target: str, watch: bool) -> Tunable:
    """The kernels of one function of a program; see `engine.measure.tuner.Tunable`.

    Args:
        watch: build it to be profiled, where the target runs here.
    """
    options = BuildOptions(without(target, (RECORDS,)))
    function = prepared(tuned.program, tuned.program.mod[tuned.name], options)
    profiled = None
    calls: list[templates.Operator | None]
    if watch and targets.target(options.target).runs_here:
        profiled = Profiled(tuned, options.target)
        groups = profiled.groups
        found = None if groups is None else templates.matched(groups, function, options)
        if found is None:
            message = (
                "TVM's build changes this program so that its kernels cannot be told from each "
                "other."
            )
            raise EngineError("target", message, target, "Tune a smaller part of the model.")
        calls = found
    else:
        calls = list(templates.operators(templates.optimised(function, options), options))
    parsed, made = parse(options.target), {c.key: c for c in calls if c is not None}
    asked = (options, *sorted(made))
    known = _workloads.get(
        asked, lambda: {k: templates.workload(c, parsed) for k, c in made.items()}
    )
    keys = [c.key if c is not None and known[c.key] is not None else None for c in calls]
    nodes = [s.nodes for s in profiled.kernels] if profiled else [() for _ in calls]
    tasks = tuple(w for w in known.values() if w is not None)
    return Tunable(tasks, tuple(keys), tuple(nodes), profiled)


@contextmanager
def tuner(target: str, threads: int, fleet: Fleet | None) -> "Iterator[RelayTuner]":
    """What measures schedules; see `engine.measure.tuner.Tuner`.

    Raises:
        EngineError: kind "target"; nothing can be measured for it here, or on the fleet.
    """
    target = without(target, (RECORDS,))
    if fleet is None and not (known := targets.target(target)).runs_here:
        message = f"Nothing can be measured for it here. {known.missing}"
        hint = "Name a tracker and a key of devices that can, or tune for a target of this machine."
        raise EngineError("target", message, target, hint)
    if fleet is not None:
        refuse_library(target, LIBRARIES)
        check(fleet)
    process = Process()
    try:
        yield RelayTuner(process, Place(target, threads, fleet))
    finally:
        process.close()


class Process:
    """The process in which schedules are built and timed, and started again where it must be."""

    def __init__(self) -> None:
        self._worker = PopenWorker()

    def ask(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function of `engine.relay.tune.trial` returns.

        Raises:
            CannotMeasure: it says so, takes too long, or ends the process.
        """
        try:
            with spawning():
                self._worker.send(function, arguments, timeout=seconds)
            return self._worker.recv()
        except TimeoutError:
            raise CannotMeasure(f"It took more than {seconds:.0f} s.") from None
        except ChildProcessError:
            raise CannotMeasure("It ended the process that ran it.") from None
        except Exception as wrong:  # the worker puts its traceback into the words
            raise CannotMeasure(lines_of(wrong)[-1].rpartition("CannotMeasure: ")[2]) from wrong

    def close(self) -> None:
        """End it."""
        self._worker.kill()


class RelayTuner:
    """See `engine.measure.tuner.Tuner`."""

    def __init__(self, process: Process, place: Place) -> None:
        self.notes: tuple[str, ...] = ()
        self._process, self._place = process, place
        self._seconds = _SECONDS + (_FLEET_SECONDS if place.fleet else 0.0)

    def before(self, workload: Workload, place: Path) -> tuple[float, float | None] | None:
        """A kernel as it is built without records, and with its best one, in turns."""
        task: templates.Templates = workload.program
        record = best_record(place)
        try:
            found: tuple[float, float | None] = self._process.ask(
                _ALONE_SECONDS, trial.alone, task.module, task.constants, record, self._place
            )
        except CannotMeasure as wrong:
            self.notes += (f"{workload.name} without records could not be timed: {wrong}",)
            return None
        return found

    def search(
        self, workload: Workload, place: Path, trials: int, known: Mapping[str, float | None]
    ) -> Iterator[tuple[MeasuredSchedule, ...]]:
        """Measure configurations of a kernel's templates, batch by batch."""
        task: templates.Templates = workload.program
        target = parse(self._place.target)
        named = bool(library(self._place.target, LIBRARIES))
        if not (place / records.OPERATOR).exists():
            about = json.dumps({"constants": task.constants, "library": named})
            records.append(place / records.OPERATOR, about + "\n")
        choices = [_Choice(name, args, target, known) for name, args in task.choices]
        size, left = max(1, min(_BATCH, trials // len(choices))), trials
        while left > 0 and (choice := _next(choices)) is not None:
            batch = choice.propose(min(size, left))
            if not batch:
                continue
            measured = tuple(self._measure(choice, index, place) for index in batch)
            left -= len(measured)
            choice.learn({i: m.ms for i, m in zip(batch, measured, strict=True)})
            yield measured

    def _measure(self, choice: "_Choice", index: int, place: Path) -> MeasuredSchedule:
        candidate = f"{choice.name} {index}"
        try:
            ms: float = self._process.ask(
                self._seconds, trial.template, choice.name, choice.arguments, index, self._place
            )
        except CannotMeasure as wrong:
            return MeasuredSchedule(candidate, None, str(wrong))
        line = autotvm.record.encode(choice.asked(index), choice.answered(ms))
        records.append(place / records.AUTOTVM, line + "\n")
        return MeasuredSchedule(candidate, ms)


class _Choice:
    """The search through one template's configurations."""

    def __init__(
        self, name: str, arguments: tuple[Any, ...], target: Any, known: Mapping[str, float | None]
    ) -> None:
        self.name, self.arguments = name, arguments
        self._task = autotvm.task.create(name, arguments, target=target)
        self._target = target
        self._tuner = GATuner(self._task, pop_size=_POPULATION)
        parts = {c.rpartition(" "): ms for c, ms in known.items()}
        self.known = {int(index): ms for (of, _, index), ms in parts.items() if of == name}
        self.exhausted = False
        self._waiting: list[int] = []
        self._inherit()

    @property
    def best(self) -> float | None:
        """Milliseconds of the fastest configuration."""
        return min((ms for ms in self.known.values() if ms is not None), default=None)

    def propose(self, count: int) -> list[int]:
        """Up to so many configurations that were not measured; `learn` is called with them next.

        None where there are no more, and the template is then exhausted.
        """
        for _ in range(_STALE):
            if not self._tuner.has_next():
                break
            self._waiting = [int(c.index) for c in self._tuner.next_batch(count)]
            new = [i for i in dict.fromkeys(self._waiting) if i not in self.known]
            if new:
                return new
            self.learn({})
        self.exhausted = True
        return []

    def learn(self, measured: Mapping[int, float | None]) -> None:
        """Tell the tuner of what it proposed, in the order in which it did."""
        self.known.update(measured)
        asked = [self.asked(i) for i in self._waiting]
        self._tuner.update(asked, [self.answered(self.known[i]) for i in self._waiting])
        self._waiting = []

    def asked(self, index: int) -> Any:
        """A configuration as AutoTVM has it."""
        return MeasureInput(self._target, self._task, self._task.config_space.get(index))

    def answered(self, ms: float | None) -> Any:
        """What was measured of one, as AutoTVM has it."""
        failed = ms is None
        costs = (1e9,) if ms is None else (ms / 1e3,)
        return MeasureResult(costs, int(failed), 0.0, 0.0)

    def _inherit(self) -> None:
        """Start from the fastest that are known: the genetic tuner breeds from its elite."""
        fastest = sorted((ms, i) for i, ms in self.known.items() if ms is not None)
        for ms, index in fastest[: self._tuner.elite_num]:
            self._tuner.elites.append(self._task.config_space.point2knob(index))
            self._tuner.elite_scores.append(self._task.flop / (ms / 1e3))


def _next(choices: list[_Choice]) -> _Choice | None:
    """The template to try next: the one with the fewest trials among those worth it."""
    left = [c for c in choices if not c.exhausted]
    best = min((c.best for c in choices if c.best is not None), default=None)
    far = math.inf if best is None else _FAR * best
    worth = [c for c in left if len(c.known) < _FIRST or (c.best or math.inf) <= far]
    return min(worth or left, key=lambda c: len(c.known), default=None)
