"""Building and timing one schedule, in a process of its own: what TVM's workers are sent.

A schedule may take forever to compile, or crash when it runs. The process that does it is TVM's
`popen_worker`: it is ended and started anew where that happens. It measures here, or hands what it
built to a device of a fleet.
"""

import functools
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from relascope.engine.protocol.target_text import gpu_index, without
from relascope.engine.protocol.tuning import RECORDS, Fleet
from relascope.engine.relay.tvm.boot import boot

boot()

import tvm
from tvm import autotvm
from tvm.autotvm.measure import MeasureInput, measure_methods
from tvm.contrib import graph_executor, tar

from relascope.core.errors import lines_of
from relascope.core.graph import TensorType
from relascope.engine.building.options import BuildOptions
from relascope.engine.building.threads import set_threads
from relascope.engine.measure.fleet import connected
from relascope.engine.measure.remote import threads_of, upload
from relascope.engine.relay.building import runtime
from relascope.engine.relay.building.targets import parse
from relascope.passes.relay.ir.program import RelayProgram

_REPEATS = 3
_LEAST_MS = 20  # of one repeat: shorter ones are made of several runs
_ROUNDS = 5
_SESSION_SECONDS = 60  # after which a fleet's server ends what it was given to do


class CannotMeasure(Exception):
    """A schedule that does not build or run; says why in a few words."""


@dataclass(frozen=True)
class Place:
    """Where to run, and how.

    Args:
        target: its text.
        threads: of TVM's on the CPU.
        fleet: whose device; None for this machine's.
    """

    target: str
    threads: int
    fleet: Fleet | None


def template(name: str, arguments: tuple[Any, ...], index: int, place: Place) -> float:
    """Milliseconds of an AutoTVM task's operator with one of its configurations.

    Raises:
        CannotMeasure: it does not build or run.
    """
    set_threads(place.threads)
    task = _task(name, arguments, place.target)
    wanted = MeasureInput(task.target, task, task.config_space.get(index))
    with tempfile.TemporaryDirectory() as folder, _tuning():
        if place.fleet is not None:
            return _on_fleet(wanted, folder, place, place.fleet)
        module, kinds = measure_methods._build_func_common(wanted, checks=_limits(place.target))
    device = tvm.device(str(task.target.kind), gpu_index(place.target))
    timed = module.time_evaluator(
        module.entry_name, device, number=1, repeat=_REPEATS, min_repeat_ms=_LEAST_MS
    )
    arrays = [tvm.nd.array(_values(TensorType(*kind)), device) for kind in kinds]
    return 1e3 * float(statistics.median(timed(*arrays).results))


def alone(
    module: str, constants: tuple[str, ...], record: str | None, place: Place
) -> tuple[float, float | None]:
    """Milliseconds of an operator built as a program without records, and with one, in turns.

    Args:
        module: as JSON, with a function that calls it.
        constants: names of the arguments that the program has as constants.
        record: a line of AutoTVM's; None where there is none.
    """
    set_threads(place.threads)
    program = RelayProgram(tvm.ir.load_json(module), {}, (), 1)
    function = program.main
    kinds = runtime.arguments_of(function)
    drawn = {name: _values(kinds[name]) for name in kinds}
    options = BuildOptions(without(place.target, (RECORDS,)))
    bound = tvm.relay.build_module.bind_params_by_name(function, {n: drawn[n] for n in constants})
    bound = tvm.relay.transform.InferType()(tvm.IRModule({"main": bound}))["main"]
    prepared = runtime.prepared(program, bound, options)
    libraries = [runtime.make(prepared, options)]
    if record is not None:
        with autotvm.apply_history_best([autotvm.record.decode(record)]):
            libraries.append(runtime.make(prepared, options))
    given = {n: v for n, v in drawn.items() if n not in constants}
    with _loaded(libraries, place) as (loaded, device):
        runs = [_whole(each["default"](device), given, device) for each in loaded]
        rounds = [[1e3 * float(run().mean) for run in runs] for _ in range(_ROUNDS)]
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    return medians[0], medians[1] if len(medians) > 1 else None


@functools.lru_cache(64)
def _task(name: str, arguments: tuple[Any, ...], target: str) -> Any:
    return autotvm.task.create(name, arguments, target=parse(target))


@contextmanager
def _tuning() -> Iterator[None]:
    """Templates leave out what the build does ahead of time, such as packing a constant."""
    autotvm.GLOBAL_SCOPE.in_tuning = True
    try:
        yield
    except CannotMeasure:
        raise
    except Exception as wrong:
        raise CannotMeasure(lines_of(wrong)[-1][:200]) from wrong
    finally:
        autotvm.GLOBAL_SCOPE.in_tuning = False


def _limits(target: str) -> dict[str, Any]:
    """What a GPU's kernel must keep to; TVM checks that before it runs one."""
    made = parse(target)
    if "gpu" not in made.keys:
        return {}
    device = tvm.device(str(made.kind), gpu_index(target))
    named = ("max_shared_memory_per_block", "max_threads_per_block")
    limits = {name: getattr(device, name) for name in named}
    axes = zip("xyz", device.max_thread_dimensions, strict=True)
    return {"gpu": limits | {f"max_thread_{axis}": most for axis, most in axes}}


def _on_fleet(wanted: Any, folder: str, place: Place, fleet: Fleet) -> float:
    built = measure_methods._WrappedBuildFunc(tar.tar)(wanted, folder)
    if built.error is not None:
        raise CannotMeasure(lines_of(built.error[1])[-1][:200])
    server = {"device_key": fleet.key, "host": fleet.host, "port": fleet.port}
    server["timeout"] = _SESSION_SECONDS

    def threads(remote: Any, build: Any) -> None:
        remote.get_function("runtime.config_threadpool")(0, place.threads)

    loader, how = measure_methods.default_module_loader(threads), (1, _REPEATS, _LEAST_MS, 0.0)
    result = measure_methods.run_through_rpc(
        wanted, built, *how, server, None, module_loader=loader
    )
    if result.error_no:
        raise CannotMeasure(lines_of(result.costs[1])[-1][:200])
    return 1e3 * float(statistics.median(result.costs))


@contextmanager
def _loaded(libraries: list[Any], place: Place) -> Iterator[tuple[list[Any], Any]]:
    """Libraries where they are to run, and the device there."""
    kind = str(parse(place.target).kind)
    if place.fleet is None:
        yield libraries, tvm.device(kind, gpu_index(place.target))
        return
    with connected(place.fleet, lambda fraction, text: None) as session:
        threads_of(session, place.threads)
        there = [upload(session, x, f"alone{k}", tar.tar) for k, x in enumerate(libraries)]
        yield there, session.device(kind, gpu_index(place.target))


def _whole(module: Any, given: dict[str, Any], device: Any) -> Any:
    """A run of all kernels of a library, to be timed."""
    executor = graph_executor.GraphModule(module)
    for name, value in given.items():
        executor.set_input(name, value)
    return functools.partial(
        executor.module.time_evaluator("run", device, number=1, repeat=1, min_repeat_ms=_LEAST_MS)
    )


def _values(kind: TensorType) -> np.ndarray:
    shape = [int(d) for d in kind.shape]
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(kind.dtype)
