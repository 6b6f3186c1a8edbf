"""No result needs it."""

from collections.abc import Iterator

from relascope.core.graph import Kind
from relascope.passes.lint.subject import Finding, Subject

NAME = "dead"
TITLE = "Dead code"


def find(subject: Subject) -> Iterator[Finding]:
    """The last calls of each dead part, with all of it as their cost."""
    graph, claimed = subject.graph, set(subject.live)
    for node in reversed(graph.nodes):
        if node.kind is not Kind.CALL or node.id in claimed or graph.readers[node.id]:
            continue
        part = [i for i in graph.ancestors([node.id]) if i not in claimed]
        claimed.update(part)
        calls = [i for i in part if graph.by_id[i].kind is Kind.CALL]
        message = f"No result needs this {node.op}."
        yield subject.finding([node.id, *calls], message, subject.remedy("dead"))
