"""Schedules of a kernel by TVM's MetaSchedule, measured batch by batch: a Relax `Tuner`.

MetaSchedule proposes schedules (Shao et al., "Tensor Program Optimization with Probabilistic
Programs", NeurIPS 2022): sketches of loops, whose sizes an evolutionary search chooses among those
that were measured, drawn at random, and changed. The loop around it is ours, so that each batch is
on disk before the next begins, and nothing is measured that was measured before. TVM's records are
kept as its `JSONDatabase` does, which can open a task's folder.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from relascope.engine.measure.tuner import MeasuredSchedule, Workload
from relascope.engine.protocol import records
from relascope.engine.relax.building.kernel_tasks import key_of
from relascope.engine.relax.building.records import recorded_workload, stored
from relascope.engine.relax.draw.to_graph import as_json

BATCH = 16
"""Schedules that are measured before they are written down, and the next are proposed."""

POPULATION, SAMPLED, GENERATIONS = 64, 24, 2
"""Schedules that the search breeds from, of them at least so many drawn at random, and how often it
changes them before it proposes a batch. Measurements alone say which are good, no learned model
does, so more of them would cost time (MetaSchedule's 512 take 8 to 24 s a batch) and tell nothing.
"""

_IDLE = 3
"""Batches in a row with nothing new after which there is taken to be nothing more."""

_INTRINSICS = "tvm.s_tir.tensor_intrin"


def tuning_target(target: Any, threads: int) -> Any:
    """TVM's target, which for a CPU says how many cores a kernel may be shared among."""
    options = dict(target.export())
    if str(target.kind.name) == "llvm":
        options["num-cores"] = threads
    return tvm.target.Target(options)


class ScheduleSearch(AbstractContextManager["ScheduleSearch"]):
    """See `engine.measure.tuner.Tuner`.

    Args:
        target: TVM's.
        threads: that kernels are to run with.
        measurer: builds and times kernels; closed with this.
        before: see `Tuner.before`; called with a workload and its folder.
        seed: of what is drawn at random; None draws that too.
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self, target: Any, threads: int, measurer: Any, before: Any, seed: int | None = None
    ) -> None:
        self._target, self._measurer = tuning_target(target, threads), measurer
        self._before, self._seed = before, seed

    def __exit__(self, *exc: object) -> None:
        self._measurer.close()

    def before(self, workload: Workload, place: Path) -> tuple[float, float | None] | None:
        """As it is built without records, and with its best record; see `measure.tuner.Tuner`."""
        return self._before(workload, place)

    def search(
        self, workload: Workload, place: Path, trials: int, known: Mapping[str, float | None]
    ) -> Iterator[tuple[MeasuredSchedule, ...]]:
        """Measure schedules; see `measure.tuner.Tuner`."""
        first = recorded_workload(place, workload.program.mod)
        database = ms.database.MemoryDatabase()
        committed = database.commit_workload(first.mod)
        for record in stored(place, committed):
            database.commit_tuning_record(record)
        context = self._context(workload, first.mod)
        spaces = context.generate_design_space()
        model = ms.cost_model.RandomModel()
        context.pre_tuning(1 << 30, BATCH, spaces, database, model)
        seen, idle = dict(known), 0
        while trials > 0 and idle < _IDLE:
            candidates = context.generate_measure_candidates()
            if not candidates:
                break
            names = [key_of(c.sch.mod) for c in candidates]
            new = {n: c for n, c in zip(names, candidates, strict=True) if n not in seen}
            new = dict(list(new.items())[:trials])
            idle = 0 if new else idle + 1
            mods = [c.sch.mod for c in new.values()]
            outcomes = self._measurer.measure(mods, workload.arguments)
            found = []
            for (name, candidate), (taken, error) in zip(new.items(), outcomes, strict=True):
                seen[name] = taken
                found.append(MeasuredSchedule(name, taken, error))
                if taken is not None:
                    about = [taken / 1e3], self._target, candidate.args_info
                    record = ms.database.TuningRecord(candidate.sch.trace, committed, *about)
                    database.commit_tuning_record(record)
                    store(place, committed, record)
            if found:
                trials -= len(found)
                yield tuple(found)
            results = [_result(seen.get(n)) for n in names]
            context.notify_runner_results(candidates, results)
            model.update(context, candidates, results)
        context.post_tuning()

    def _context(self, workload: Workload, mod: Any) -> Any:
        _load_intrinsics(self._target)
        sizes = {"population_size": POPULATION, "init_min_unmeasured": SAMPLED}
        return ms.TuneContext(
            mod,
            target=self._target,
            space_generator="post-order-apply",
            task_name=workload.name,
            search_strategy=ms.search_strategy.EvolutionarySearch(
                **sizes, genetic_num_iters=GENERATIONS
            ),
            num_threads=len(os.sched_getaffinity(0)),
            rand_state=-1 if self._seed is None else self._seed,
        )


def store(place: Path, workload: Any, record: Any) -> None:
    """Add a record of TVM's to a task's folder."""
    if next(records.checked(place / records.WORKLOAD), None) is None:
        records.append(place / records.WORKLOAD, json.dumps(as_json(workload.as_json())) + "\n")
    records.append(place / records.SCHEDULES, json.dumps([0, as_json(record.as_json())]) + "\n")


def _result(taken: float | None) -> Any:
    """What MetaSchedule is told of a schedule; one that was not measured counts as failed."""
    if taken is None:
        return ms.runner.RunnerResult(None, "It failed.")
    return ms.runner.RunnerResult([taken / 1e3], None)


def _load_intrinsics(target: Any) -> None:
    """Read the tensor instructions of this CPU's kind, and not first those of every GPU.

    MetaSchedule imports all of them, which takes half a minute; for a GPU that must be.
    """
    if str(target.kind.name) != "llvm" or _INTRINSICS in sys.modules:
        return
    package = ModuleType(_INTRINSICS)
    package.__path__ = [str(Path(tvm.__file__).parent / "s_tir" / "tensor_intrin")]
    sys.modules[_INTRINSICS] = package
    for name in ("x86", "arm_cpu") if "arm" in str(target.export()) else ("x86",):
        importlib.import_module(f"{_INTRINSICS}.{name}")
