"""A tensor is written out in another layout, and then in yet another, or back."""

from collections.abc import Iterator

from relascope.core.operators import LAYOUTS
from relascope.passes.lint.subject import Finding, Subject

NAME = "layouts"
TITLE = "Layout changes"


def find(subject: Subject) -> Iterator[Finding]:
    """A layout_transform of a layout_transform."""
    graph = subject.graph
    for node in subject.calls(LAYOUTS):
        first = graph.by_id[node.edges[0]]
        if first.op not in LAYOUTS or subject.together(first.id, node.id):
            continue
        undone = first.attrs.get("src_layout") == node.attrs.get("dst_layout")
        only = graph.readers[first.id] == (node.id,)
        message = "Two layout changes in a row could be one."
        message = "The second layout change undoes the first." if undone else message
        spared = [first.id, node.id] if undone and only else [node.id]
        yield subject.finding([node.id, first.id], message, subject.remedy("layouts"), spared)
