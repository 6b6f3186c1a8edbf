"""From a source and a pipeline to the joint graph that capture strategies cut; cuts measured."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.protocol.profile import Profile
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import TimeResult, TimeRow
from relascope.passes.cost import MeasuredKernels
from relascope.passes.cuts.cut import Cut, cut
from relascope.passes.cuts.joint import Joint, MeasuredPeaks
from relascope.passes.pipeline import Pipeline

BASE = "keep_all"
"""The strategy that recomputes nothing: the others' work is compared with its."""

_WHOLE = "forward_backward"


def joint_of(
    ask: Ask,
    source: ModelSource,
    pipeline: Pipeline,
    measured: MeasuredKernels | None = None,
    copied: float | None = None,
) -> Joint:
    """The joint graph at a pipeline's end, with the nodes of each kernel. `measured` has kernels'
    times, and `copied` the bytes a second of a copy to the host, from `forward_times`; without
    them, work is estimated. Raises EngineError as `joint_graph` does."""
    kernels = ask("kernels", source, pipeline)
    return Joint(joint_graph(ask, source, pipeline), kernels, measured, copied)


def with_cut(
    ask: Ask, request: BuildRequest, choose: Callable[[Joint], Cut] = cut, required: bool = True
) -> BuildRequest:
    """The request; for training, split where `choose` says. Raises EngineError as
    `joint_graph` does, unless no cut is `required`, and what `choose` raises."""
    program = request.source, request.pipeline
    if not request.source.training or not (required or _at_end(ask, *program).forward_outputs):
        return request
    return request.split_at(choose(joint_of(ask, *program)).marked)


def _at_end(ask: Ask, source: ModelSource, pipeline: Pipeline) -> Graph:
    graph: Graph = ask("graph_after", source, pipeline, len(pipeline) - 1, True)
    return graph


def joint_graph(ask: Ask, source: ModelSource, pipeline: Pipeline) -> Graph:
    """The graph at a pipeline's end. Raises EngineError of kind "usage" where the pipeline takes no
    gradient, and what the session raises."""
    graph = _at_end(ask, source, pipeline)
    if graph.forward_outputs is None:
        message = "There is nothing to cut: the pipeline takes no gradient."
        hint = "Use the default training pipeline, or add the gradient step."
        raise EngineError("usage", message, str(pipeline), hint)
    return graph


def forward_times(
    ask: Ask, request: BuildRequest
) -> tuple[tuple[tuple[tuple[str, ...], float], ...], float | None]:
    """Seconds of each kernel of the forward, with its nodes, when nothing is saved, so that the
    compiler fuses freely; and bytes a second of a copy to the host. Kernels without nodes of the
    graph are left out."""
    profile: Profile = ask("profile", request.split_at(()))
    ahead = (k for k in profile.kernels if k.phase == "forward" and k.nodes)
    times = tuple((k.nodes, 1e-3 * k.median_ms) for k in ahead)
    return times, profile.peaks.copy if profile.peaks else None


@dataclass(frozen=True)
class Point:
    """A cut, with its estimates and measurements. `bytes` counts captures and dropout masks, as
    `passes.cuts.cut.Cut.bytes` does. `share` is the estimated time beyond that of `BASE`, as a
    fraction of its forward, below 0 if it moves fewer bytes, and `measured_share` the same,
    measured. `ratio` is forward and backward to PyTorch eager's, in turns. For
    `estimated_peak_bytes` see `passes.cuts.lifetimes`; `peak_bytes` is the most memory that a step
    takes, None where unknown. `max_abs_error` is of outputs and gradients, against PyTorch's."""

    title: str
    captures: int
    bytes: int | None
    share: float
    measured_share: float
    forward_ms: float
    forward_backward_ms: float
    ratio: float
    estimated_peak_bytes: int
    peak_bytes: int | None
    max_abs_error: float


def measure_cuts(
    ask: Ask,
    request: BuildRequest,
    cuts: Iterable[tuple[str, Cut]],
    tell: Callable[[Point], None] = lambda one: None,
) -> tuple[Point, ...]:
    """Build, check and time the split at each cut, and `BASE` first. `cuts` are pairs of a title
    and a cut, all of one joint graph. Raises EngineError for the first cut that fails."""
    points: list[Point] = []
    times: dict[tuple[str, ...], TimeResult] = {}  # two strategies may make the same cut

    def timed(ids: tuple[str, ...]) -> TimeResult:
        if ids not in times:
            times[ids] = ask("time", request.split_at(ids))
        return times[ids]

    for title, one in cuts:
        base, mine = timed(cut(one.joint, BASE).ids), timed(one.marked)
        eager = next(r for r in base.rows if r.ratio_to_eager is None and r.phase == _WHOLE)
        # From ratios, so that a slower machine between two timings does not count for the cut.
        more = (_ratio(mine) - _ratio(base)) * eager.median_ms
        shares = one.net_share, more / _ours(base, "forward").median_ms
        took = _ours(mine, "forward").median_ms, _ours(mine, _WHOLE).median_ms, _ratio(mine)
        peaks = one.peak_bytes, _ours(mine, _WHOLE).peak_bytes
        error = max(c.max_abs for c in mine.comparisons)
        points.append(Point(title, len(one.ids), one.bytes, *shares, *took, *peaks, error))
        tell(points[-1])
    return tuple(points)


def measured_peaks(request: BuildRequest, times: Iterable[tuple[Any, ...]]) -> MeasuredPeaks:
    """The peaks of timings (a request, perhaps more, and the result) with other captures only."""
    return {
        of.captures: row.peak_bytes
        for of, *_, result in times
        for row in reversed(result.rows)  # so that ours, before the baselines, counts
        if row.phase == _WHOLE and row.ratio_to_eager is not None
        if replace(request, repeats=of.repeats).split_at(of.captures) == of
    }


def _ours(result: TimeResult, phase: str) -> TimeRow:
    return next(r for r in result.rows if r.ratio_to_eager is not None and r.phase == phase)


def _ratio(result: TimeResult) -> float:
    ratio = _ours(result, _WHOLE).ratio_to_eager
    assert ratio is not None
    return ratio
