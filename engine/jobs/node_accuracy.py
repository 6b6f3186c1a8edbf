"""How far each node of a step is from PyTorch: is it rounding, or is it wrong?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind
from relascope.engine.jobs import accuracy
from relascope.engine.protocol.accuracy import Comparison, NodeError
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import IMPORTED, PYTORCH
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import last_built
from relascope.passes.pipeline import Pipeline

SINGLE, DOUBLE = accuracy.DTYPES


@dataclass(frozen=True)
class Inside:
    """The nodes of a program against PyTorch's tensors. `dtype` is that of parameters and floating
    inputs: "float32" or "float64". `errors` are by node id, those without a counterpart left out,
    and `first` is where the error first jumps, None where all is within the limits. `results`
    compare the program's results with the model's, none between root_grad_out and the gradient;
    `against` is PyTorch, or a program that came without it."""

    dtype: str
    graph: Graph
    errors: Mapping[str, NodeError]
    first: accuracy.BadNode | None
    limit: accuracy.Limit
    results: tuple[Comparison, ...] = ()
    against: str = PYTORCH

    def ratio(self, ident: str) -> float | None:
        """A node's error divided by its limit: above 1 is over it; None without a counterpart."""
        error = self.errors.get(ident)
        return None if error is None else self.limit.ratio(error, error.counterpart)

    @property
    def over(self) -> tuple[str, ...]:
        """Ids of the nodes over their limits, in graph order."""
        return tuple(n.id for n in self.graph if (self.ratio(n.id) or 0.0) > 1)

    @property
    def wrong_results(self) -> tuple[Comparison, ...]:
        return tuple(filter(self.limit.over, self.results))

    @property
    def bad(self) -> bool:
        return bool(self.over or self.wrong_results)

    @property
    def in_doubt(self) -> bool:
        """Whether float64 would show if it is rounding, and is available."""
        single = self.dtype == SINGLE and self.against == PYTORCH
        return self.bad and single and not accuracy.in_steps(self.graph)

    @property
    def without(self) -> tuple[str, ...]:
        """Ids of the nodes that compute something and have no counterpart, in graph order."""
        computed = (Kind.CALL, Kind.FUNCTION)
        return tuple(n.id for n in self.graph if n.kind in computed and n.id not in self.errors)


def nodes_against(ask: Ask, source: ModelSource) -> str:
    """What the nodes of a model are compared with; a runtime gives no inner tensors."""
    return PYTORCH if ask("load", source).against == PYTORCH else IMPORTED


def look(
    ask: Ask,
    ir: str,
    source: ModelSource,
    pipeline: Pipeline,
    index: int,
    target: str,
    given: accuracy.Tolerance = accuracy.OURS,
) -> Inside:
    """Compare the nodes inside the program after a step, and its results. Raises EngineError where
    the program cannot be built, or does not run."""
    step = last_built(ir, pipeline.upto(index))
    upto = pipeline.upto(step)
    graph: Graph = ask("graph_after", source, upto, step)
    request = BuildRequest(source, upto, target)
    worst = accuracy.worst_by_node(ask("inside", request))
    limit = given.limit(source.dtype)
    try:
        results = ask("check", request)
    except EngineError as error:
        # Between root_grad_out and the gradient, a program returns something else.
        if error.kind not in ("pass", "type"):
            raise
        results = ()
    against = nodes_against(ask, source)
    found = Inside(source.dtype, graph, worst, None, limit, results, against)
    if not found.over:
        return found
    ahead = graph.ancestors(graph.outputs[: graph.forward_outputs])
    forward = any(i in ahead for i in found.over)
    return replace(found, first=accuracy.first_bad(graph, worst.values(), limit, forward))


def both(ask: Ask, ir: str, source: ModelSource, *about: Any) -> Iterator[Inside]:
    """The same in float32, and in float64 if something is over its limit; yields each as soon as it
    is done. The arguments are those of `look`. A source in float64, or a program that came without
    PyTorch, has one precision."""
    first = look(ask, ir, source, *about)
    yield first
    if first.in_doubt:
        yield look(ask, ir, replace(source, dtype=DOUBLE), *about)


def verdict(first: Inside, second: Inside | None = None) -> str:
    """Is it rounding, or is it wrong? In a sentence or two."""
    compared = len(first.errors)
    if not first.bad:
        if not compared:
            return f"No node has a counterpart in {first.against}, so none can be compared."
        nodes = f"All {compared} nodes" if compared > 1 else "The one node"
        verb = "are" if compared > 1 else "is"
        within = f"within the limit in {first.dtype}"
        return f"{nodes} with a counterpart in {first.against} {verb} {within}."
    found = f"{_count(first)} over the limit in {first.dtype}{_at(first)}"
    if not first.over:
        found += ", though all nodes are within it"
    if first.against != PYTORCH:
        return f"{found}. The program has one precision, so this may be rounding or a fault."
    double = first if first.dtype == DOUBLE else second
    if double is None:
        return f"{found}. Float64 would show whether it is rounding."
    if double is first:
        return f"It is wrong: {found}, where rounding plays no part."
    if double.bad:
        elsewhere = _at(double) if _at(double) != _at(first) else ""
        return f"It is wrong: {found}, and {_count(double)} in float64, too{elsewhere}."
    return f"It is rounding: {found}, and none in float64."


def _count(inside: Inside) -> str:
    if not inside.over:
        names = ", ".join(c.name for c in inside.wrong_results[:3]) or "nothing"
        return f"{names} {'are' if len(inside.wrong_results) > 1 else 'is'}"
    over = len(inside.over)
    return f"{over} of {len(inside.errors)} nodes are" if over > 1 else "one node is"


def _at(inside: Inside) -> str:
    return "" if inside.first is None else f", first {inside.first.title}{inside.first.within}"
