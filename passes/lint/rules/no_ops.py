"""A sum with zeros, a product with ones, and the like."""

from collections.abc import Iterator

from relascope.core.graph import Kind, Literal, Node
from relascope.core.operators import BROADCASTS, FACTORS, ONES, RESHAPES, SUMS, TRANSPOSES, ZEROS
from relascope.passes.lint.subject import Finding, Subject, axes_of, is_transpose

NAME = "no_ops"
TITLE = "Operators that change nothing"


def find(subject: Subject) -> Iterator[Finding]:
    """x + 0, x * 1, and transposes that leave the axes in order."""
    for node in subject.calls(TRANSPOSES | SUMS | FACTORS):
        if is_transpose(node) and axes_of(node) == tuple(range(len(axes_of(node)))):
            what, message = "idle transpose", "This transpose leaves the axes in order."
        elif node.op in SUMS and _leaves(subject, node, 0.0, ZEROS):
            what, message = "zeros", "This adds zeros."
        elif node.op in FACTORS and _leaves(subject, node, 1.0, ONES):
            what, message = "ones", "This multiplies by ones."
        else:
            continue
        yield subject.finding([node.id], message, subject.remedy(what))


def _leaves(subject: Subject, node: Node, number: float, filled: frozenset[str]) -> bool:
    """Whether an operand is this number alone and the other one has the shape of the result."""
    for place, given in enumerate(node.inputs[:2]):
        other = node.inputs[1 - place] if len(node.inputs) > 1 else given
        if place == 0 and node.op in ("subtract", "divide"):
            continue
        if not isinstance(other, str):
            continue
        if subject.graph.by_id[other].outputs[:1] == node.outputs[:1] and _is(
            subject, given, number, filled
        ):
            return True
    return False


def _is(subject: Subject, given: str | Literal, number: float, filled: frozenset[str]) -> bool:
    if isinstance(given, Literal):
        return _number(given.text) == number
    node = subject.graph.by_id[given]
    while node.op in RESHAPES | BROADCASTS and node.edges:
        node = subject.graph.by_id[node.edges[0]]
    if node.kind is Kind.CONSTANT:
        return _number(str(node.attrs.get("value", ""))) == number
    return node.op in filled


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
