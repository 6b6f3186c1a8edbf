"""A program as linters see it: which nodes share a kernel, depend on weights, and cost how much."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from relascope.core.graph import Graph, Kind, Node
from relascope.core.operators import TRANSPOSES
from relascope.passes.cost import Kernels, MeasuredKernels, Work, is_view
from relascope.passes.lint.remedies import REMEDIES


@dataclass(frozen=True)
class Finding:
    """One hazard. `hazard` names the linter; `nodes` are ids of its nodes, the one to look at
    first. `remedy` are the passes that remove it, as in a pipeline's text, or ""; `advice` says
    what else helps, or what the remedy depends on, or "". `bytes` are moved needlessly; `seconds`
    are its cost, if `measured` the nodes' part of measured kernels."""

    hazard: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    scope: str
    message: str
    remedy: str
    advice: str
    bytes: int
    seconds: float
    measured: bool


@dataclass
class Subject:
    """See the module; the arguments are those of `passes.lint.lint`."""

    graph: Graph
    kernels: Kernels | None = None
    measured: MeasuredKernels | None = None
    target: str = ""
    phases: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.kernels is None and self.measured is not None:
            self.kernels = [nodes for nodes, _ in self.measured]
        self.work = Work(self.graph, kernels=self.kernels, measured=self.measured)
        self.reads_turned = "-libs=" in self.target
        """Whether a BLAS computes products, which reads a matrix transposed or not."""

    @cached_property
    def place(self) -> dict[str, frozenset[int]]:
        """For each node of a kernel, the places of the kernels that compute it."""
        found: dict[str, set[int]] = {}
        for index, nodes in enumerate(self.kernels or ()):
            for node_id in nodes:
                found.setdefault(node_id, set()).add(index)
        return {i: frozenset(places) for i, places in found.items()}

    @cached_property
    def live(self) -> set[str]:
        """Ids of nodes that some result needs."""
        return self.graph.ancestors(self.graph.outputs)

    @cached_property
    def fixed(self) -> set[str]:
        """Ids of nodes that are the same in every call: they depend only on constants."""
        return self._of((Kind.CONSTANT,))

    @cached_property
    def weights(self) -> set[str]:
        """Ids of nodes that depend only on constants and on weights without a gradient."""
        if self.graph.forward_outputs is not None:
            return self.fixed
        return self._of((Kind.CONSTANT, Kind.PARAMETER))

    def _of(self, kinds: tuple[Kind, ...]) -> set[str]:
        found: set[str] = set()
        for node in self.graph.nodes:
            inner = node.kind in (Kind.CALL, Kind.TUPLE, Kind.ITEM) and bool(node.edges)
            if node.kind in kinds or (inner and all(e in found for e in node.edges)):
                found.add(node.id)
        return found

    def calls(self, ops: Container[str]) -> Iterator[Node]:
        """The calls of some operators that read something and that a result needs."""
        for node in self.graph.nodes:
            if node.kind is Kind.CALL and node.op in ops and node.id in self.live and node.edges:
                yield node

    def base(self, node_id: str) -> Node:
        """The node that owns a value's storage: itself, or a view's base."""
        return self.graph.by_id[self.work.owner[node_id]]

    def together(self, node_id: str, other: str) -> bool:
        """Whether a known kernel computes both."""
        return bool(self.place.get(node_id, frozenset()) & self.place.get(other, frozenset()))

    def alone(self, node_id: str) -> bool:
        """Whether the node has a kernel to itself, views aside. Without known kernels, True; among
        known kernels, a node without one belongs to its reader's."""
        if self.kernels is None:
            return True
        places = self.place.get(node_id)
        if not places:
            return False
        return any(
            all(i == node_id or is_view(self.graph.by_id[i]) for i in self.kernels[p])
            for p in places
        )

    def remains(self, finding: Finding) -> bool:
        """Whether some measured kernel computes a finding's nodes; True without measurements."""
        if self.measured is None or not self.place:
            return True
        calls = [i for i in finding.nodes if self.graph.by_id[i].kind is Kind.CALL]
        return any(i in self.place for i in calls[:1])

    def remedy(self, what: str) -> str:
        """The pass that removes a hazard in this IR; "" if none does."""
        return REMEDIES[self.graph.ir].get(what, "")

    def finding(
        self,
        nodes: Iterable[str],
        message: str,
        remedy: str,
        wasted: Iterable[str] | None = None,
        advice: str = "",
    ) -> Finding:
        """A finding about nodes; the remedy saves the cost of `wasted`, by default of all nodes."""
        nodes = tuple(dict.fromkeys(nodes))
        spared = nodes if wasted is None else tuple(dict.fromkeys(wasted))
        by_id = self.graph.by_id
        titles, scope = tuple(by_id[i].title for i in nodes), by_id[nodes[0]].scope
        moved, seconds = sum(map(self.moved, spared)), sum(self.work.seconds[i] for i in spared)
        timed = any(i in inside for inside, _ in self.measured or () for i in spared)
        return Finding("", nodes, titles, scope, message, remedy, advice, moved, seconds, timed)

    def moved(self, node_id: str) -> int:
        """Bytes that a node reads and writes in a kernel of its own; 0 for a view."""
        node = self.graph.by_id[node_id]
        if is_view(node) or node.kind not in (Kind.CALL, Kind.FUNCTION):
            return 0
        return (node.bytes or 0) + sum(self.work.bytes[e] for e in self.graph.edges[node_id])


def order_of(node: Node) -> tuple[int, ...]:
    """The order of axes of a transpose; reversed if it has no attribute."""
    rank, axes = len(node.outputs[0].shape), node.attrs.get("axes")
    return tuple(int(a) % rank for a in axes) if axes else tuple(reversed(range(rank)))


def is_transpose(node: Node) -> bool:
    return node.kind is Kind.CALL and node.op in TRANSPOSES and bool(node.edges)


Find = Callable[[Subject], Iterable[Finding]]


@dataclass(frozen=True)
class Linter:
    """One sort of hazard. `name` is its name in documents; `find` yields the findings of a subject
    in any order; with `kernels`, it finds nothing unless the kernels are known."""

    name: str
    title: str
    summary: str
    find: Find
    kernels: bool = False


LINTERS: dict[str, Linter] = {}
"""Linters by name, in the order in which they are listed."""


def linter(title: str, summary: str, kernels: bool = False) -> Callable[[Find], Find]:
    """Register a function as the linter of its name."""

    def enter(find: Find) -> Find:
        LINTERS[find.__name__] = Linter(find.__name__, title, summary, find, kernels)
        return find

    return enter
