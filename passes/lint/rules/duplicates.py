"""The same is computed more than once."""

import json
from collections.abc import Hashable, Iterator

from relascope.core.graph import Kind, Literal, Node
from relascope.passes.cost import is_random, is_view
from relascope.passes.lint.subject import Finding, Subject

NAME = "duplicates"
TITLE = "Duplicates"


def find(subject: Subject) -> Iterator[Finding]:
    """Calls of one operator on equal operands after the first, by value numbering (Cocke)."""
    numbers: dict[str, int] = {}
    first: dict[Hashable, str] = {}
    for node in subject.graph.nodes:
        key = _key(node, numbers)
        known = first.setdefault(key, node.id)
        numbers[node.id] = numbers.get(known, len(numbers))
        if known == node.id or node.kind is not Kind.CALL or not node.edges:
            continue
        if is_view(node) or node.id not in subject.live:
            continue
        message = f"{node.op} computes what is there already."
        remedy = _remedy(subject, node, subject.graph.by_id[known])
        yield subject.finding([node.id, known], message, remedy, [node.id])


def _remedy(subject: Subject, node: Node, known: Node) -> str:
    """Relay's cse takes two constants for different ones, whatever is in them."""
    pairs = zip(node.edges, known.edges, strict=True)
    apart = any(a != b and subject.graph.by_id[a].kind is Kind.CONSTANT for a, b in pairs)
    other = subject.remedy("duplicates of constants") if apart else ""
    return other or subject.remedy("duplicates")


def _key(node: Node, numbers: dict[str, int]) -> Hashable:
    if node.kind is Kind.CONSTANT and "digest" in node.attrs:
        return "constant", str(node.attrs["digest"]), node.outputs
    if node.kind in (Kind.CALL, Kind.TUPLE, Kind.ITEM) and not is_random(node):
        read = tuple(i.text if isinstance(i, Literal) else numbers[i] for i in node.inputs)
        attrs = json.dumps(node.attrs, sort_keys=True, default=str)
        return node.kind, node.op, attrs, read, node.outputs
    return node.id
