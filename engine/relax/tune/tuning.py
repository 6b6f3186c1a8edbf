"""Tuning of Relax programs: their tasks, and TVM's MetaSchedule, which measures them.

The loop, its builder and its runner are TVM's. Each batch's records are on disk before the next
begins, in the format of TVM's `JSONDatabase`, which can open a task's folder."""

import importlib
import json
import os
import statistics
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import tvm
from tvm import relax
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.support.popen_pool import PopenPoolExecutor, StatusKind

from relascope.core.errors import EngineError, lines_of
from relascope.core.place import with_import_root
from relascope.engine.building.options import BuildOptions, Function, TuningRecords
from relascope.engine.measure.tuner import (
    MeasuredSchedule,
    Report,
    Tunable,
    Tuner,
    Workload,
    in_turns,
)
from relascope.engine.protocol import records
from relascope.engine.relax.building import kernel_tasks, runtime
from relascope.engine.relax.building.apply_records import best, recorded_workload, stored
from relascope.engine.relax.building.kernel_tasks import key_of
from relascope.engine.relax.building.profiled import Profiled
from relascope.engine.relax.building.targets import SCHEDULES, parse
from relascope.engine.relax.draw.to_graph import as_json
from relascope.engine.relax.kernels import openblas
from relascope.engine.relax.tune import trial
from relascope.engine.turns import alone

BATCH = 16
"""Schedules to measure before they are stored and the next are proposed."""

POPULATION, SAMPLED, GENERATIONS = 64, 24, 2
"""The schedules that the search breeds from, how many of them at least are drawn at random, and how
often it changes them before it proposes a batch. Only measurements, no learned model, say which are
good, so more would cost time (MetaSchedule's 512 take 8 to 24 s a batch) and gain nothing."""

REPEATS, SHORTEST_MS = 3, 20
"""A measurement is the median of this many blocks of calls, each at least this long."""

BUILD_SECONDS, RUN_SECONDS = 30.0, 20.0
"""Limits for building a kernel, and for timing it."""

BUILDS = 200
"""Kernels after which a builder restarts, because LLVM keeps memory of everything it built."""

MOST_BUILDERS = 8
"""Kernels built at a time, on as many cores; each process takes a second to start, and 256 MiB."""

_INTRINSICS = "tvm.s_tir.tensor_intrin"


def tunable(function: Function, target: str, profiled: Profiled | None) -> Tunable:
    """The kernels of one function that can be tuned; see `engine.server.backend.Backend`."""
    name = function.name
    mod = runtime.module_of(function.program, name, function.program.mod[name])
    kernels = kernel_tasks.kernels(runtime.dispatched(mod, target), parse(target))
    found, calls = kernel_tasks.tasks_of(kernels)
    keys = [key for _, key in calls]
    if profiled is not None:
        keys = _keys([site.name for site in profiled.kernels], calls)
    return Tunable(tuple(found.values()), tuple(keys), profiled)


def _keys(sites: list[str], calls: list[tuple[str, str | None]]) -> list[str | None]:
    """The task of each kernel that runs. Calls have the same order; some became views."""
    rest = iter(calls)
    symbols = map(openblas.replaced, sites)
    return [next((key for name, key in rest if name == symbol), None) for symbol in symbols]


def tuner(target: str, threads: int) -> AbstractContextManager[Tuner]:
    """What measures schedules; see `engine.server.backend.Backend`."""
    return ScheduleSearch(target, threads, measures(target, threads))


class ScheduleSearch(AbstractContextManager["ScheduleSearch"]):
    """Schedules of a kernel by TVM's MetaSchedule: a `Tuner`.

    An evolutionary search chooses sizes of its sketches of loops (Shao et al., "Tensor Program
    Optimization with Probabilistic Programs", NeurIPS 2022).

    `target` is its text; kernels run with `threads`; `workers` are TVM's builder and runner, see
    `measures`. `seed` is for random draws; -1 draws the seed, too."""

    notes: tuple[str, ...] = ()

    def __init__(self, target: str, threads: int, workers: tuple[Any, Any], seed: int = -1) -> None:
        self._text, self._seed = target, seed
        made = parse(target)
        options = dict(made.export())
        if str(made.kind.name) == "llvm":  # among how many cores TVM may share a kernel
            options["num-cores"] = threads
        self._target = tvm.target.Target(options)
        self._processes = workers

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            process.pool.shutdown()

    def before(self, workload: Workload, place: Path) -> tuple[float, float | None]:
        """See `measure.tuner.Tuner`. Both run as in a program: on the virtual machine, with library
        calls."""
        built = [runtime.make(kernel_tasks.alone(workload, True), BuildOptions(self._text))]
        if best(place, workload.program.mod) is not None:
            own = BuildOptions(self._text, records=TuningRecords(place.parent, "", always=True))
            built.append(runtime.make(kernel_tasks.alone(workload, False), own))
        timers = []
        device = tvm.device(str(self._target.kind.name).replace("llvm", "cpu"), 0)
        read = workload.arguments[: -workload.program.results]
        kinds = [(tuple(int(d) for d in a.shape), a.dtype) for a in read]
        with alone():
            given = trial.values(kinds, device)
            for library in built:
                machine = relax.VirtualMachine(library, device)
                machine.set_input("main", *given)
                options = {"number": 1, "repeat": 1, "min_repeat_ms": SHORTEST_MS}
                timer = machine.time_evaluator("invoke_stateful", device, **options)
                timers.append(partial(timer, "main"))
            return in_turns(timers)

    def search(self, workload: Workload, place: Path, trials: int, report: Report) -> None:
        """Measure schedules; see `measure.tuner.Tuner`."""
        first = recorded_workload(place, workload.program.mod)
        database = ms.database.MemoryDatabase()
        committed = database.commit_workload(first.mod)
        for record in stored(place, committed):
            database.commit_tuning_record(record)
        faults: list[EngineError] = []

        def keep(candidates: Any, results: Any) -> None:
            found = []
            for candidate, result in zip(candidates, results, strict=True):
                name, error = key_of(candidate.sch.mod), str(result.error_msg or "")
                if error:
                    measured = MeasuredSchedule(name, None, lines_of(error)[-1][:200])
                else:
                    seconds = statistics.median(map(float, result.run_secs))
                    about = [seconds], self._target, candidate.args_info
                    record = ms.database.TuningRecord(candidate.sch.trace, committed, *about)
                    _store(place, committed, record)
                    measured = MeasuredSchedule(name, 1e3 * seconds)
                found.append(measured)
            report(tuple(found))

        _load_intrinsics(self._target)
        callbacks = ms.measure_callback
        builder, runner = self._processes
        try:
            ms.tune.tune_tasks(
                tasks=[self._context(workload, first.mod)],
                task_weights=[1.0],
                work_dir="",
                max_trials_global=trials,
                num_trials_per_iter=BATCH,
                builder=builder,
                runner=runner,
                database=database,
                cost_model="random",
                measure_callbacks=[
                    callbacks.AddToDatabase(),
                    callbacks.RemoveBuildArtifact(),
                    _Keeping(keep, faults),
                ],
                task_scheduler="round-robin",
            )
        except Exception:  # TVM's, without our message
            if faults:
                raise faults[0] from None
            raise

    def _context(self, workload: Workload, mod: Any) -> Any:
        strategy = ms.search_strategy.EvolutionarySearch(
            population_size=POPULATION, init_min_unmeasured=SAMPLED, genetic_num_iters=GENERATIONS
        )
        return ms.TuneContext(
            mod,
            target=self._target,
            space_generator="post-order-apply",
            task_name=workload.name,
            search_strategy=strategy,
            num_threads=len(os.sched_getaffinity(0)),
            rand_state=self._seed,
        )


@derived_object
class _Keeping(ms.measure_callback.PyMeasureCallback):
    """Passes measurements to `keep`, whose errors are in `faults`: TVM raises others."""

    def __init__(self, keep: Callable[[Any, Any], None], faults: list[EngineError]) -> None:
        super().__init__()
        self.keep, self.faults = keep, faults

    def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, results: Any) -> None:
        try:
            self.keep(candidates, results)
        except EngineError as wrong:
            self.faults.append(wrong)
            raise


@derived_object
class _Builder(ms.builder.PyBuilder):
    """Like TVM's `LocalBuilder`, but with processes that stay from batch to batch."""

    def __init__(self, build: Callable[[tuple[Any, Any]], str]) -> None:
        super().__init__()
        workers = min(MOST_BUILDERS, len(os.sched_getaffinity(0)))
        self.one, self.pool = build, PopenPoolExecutor(workers, BUILD_SECONDS, None, (), BUILDS)

    def build(self, inputs: Any) -> Any:
        found = self.pool.map_with_error_catching(self.one, [(i.mod, i.target) for i in inputs])
        return [
            ms.builder.BuilderResult(r.value, None)
            if r.status == StatusKind.COMPLETE
            else ms.builder.BuilderResult(None, lines_of(r.value)[-1])
            for r in found
        ]


@derived_object
class _AloneRunner(ms.runner.PyRunner):
    """TVM's runner, while no other engine works; others continue between batches."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.runner, self.pool = runner, runner.pool

    def run(self, inputs: Any) -> Any:
        with alone():
            return self.runner.run(inputs)


def measures(target: str, threads: int) -> tuple[Any, Any]:
    """TVM's builder and runner, whose processes can import this project."""
    os.environ["PYTHONPATH"] = with_import_root(os.environ.get("PYTHONPATH", ""))
    on_cpu = str(parse(target).kind.name) == "llvm"
    builder = _Builder(partial(trial.build, SCHEDULES in target.split(), on_cpu))
    timed = ms.runner.EvaluatorConfig(1, REPEATS, SHORTEST_MS)
    runner = ms.runner.LocalRunner(
        timeout_sec=RUN_SECONDS,
        evaluator_config=timed,
        f_alloc_argument=trial.arguments,
        initializer=partial(trial.start, threads),
    )
    return builder, _AloneRunner(runner)


def _store(place: Path, workload: Any, record: Any) -> None:
    if next(records.checked(place / records.WORKLOAD), None) is None:
        records.append(place / records.WORKLOAD, json.dumps(as_json(workload.as_json())) + "\n")
    records.append(place / records.SCHEDULES, json.dumps([0, as_json(record.as_json())]) + "\n")


def _load_intrinsics(target: Any) -> None:
    """Load tensor instructions only for this kind of CPU: MetaSchedule would load all, also for
    GPUs, which takes half a minute. For a GPU it must."""
    if str(target.kind.name) != "llvm" or _INTRINSICS in sys.modules:
        return
    package = ModuleType(_INTRINSICS)
    package.__path__ = [str(Path(tvm.__file__).parent / "s_tir" / "tensor_intrin")]
    sys.modules[_INTRINSICS] = package
    for name in ("x86", "arm_cpu") if "arm" in str(target.export()) else ("x86",):
        importlib.import_module(f"{_INTRINSICS}.{name}")
