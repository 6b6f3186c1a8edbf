"""The backward computes again what is expensive."""

from collections.abc import Iterator

from relascope.passes.cost import is_product, is_reduction
from relascope.passes.lint.subject import Finding, Subject

NAME = "recomputed"
TITLE = "Computed again"
KERNELS = True


def find(subject: Subject) -> Iterator[Finding]:
    """Products and reductions that kernels of both phases compute."""
    phases = subject.phases
    if phases is None:
        return
    for node in subject.graph.nodes:
        places = subject.place.get(node.id, frozenset())
        if len({phases[p] for p in places}) < 2 or not (is_product(node) or is_reduction(node)):
            continue
        advice = f"Save it: captures --save {node.id}, or choose another strategy."
        message = f"The backward computes this {node.title} again."
        yield subject.finding([node.id], message, "", advice=advice)
