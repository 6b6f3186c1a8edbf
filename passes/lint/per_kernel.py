"""Costs of a build's kernels that could be avoided."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from relascope.core.graph import Kind, Node
from relascope.core.operators import REDUCTIONS
from relascope.passes.cost import is_fusible, is_product, is_reduction, is_view
from relascope.passes.lint.subject import Finding, Subject, linter


@linter(
    "Unfused chains",
    "A value passes from one kernel to the next through memory, though one kernel could do both.",
    kernels=True,
)
def unfused(subject: Subject) -> Iterator[Finding]:
    """Pointwise kernels whose only reader is a pointwise or reducing kernel. No pass joins what
    fusion left separate, so it is reported only for measured kernels."""
    kernels = [[subject.graph.by_id[i] for i in nodes] for nodes in subject.kernels or ()]
    fused = any(sum(not is_view(n) for n in inside) > 1 for inside in kernels)
    if fused and subject.measured is None:
        return
    for index, inside in enumerate(kernels):
        # A pointwise kernel that alone computes its nodes, and is not constant work.
        own = (subject.place[n.id] == {index} and n.id not in subject.weights for n in inside)
        joins = inside and all(map(_light, inside)) and all(own)
        found = _reader(subject, inside) if joins else None
        if found is not None:
            last = inside[-1]
            message = f"{last.title} and the {found.title} that reads it are two kernels."
            remedy = "" if fused else subject.remedy("unfused")
            advice = "TVM's fusion keeps them separate." if fused else ""
            nodes = [n.id for n in inside]
            yield subject.finding([last.id, found.id], message, remedy, nodes, advice)


def _light(node: Node) -> bool:
    return is_view(node) or is_fusible(node)


def _reader(subject: Subject, inside: Sequence[Node]) -> Node | None:
    """The first reader of a kernel's results, if one kernel has all readers and can join it."""
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


MOST_BYTES = 16 * 1024  # any memory moves this much within the microsecond that a call takes
MOST_SECONDS = 5e-6
CALL = 1e-6  # seconds that an empty call takes
LEAST_SHARE = 0.05  # of the time of all kernels, or of their number if times are not known


@linter("Tiny kernels", "Calling a kernel takes longer than its work.", kernels=True)
def tiny(subject: Subject) -> Iterator[Finding]:
    """The tiny kernels together, if they matter to the whole; first those that a pass can join."""
    kernels = subject.kernels or []
    seconds = [taken for _, taken in subject.measured or ()] or [CALL] * len(kernels)
    joined = {p for f in unfused(subject) if f.remedy for p in subject.place[f.nodes[0]]}
    tiny = {k for k in range(len(kernels)) if seconds[k] <= MOST_SECONDS and _is_tiny(subject, k)}
    alone = "A larger batch gives them more work; on a GPU, CUDA graphs save most of a launch."
    for members, rule, advice in ((tiny & joined, "unfused", ""), (tiny - joined, "", alone)):
        group = sorted(members)
        taken = sum(map(seconds.__getitem__, group))
        if taken < LEAST_SHARE * (sum(seconds) or 1.0):
            continue
        nodes = chain.from_iterable(map(kernels.__getitem__, group))
        message = f"{len(group)} of {len(kernels)} kernels move at most 16 KiB each."
        found = subject.finding(nodes, message, subject.remedy(rule), advice=advice)
        yield replace(found, seconds=taken)


def _is_tiny(subject: Subject, index: int) -> bool:
    """Whether a kernel works in each call, but moves little data."""
    calls = {i for i in (subject.kernels or ())[index] if not is_view(subject.graph.by_id[i])}
    return not calls <= subject.weights and _border(subject, index) <= MOST_BYTES


def _border(subject: Subject, index: int) -> int:
    """Bytes that a kernel reads from others and writes for others."""
    graph, kernel = subject.graph, set((subject.kernels or ())[index])
    held = subject.work.bytes
    read = {e for i in kernel for e in graph.edges[i] if e not in kernel}
    wrote = {i for i in kernel if i in graph.outputs or not kernel.issuperset(graph.readers[i])}
    return sum(held[i] for i in read | wrote)


@linter("Computed again", "The backward recomputes something expensive.", kernels=True)
def recomputed(subject: Subject) -> Iterator[Finding]:
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
