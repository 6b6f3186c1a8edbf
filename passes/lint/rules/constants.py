"""What depends on weights alone is computed in every call."""

from collections.abc import Iterator

from relascope.core.graph import Kind, Node, reached
from relascope.passes.cost import is_view
from relascope.passes.lint.subject import Finding, Subject

NAME = "constants"
TITLE = "Constant work"


def find(subject: Subject) -> Iterator[Finding]:
    """The last nodes of what weights and constants alone decide, each with what only it needs."""
    claimed: set[str] = set()
    for node in subject.graph.nodes:
        if not _is_last(subject, node):
            continue
        inside = [i for i in _behind(subject, node) if i not in claimed]
        claimed.update(inside)
        nodes = [subject.graph.by_id[i] for i in inside]
        if all(is_view(n) or (n.outputs[0].elements or 0) <= 1 for n in nodes):
            continue  # views, and single numbers, cost nothing
        names = [i.name for i in _weights(subject, inside)]
        what = ", ".join(names[:3]) + (" and more" if names[3:] else "")
        message = f"{what or 'A constant'}: this is computed of it in every call."
        remedy = subject.remedy("constant" if subject.fixed.issuperset(inside) else "weights")
        yield subject.finding([node.id, *inside], message, remedy, inside)


def _is_last(subject: Subject, node: Node) -> bool:
    """Whether weights decide a call that is needed, and not what reads it."""
    known, graph = subject.weights, subject.graph
    if not _works(node) or node.id not in known or node.id not in subject.live:
        return False
    return node.id in graph.outputs or not known.issuperset(graph.readers[node.id])


def _works(node: Node) -> bool:
    return node.kind is Kind.CALL and bool(node.edges)


def _behind(subject: Subject, node: Node) -> list[str]:
    """The calls that a node of weights alone is computed from, itself first."""
    edges, by_id = subject.graph.edges, subject.graph.by_id
    return list(reached([node.id], lambda i: (e for e in edges[i] if _works(by_id[e]))))


def _weights(subject: Subject, inside: list[str]) -> list[Node]:
    """The parameters that some nodes read."""
    read = dict.fromkeys(e for i in inside for e in subject.graph.edges[i])
    nodes = [subject.graph.by_id[e] for e in read]
    return [n for n in nodes if n.kind is Kind.PARAMETER]
