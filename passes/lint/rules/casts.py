"""A tensor is written out in another type for nothing, or the program computes in float64 though
the model does not."""

from collections.abc import Iterator

from relascope.core.graph import Kind, Node
from relascope.core.operators import CASTS
from relascope.passes.lint.subject import Finding, Subject

NAME = "casts"
TITLE = "Casts"


def find(subject: Subject) -> Iterator[Finding]:
    """Casts of casts, casts to the own type, and what computes in a wider type than the model."""
    graph = subject.graph
    for node in subject.calls(CASTS):
        source = graph.by_id[node.edges[0]]
        if _dtype(source) == _dtype(node):
            message = f"It is cast to {_dtype(node)}, which it is."
            yield subject.finding([node.id], message, subject.remedy("idle cast"))
        elif source.op in CASTS and not subject.together(source.id, node.id):
            yield from _twice(subject, source, node)
    if "float64" not in (t.dtype for i in graph.inputs for t in graph.by_id[i].outputs):
        yield from _wide(subject)


def _twice(subject: Subject, first: Node, second: Node) -> Iterator[Finding]:
    graph = subject.graph
    before = _dtype(graph.by_id[first.edges[0]])
    back = before == _dtype(second)
    words = f"{before} to {_dtype(first)} to {_dtype(second)}"
    message = f"Two casts in a row, {words}" + (", are back where they began." if back else ".")
    spared = [first.id, second.id] if graph.readers[first.id] == (second.id,) else [second.id]
    remedy = subject.remedy("cast of cast")
    yield subject.finding([second.id, first.id], message, remedy, spared)


def _dtype(node: Node) -> str:
    return node.outputs[0].dtype if node.outputs else ""


def _wide(subject: Subject) -> Iterator[Finding]:
    """Where a tensor first is float64, if it is more than one number."""
    graph = subject.graph
    for node in graph.nodes:
        if node.kind is not Kind.CALL or node.id not in subject.live or node.id in subject.fixed:
            continue
        if _dtype(node) != "float64" or (node.outputs[0].elements or 0) < 2:
            continue
        read = [graph.by_id[e] for e in node.edges]
        if any(_dtype(r) == "float64" and r.id not in subject.fixed for r in read):
            continue  # it began before
        message = "From here on it computes in float64, though the model's arguments are narrower."
        advice = "Cast in the model, where its float64 value comes from."
        yield subject.finding([node.id], message, "", advice=advice)
