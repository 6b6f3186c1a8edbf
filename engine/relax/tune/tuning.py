"""Tuning of Relax programs: their tasks, and what measures them."""

import os
import statistics
from collections import defaultdict
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.support import tar

from relascope.core.errors import EngineError
from relascope.engine.building.options import BuildOptions, Function, TuningRecords
from relascope.engine.measure import timing
from relascope.engine.measure.fleet import check, connected
from relascope.engine.measure.remote import refuse_library, threads_of, upload
from relascope.engine.measure.tuner import Tunable, Tuner, Workload
from relascope.engine.protocol.target_text import without
from relascope.engine.protocol.tuning import RECORDS, Fleet
from relascope.engine.relax.building import kernel_tasks, runtime
from relascope.engine.relax.building.profiled import Profiled
from relascope.engine.relax.building.records import best
from relascope.engine.relax.building.targets import LIBRARIES, SCHEDULES, parse
from relascope.engine.relax.kernels import openblas
from relascope.engine.relax.tune.search import ScheduleSearch
from relascope.engine.relax.tune.trial import SHORTEST_MS, values
from relascope.engine.relax.tune.workers import Workers, shapes

ROUNDS = 5
"""How often a kernel as built without records and its best record are timed in turn."""

MOST_BUILDERS = 8
"""Kernels that are built at a time, on as many cores; each process takes a second to start, and a
quarter of a gigabyte."""


def tunable(function: Function, target: str, watch: bool) -> Tunable:
    """The kernels of one function that can be tuned; see `engine.server.backend.Backend`."""
    text = without(target, (RECORDS,))
    made, name = parse(text), function.name
    mod = runtime.module_of(function.program, name, function.program.mod[name])
    found, calls = kernel_tasks.tasks_of(kernel_tasks.kernels(runtime.dispatched(mod, text), made))
    workloads = tuple(found.values())
    if not watch or not _is_here(made):
        keys = tuple(key for _, key in calls)
        return Tunable(workloads, keys, ((),) * len(keys), None)
    profiled = Profiled(function, text)
    sites = [site.name for site in profiled.kernels]
    return Tunable(
        workloads, tuple(_keys(sites, calls)), tuple(s.nodes for s in profiled.kernels), profiled
    )


def _keys(sites: list[str], calls: list[tuple[str, str | None]]) -> list[str | None]:
    """The task of each kernel that runs: calls in the same order, some of which became views."""
    keys: list[str | None] = []
    rest = iter(calls)
    for symbol in map(openblas.replaced, sites):
        keys.append(next((key for name, key in rest if name == symbol), None))
    return keys


def tuner(target: str, threads: int, fleet: Fleet | None) -> AbstractContextManager[Tuner]:
    """What measures schedules; see `engine.server.backend.Backend`."""
    text = without(target, (RECORDS,))
    made = parse(text)
    if fleet is not None:
        refuse_library(text, LIBRARIES)
        check(fleet)
    elif not _is_here(made):
        message = "What is built for this target cannot be measured here."
        hint = "Measure on a fleet: give its tracker and key."
        raise EngineError("target", message, target, hint)
    ours = SCHEDULES in text.split()
    builders = min(MOST_BUILDERS, len(os.sched_getaffinity(0)))
    measurer = Workers(made, ours, threads, builders, fleet)

    def before(workload: Workload, place: Path) -> tuple[float, float | None]:
        if fleet is None:
            return _duel(workload, text, place)
        return _duel_there(workload, text, place, fleet, threads)

    return ScheduleSearch(made, threads, measurer, before)


def _is_here(target: Any) -> bool:
    return bool(_device(target).exist)


def _device(target: Any) -> Any:
    kind = str(target.kind.name)
    return tvm.device("cpu" if kind == "llvm" else kind, 0)


def _duel(workload: Workload, target: str, place: Path) -> tuple[float, float | None]:
    """Milliseconds of a kernel as built without records, and with its best, timed in turn.

    Both run as they do in a program: called by the virtual machine, a library as such.
    """
    device = _device(parse(target))
    given = values(shapes(workload.arguments[: -workload.program.results]), device)
    runs = {}
    for name, executable in _contenders(workload, target, place).items():
        machine = relax.VirtualMachine(executable, device)
        runs[name] = lambda main=machine["main"]: main(*given)
    measured = timing.interleave(runs, ROUNDS, device.sync, lambda fraction, text: None)
    medians = {n: 1e3 * statistics.median(m.runs) for n, m in measured.items()}
    return medians["before"], medians.get("ours")


def _duel_there(
    workload: Workload, target: str, place: Path, fleet: Fleet, threads: int
) -> tuple[float, float | None]:
    """The same on a device of a fleet, by its clock."""
    built, options = _contenders(workload, target, place), {"number": 1, "repeat": 1}
    timed, taken = {}, defaultdict(list)
    with connected(fleet, lambda fraction, text: None) as session:
        threads_of(session, threads)
        device = session.device(_device(parse(target)).dlpack_device_type())
        given = values(shapes(workload.arguments[: -workload.program.results]), device)
        for name, executable in built.items():
            machine = relax.VirtualMachine(upload(session, executable, name, tar.tar), device)
            machine.set_input("main", *given)
            timed[name] = machine.time_evaluator(
                "invoke_stateful", device, **options, min_repeat_ms=SHORTEST_MS
            )
        for _ in range(ROUNDS):
            for name, run in timed.items():
                taken[name].append(1e3 * float(run("main").mean))
    medians = {n: statistics.median(t) for n, t in taken.items()}
    return medians["before"], medians.get("ours")


def _contenders(workload: Workload, target: str, place: Path) -> dict[str, Any]:
    """A kernel built as a program: "before" without records, "ours" with the best there is."""
    built = {"before": (kernel_tasks.alone(workload, True), BuildOptions(target))}
    if best(place, workload.program.mod) is not None:
        found = TuningRecords(place.parent, "", always=True)
        ours = BuildOptions(target, records=found)
        built["ours"] = (kernel_tasks.alone(workload, False), ours)
    return {name: runtime.make(mod, options) for name, (mod, options) in built.items()}
