"""Finds the first pass that makes a pipeline bad, in few tries, whatever the compiler.

A try switches the last optional passes off; required passes and those that they need stay on. The
search halves the range between good and bad; if a try cannot run, it takes one nearby."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from relascope.core.graph import reached
from relascope.passes.catalogue import info
from relascope.passes.pipeline import Pipeline

IMPORT = -1  # the imported program, in place of a step's index


class Verdict(Enum):
    """The result of a try."""

    GOOD = "good"
    BAD = "bad"
    CANNOT_RUN = "cannot be run"


@dataclass(frozen=True)
class Culprits:
    """Where a pipeline turns bad. `suspects` are indices of steps, or `IMPORT`: one, several if the
    tries between them cannot run, none if the pipeline is not bad. `bad` is the smallest bad try,
    up to the last suspect, and `good` the largest good one before the first, or None."""

    suspects: tuple[int, ...]
    bad: Pipeline | None = None
    good: Pipeline | None = None


Judge = Callable[[Pipeline], Verdict]


def search(pipeline: Pipeline, judge: Judge, kept: Collection[int] = ()) -> Culprits:
    """Find the first step that makes a pipeline bad. With n enabled steps, `judge` is called at
    most ceil(log2 n) + 2 times, and once more for each try that cannot run: for the pipeline, then
    for pipelines with steps switched off, and, if the kept steps alone are bad, for the first few
    of them. The result is a boundary, bad with the step and good without it; one of them, if there
    are several. Indices in `kept` stay on; see `kept_on`."""
    on = [i for i, step in enumerate(pipeline) if step.enabled]
    free, stay = [i for i in on if i not in kept], [i for i in on if i in kept]
    if judge(pipeline) is not Verdict.BAD:
        return Culprits(())

    def upto_free(count: int) -> Pipeline:
        return pipeline.switched(free[count:], False)

    if free:
        least = judge(upto_free(0))
        if least is not Verdict.BAD:
            low, high = nearest(0, len(free), lambda count: judge(upto_free(count)))
            if low or least is Verdict.GOOD:
                return Culprits(tuple(free[low:high]), upto_free(high), upto_free(low))
            # No try was good: any step before the first bad one may be the cause.
            return Culprits((IMPORT, *[i for i in on if i <= free[high - 1]]), upto_free(high))
    bare = upto_free(0)

    def upto_kept(count: int) -> Pipeline:
        return bare.upto(stay[count - 1] if count else -1)

    low, high = nearest(-1, len(stay), lambda count: judge(upto_kept(count)))
    suspects = (IMPORT, *stay)[low + 1 : high + 1]
    return Culprits(suspects, upto_kept(high), upto_kept(low) if low >= 0 else None)


def kept_on(ir: str, pipeline: Pipeline) -> frozenset[int]:
    """Indices of a pipeline's required steps, and of the nearest earlier ones that each needs."""

    def needed(index: int) -> Iterator[int]:
        for name in info(ir, pipeline.steps[index]).needs:
            steps = enumerate(pipeline.steps[:index])
            yield from [i for i, s in steps if s.enabled and s.name == name][-1:]

    required = (i for i, s in enumerate(pipeline) if s.enabled and info(ir, s).required)
    return frozenset(reached(required, needed))


def half_way(ir: str, pipeline: Pipeline, part: Pipeline) -> bool:
    """Whether a part ends between a required step and one that needs it (the root of the gradient
    without the gradient), where nothing can be compared."""
    done = {s.name for s in part if s.enabled}
    rest = [s for s in pipeline.steps[len(part) :] if s.enabled and info(ir, s).required]
    return any(name in done for step in rest for name in info(ir, step).needs)


def nearest(low: int, high: int, judge: Callable[[int], Verdict]) -> tuple[int, int]:
    """The nearest places, from `low` (not bad) and `high` (bad), with none between that can run."""
    dark: set[int] = set()  # cannot be run
    while untried := [i for i in range(low + 1, high) if i not in dark]:
        known = [low, high, *(i for i in dark if low < i < high)]
        # Farthest from all known places: the middle, as long as every try can run.
        place = max(untried, key=lambda i: min(abs(i - k) for k in known))
        verdict = judge(place)
        if verdict is Verdict.BAD:
            high = place
        elif verdict is Verdict.GOOD:
            low = place
        else:
            dark.add(place)
    return low, high
