"""Time contenders against each other on one machine, fairly.

They run in turns, in short blocks; each round gives a ratio, and the median ratio counts. A rest
and an uncounted run precede each block, because thread pools keep spinning after work."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relascope.core import heap
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.times import TimeRow
from relascope.engine.turns import alone

_REST_SECONDS = 0.01
_BLOCK_SECONDS = 0.03
_BLOCK_RUNS = 20


Work = Callable[[], object]
Rounds = tuple[tuple[float, ...], ...]
"""Seconds of each run of one contender, round by round."""


@alone()
@heap.kept()
def interleave(
    contenders: Mapping[str, Work], repeats: int, wait: Work, progress: Progress, words: str = ""
) -> dict[str, Rounds]:
    """Time each contender in turns; `words` begin the progress messages. A contender does one run
    from start to end; `wait` is called after each, inside its time, and waits until the device has
    finished. `repeats` is the number of rounds, at least 1; a round has a block of each contender,
    of up to 20 runs, about 30 ms."""
    blocks = {name: _warm_up(run, wait) for name, run in contenders.items()}
    rounds: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
    for index in range(repeats):
        progress(index / repeats, f"{words}round {index + 1} of {repeats}")
        order = list(contenders)
        if index % 2:  # so that none always runs after the same neighbour
            order.reverse()
        for name in order:
            time.sleep(_REST_SECONDS)
            timed(contenders[name], wait)
            rounds[name].append(tuple(timed(contenders[name], wait) for _ in range(blocks[name])))
    return {name: tuple(r) for name, r in rounds.items()}


def ratio(ours: Rounds, baseline: Rounds) -> float:
    """The median of `ratios`: below 1, ours is faster."""
    return statistics.median(ratios(ours, baseline))


def ratios(ours: Rounds, baseline: Rounds) -> list[float]:
    """The median of our block over that of the rival's, in each round."""
    pairs = zip(ours, baseline, strict=True)
    return [statistics.median(a) / statistics.median(b) for a, b in pairs]


def row(
    what: str,
    phase: str,
    measured: Rounds,
    baseline: Rounds | None,
    max_abs_error: float | None,
    peak_bytes: int | None,
    **about: Any,
) -> TimeRow:
    """A row of the table; `baseline` is the eager run of the same rounds, None for eager itself."""
    runs = [1e3 * s for r in measured for s in r]
    q1, median, q3 = quartiles(runs)
    by_median = None
    if baseline is not None:
        about["ratio_q1"], by_median, about["ratio_q3"] = quartiles(ratios(measured, baseline))
        # Less disturbed than a median, but the best run may be luck.
        about["ratio_of_minima"] = min(map(min, measured)) / min(map(min, baseline))
    times = median, q1, q3, by_median
    return TimeRow(what, phase, *times, max_abs_error, peak_bytes, tuple(runs), **about)


def unsteady(rows: Sequence[TimeRow]) -> tuple[str, ...]:
    """A note if the same run takes very different times on this machine."""
    doubtful = "; ".join(f"{r.what}, {r.phase.replace('_', ' and ')}" for r in rows if not r.steady)
    said = f"The machine is busy: runs of one program differ widely ({doubtful})."
    advice = "Ratios of such runs mean little; time again when it is quiet."
    return (f"{said} {advice}",) if doubtful else ()


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile; a single value three times."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    q1, q2, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return q1, q2, q3


def _warm_up(run: Work, wait: Work) -> int:
    """Run until two in a row agree within 20 %, at most ten times. Returns the runs per block."""
    last = timed(run, wait)
    for _ in range(10):
        current = timed(run, wait)
        steady = abs(current - last) < 0.2 * last
        last = current
        if steady:
            break
    return max(1, min(_BLOCK_RUNS, round(_BLOCK_SECONDS / max(last, 1e-9))))


def timed(run: Work, wait: Work) -> float:
    began = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - began
