"""Time a program's passes and its build, in turns with a constant amount of work."""

import io
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from typing import Any

from relascope.engine.protocol.session import Progress
from relascope.engine.turns import alone
from relascope.passes.catalogue import PassInfo
from relascope.passes.pipeline import Step

_LEAST = 2  # rounds
_YARDSTICKS = 3  # a round

Times = tuple[float, ...]


@alone()
def measure(
    start: Any,
    passes: Sequence[tuple[int, PassInfo, Step]],
    build: Callable[[], object],
    rounds: int,
    seconds: float,
    progress: Progress,
) -> tuple[tuple[tuple[int, Times], ...], Times, Times]:
    """Run the passes one after the other, then the build, in rounds, as in
    `engine.server.builds.Builds.compile_times`; all of them have run once before."""
    began = time.perf_counter()
    taken: dict[int, list[float]] = {index: [] for index, _, _ in passes}
    builds: list[float] = []
    yardstick: list[float] = []
    for number in range(max(rounds, _LEAST)):
        if number >= _LEAST and time.perf_counter() - began > seconds:
            break
        progress(number / rounds, f"timing passes and build, round {number + 1}")
        yardstick += (_timed(_same_work) for _ in range(_YARDSTICKS))
        for index, spent in _passes(start, passes):
            taken[index].append(spent)
        builds.append(_timed(build))
    return tuple((i, tuple(t)) for i, t in taken.items()), tuple(builds), tuple(yardstick)


def _passes(start: Any, steps: Sequence[tuple[int, PassInfo, Step]]) -> Iterable[tuple[int, float]]:
    program = shown = start
    for index, entry, step in steps:
        before = shown if entry.looking else program
        began = _clock()
        with redirect_stdout(io.StringIO()):
            shown = entry.applied(before, step)
        yield index, _clock() - began
        if not entry.looking:
            program = shown


def _timed(work: Callable[[], object]) -> float:
    began = _clock()
    work()
    return _clock() - began


def _clock() -> float:
    """Seconds, without those in which this thread waited for a processor."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            waited = 1e-9 * int(file.read().split()[1])
    except (OSError, IndexError, ValueError):  # not Linux, or without these statistics
        waited = 0.0
    return time.perf_counter() - waited


def _same_work() -> dict[int, int]:
    """Some milliseconds of what passes do most: Python's calls, tables and small objects."""
    table: dict[int, int] = {}
    for number in range(50_000):
        key = number * 7919 % 4093
        table[key] = table.get(key, 0) + number
    return table
