"""A value goes from one kernel to the next by way of memory, though one could do both."""

from collections.abc import Iterator, Sequence

from relascope.core.graph import Kind, Node
from relascope.core.operators import REDUCTIONS
from relascope.passes.cost import is_fusible, is_view
from relascope.passes.lint.subject import Finding, Subject

NAME = "unfused"
TITLE = "Unfused chains"
KERNELS = True


def find(subject: Subject) -> Iterator[Finding]:
    """A pointwise kernel whose only reader is a pointwise or reducing kernel. No pass joins what
    fusion left apart, so it is reported where it was measured, not guessed."""
    kernels = [[subject.graph.by_id[i] for i in nodes] for nodes in subject.kernels or ()]
    fused = any(sum(not is_view(n) for n in inside) > 1 for inside in kernels)
    if fused and subject.measured is None:
        return
    for index, inside in enumerate(kernels):
        found = _reader(subject, inside) if inside and _joins(subject, index, inside) else None
        if found is not None:
            last = inside[-1]
            message = f"{last.title} and the {found.title} that reads it are two kernels."
            remedy = "" if fused else subject.remedy("unfused")
            advice = "TVM's fusion leaves them apart." if fused else ""
            nodes = [n.id for n in inside]
            yield subject.finding([last.id, found.id], message, remedy, nodes, advice)


def _joins(subject: Subject, index: int, inside: Sequence[Node]) -> bool:
    """Whether a kernel is pointwise, no other computes its nodes, and it is no constant work."""
    own = (subject.place[n.id] == {index} and n.id not in subject.weights for n in inside)
    return all(map(_light, inside)) and all(own)


def _light(node: Node) -> bool:
    return is_view(node) or is_fusible(node)


def _reader(subject: Subject, inside: Sequence[Node]) -> Node | None:
    """The first reader of a kernel's results, where one kernel has all of them and can take it."""
    graph, readers = subject.graph, _readers(subject, {n.id for n in inside})
    places = {p for r in readers for p in subject.place[r]}
    if len(places) != 1:
        return None
    first = [n for n in graph.nodes if n.id in readers]
    others = [graph.by_id[i] for i in (subject.kernels or ())[places.pop()]]
    return first[0] if all(_light(n) or n.op in REDUCTIONS for n in first + others) else None


def _readers(subject: Subject, kernel: set[str]) -> set[str]:
    """Ids of nodes of other kernels that read a kernel's results, through views; none if one is
    returned, or read by unknown kernels."""
    graph, found, seen = subject.graph, set[str](), set[str]()
    todo = [r for i in kernel for r in graph.readers[i] if r not in kernel]
    ends = set(graph.outputs)
    while todo:
        current = todo.pop()
        node = graph.by_id[current]
        if current in subject.place:
            found.add(current)
        elif current in ends or not (is_view(node) or node.kind is not Kind.CALL):
            return set()
        elif current not in seen:
            seen.add(current)
            todo.extend(graph.readers[current])
    return set() if kernel & ends else found
