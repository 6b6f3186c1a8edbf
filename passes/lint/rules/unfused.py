"""A value goes from one kernel to the next by way of memory, though one could do both."""

from collections.abc import Collection, Iterator

from relascope.core.graph import Kind, Node
from relascope.core.operators import REDUCTIONS
from relascope.passes.cost import is_fusible, is_view
from relascope.passes.lint.subject import Finding, Subject

NAME = "unfused"
TITLE = "Unfused chains"
KERNELS = True


def find(subject: Subject) -> Iterator[Finding]:
    """A pointwise kernel whose result one other kernel alone reads, pointwise or to reduce it.

    What fusion has left apart no pass joins; that is told where it was measured, and no guess.
    """
    fused = any(
        sum(not is_view(subject.graph.by_id[i]) for i in k) > 1 for k in subject.kernels or ()
    )
    if fused and subject.measured is None:
        return
    for index, nodes in enumerate(subject.kernels or ()):
        inside = [subject.graph.by_id[i] for i in nodes]
        if not inside or not all(map(_light, inside)):
            continue
        if any(subject.place[n.id] != {index} or n.id in subject.weights for n in inside):
            continue  # another kernel computes it too, or it is constant work
        last = inside[-1]
        found = _reader(subject, nodes)
        if found is not None:
            message = f"{last.title} and the {found.title} that reads it are two kernels."
            remedy = "" if fused else subject.remedy("unfused")
            advice = "TVM's fusion leaves them apart." if fused else ""
            yield subject.finding([last.id, found.id], message, remedy, nodes, advice)


def _light(node: Node) -> bool:
    return is_view(node) or is_fusible(node)


def _reader(subject: Subject, nodes: Collection[str]) -> Node | None:
    """The first reader of a kernel's results, where one kernel has all of them and can take it."""
    graph, kernel = subject.graph, set(nodes)
    todo = [r for i in kernel for r in graph.readers[i] if r not in kernel]
    if not todo or kernel & set(graph.outputs):
        return None
    readers: dict[str, None] = {}
    seen: set[str] = set()
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        node = graph.by_id[current]
        if current in subject.place:
            readers[current] = None
        elif current in graph.outputs or not (is_view(node) or node.kind is not Kind.CALL):
            return None  # returned, or read where nothing is known
        else:
            todo.extend(graph.readers[current])
    places = {p for r in readers for p in subject.place[r]}
    if len(places) != 1:
        return None
    (behind,) = places
    first = [n for n in graph.nodes if n.id in readers]
    if not all(_light(n) or n.op in REDUCTIONS for n in first):
        return None
    others = [graph.by_id[i] for i in (subject.kernels or ())[behind]]
    return first[0] if all(_light(n) or n.op in REDUCTIONS for n in others) else None
