"""A tensor is written out in another layout, and then in yet another, or back."""

from __future__ import annotations

from collections.abc import Iterator

from relascope.core.graph import Kind
from relascope.core.operators import LAYOUTS
from relascope.passes.lint.subject import Finding, Subject

NAME = "layouts"
TITLE = "Layout changes"


def find(subject: Subject) -> Iterator[Finding]:
    """A layout_transform of a layout_transform."""
    graph = subject.graph
    for node in graph.nodes:
        if node.kind is not Kind.CALL or node.op not in LAYOUTS or node.id not in subject.live:
            continue
        first = graph.by_id[node.edges[0]]
        if first.op not in LAYOUTS or subject.together(first.id, node.id):
            continue
        undone = first.attrs.get("src_layout") == node.attrs.get("dst_layout")
        only = graph.readers[first.id] == (node.id,)
        yield subject.finding(
            NAME,
            [node.id, first.id],
            "The second layout change undoes the first."
            if undone
            else "Two layout changes in a row could be one.",
            subject.remedy("layouts"),
            [first.id, node.id] if undone and only else [node.id],
        )
