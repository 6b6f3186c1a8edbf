"""Tuning Relay's kernels with AutoTVM: the search, and the records in a build.

AutoTVM's templates fall back to a schedule of their own where there is no record, so a program is
never left half tuned. The loop is AutoTVM's, with its genetic tuner; `engine.relay.tune.trial`
builds and times configurations in a process of its own.
"""

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, lines_of
from relascope.core.memo import Memo
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.measure.tuner import MeasuredSchedule, Report, Tunable, Workload, in_turns
from relascope.engine.protocol import records
from relascope.engine.protocol.target_text import gpu_index, library
from relascope.engine.relay.building import runtime, templates
from relascope.engine.relay.building.apply_records import best_record
from relascope.engine.relay.building.profiled import Profiled
from relascope.engine.relay.building.targets import LIBRARIES, parse
from relascope.engine.relay.tune import trial
from relascope.engine.relay.tvm.boot import spawning
from relascope.engine.turns import alone
from relascope.passes.relay.ir.program import RelayProgram

# The runtime has loaded the TVM that has Relay.
import tvm  # isort: skip
from tvm import autotvm  # isort: skip
from tvm.autotvm.measure import MeasureErrorNo, MeasureResult  # isort: skip
from tvm.autotvm.measure.measure import Builder, Runner  # isort: skip
from tvm.autotvm.tuner import GATuner  # isort: skip
from tvm.contrib import graph_executor  # isort: skip
from tvm.contrib.popen_pool import PopenPoolExecutor  # isort: skip

_BATCH = 4  # trials that a kill may lose
_POPULATION = 16  # of the genetic tuner: small, since a task gets tens of trials, not thousands
_SECONDS = 10.0  # to build and time a schedule

_workloads: Memo[dict[str, Workload | None]] = Memo(8)


def tunable(tuned: Function, target: str, profiled: Profiled | None) -> Tunable:
    """The kernels of one function of a program; see `engine.server.backend.Backend`."""
    options = BuildOptions(target)
    function = runtime.prepared(tuned.program, tuned.program.mod[tuned.name], options)
    calls: list[templates.Operator | None]
    if profiled is not None:
        groups = profiled.groups
        found = None if groups is None else templates.matched(groups, function, options)
        if found is None:
            message = "TVM's build changes this program so that its kernels cannot be identified."
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
    return Tunable(tuple(w for w in known.values() if w is not None), tuple(keys), profiled)


@contextmanager
def tuner(target: str, threads: int) -> "Iterator[RelayTuner]":
    """See `engine.server.backend.Backend`."""
    pool = PopenPoolExecutor(1, _SECONDS)  # its process ends with it
    yield RelayTuner(pool, target, threads)


class NoBuild(Builder):
    """AutoTVM's builder, which does nothing: `AloneRunner` builds and runs."""

    def build(self, measure_inputs: Any) -> Any:
        return measure_inputs


class AloneRunner(Runner):
    """AutoTVM's runner, while no other engine works; AutoTVM's own needs a network and a linker."""

    def __init__(self, pool: PopenPoolExecutor, target: str, threads: int) -> None:
        super().__init__(_SECONDS, 1)
        self._pool, self._place = pool, (target, threads)

    def get_build_kwargs(self) -> dict[str, Any]:
        return {}

    def run(self, measure_inputs: Any, build_results: Any) -> Any:
        """Times of the given schedules; one that fails, hangs or crashes has none."""
        with alone():
            return [self._timed(wanted) for wanted in measure_inputs]

    def _timed(self, wanted: Any) -> Any:
        try:
            costs = (self._pool.submit(trial.timed, wanted, *self._place).result(),)
        except Exception as wrong:
            return MeasureResult(("", wrong), MeasureErrorNo.UNKNOWN_ERROR, 0.0, 0.0)
        return MeasureResult(costs, MeasureErrorNo.NO_ERROR, 0.0, 0.0)


class RelayTuner:
    """See `engine.measure.tuner.Tuner`."""

    def __init__(self, pool: PopenPoolExecutor, target: str, threads: int) -> None:
        self.notes: tuple[str, ...] = ()
        self._pool, self._target, self._threads = pool, target, threads

    def before(self, workload: Workload, place: Path) -> tuple[float, float | None] | None:
        """Time an operator, built as a program without records and with its best one, in turns."""
        try:
            return self._duel(workload.program, best_record(place))
        except Exception as wrong:  # whatever TVM makes of the operator
            why = lines_of(wrong)[-1][:200]
            self.notes += (f"{workload.name} could not be timed without records: {why}",)
            return None

    def _duel(self, task: templates.Operator, record: str | None) -> tuple[float, float | None]:
        program = RelayProgram(task.module, {}, (), 1)
        function, options = program.main, BuildOptions(self._target)
        drawn = {n: trial.values(kind) for n, kind in runtime.arguments_of(function).items()}
        constants = {n: drawn.pop(n) for n in task.constants}
        bound = tvm.relay.build_module.bind_params_by_name(function, constants)
        bound = tvm.relay.transform.InferType()(tvm.IRModule({"main": bound}))["main"]
        prepared = runtime.prepared(program, bound, options)
        built, timers = [runtime.make(prepared, options)], []
        if record is not None:
            with autotvm.apply_history_best([autotvm.record.decode(record)]):
                built.append(runtime.make(prepared, options))
        kind = str(parse(self._target).kind).replace("llvm", "cpu")
        device = tvm.device(kind, gpu_index(self._target))
        with alone():
            for library in built:
                executor = graph_executor.GraphModule(library["default"](device))
                for name, value in drawn.items():
                    executor.set_input(name, value)
                timed = {"number": 1, "repeat": 1, "min_repeat_ms": trial.LEAST_MS}
                timers.append(executor.module.time_evaluator("run", device, **timed))
            return in_turns(timers)

    def search(self, workload: Workload, place: Path, trials: int, report: Report) -> None:
        """Measure configurations of a kernel's templates, which share the trials."""
        task: templates.Operator = workload.program
        target = parse(self._target)
        named = bool(library(self._target, LIBRARIES))
        if not (place / records.OPERATOR).exists():
            about = json.dumps({"constants": task.constants, "library": named})
            records.append(place / records.OPERATOR, about + "\n")

        def keep(tuner: Any, inputs: Any, results: Any) -> None:
            found = []
            for asked, result in zip(inputs, results, strict=True):
                name = f"{asked.task.name} {asked.config.index}"
                if result.error_no:
                    found.append(MeasuredSchedule(name, None, lines_of(result.costs[-1])[-1][:200]))
                    continue
                records.append(place / records.AUTOTVM, autotvm.record.encode(asked, result) + "\n")
                found.append(MeasuredSchedule(name, 1e3 * statistics.median(result.costs)))
            report(tuple(found))

        for index, (name, arguments) in enumerate(task.choices):
            count = (trials + index) // len(task.choices)
            runner = AloneRunner(self._pool, self._target, self._threads)
            measures = NoBuild(_SECONDS, _BATCH), runner
            tuner = GATuner(autotvm.task.create(name, arguments, target=target), _POPULATION)
            _inherit(tuner, place)
            with spawning():
                tuner.tune(count, autotvm.measure_option(*measures), callbacks=[keep])


def _inherit(tuner: Any, place: Path) -> None:
    """Start from the fastest records on disk: the genetic tuner breeds from its elite."""
    lines = map(json.dumps, records.checked(place / records.AUTOTVM))
    kept = [(statistics.median(r.costs), i) for i, r in map(autotvm.record.decode, lines)]
    mine = {i.config.index: s for s, i in kept if i.task.name == tuner.task.name}
    for index, seconds in sorted(mine.items(), key=lambda item: item[1])[: tuner.elite_num]:
        tuner.elites.append(tuner.space.point2knob(index))
        tuner.elite_scores.append(tuner.task.flop / seconds)
