"""What the forward saves for the backward: capture strategies on a joint graph.

A joint graph holds the forward and the backward in one (`Graph.forward_outputs` is set). A cut
names the values that the forward hands over, its captures. What else the backward needs of the
forward, it computes again from captures, inputs and parameters.

Inputs and parameters are the caller's: they are handed to the backward as they were to the
forward and are never captures. The same holds for dropout masks, but somebody has to keep those
until the backward: they are listed apart. Constants, and what is computed from constants alone,
stand in both functions.

Everything here is linear in nodes and edges and knows no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from viz.graph import Graph, Kind, Node, Role

MASK_PREFIX = "dropout_mask_"
"""How the names of mask inputs begin."""


@dataclass(frozen=True)
class Capture:
    """One tensor that lives from the forward to the backward.

    Args:
        id: of the node.
        name: its title, for people.
        op: its operator; "" for a mask.
        shape, dtype, bytes: of the tensor; `bytes` is None where a dimension is not known.
        scope, source: the module and the framework operator that produce it.
        reason: why it is saved, in a few words.
        readers: ids of the nodes of the backward function that read it, those computed again
            included; a gradient that is the value itself is listed as the value's own id.
        is_output: whether it is an output of the forward as well. Its bytes count, for it is to be
            kept, but it takes no memory beyond the output's own.
    """

    id: str
    name: str
    op: str
    shape: tuple[int | str, ...]
    dtype: str
    bytes: int | None
    scope: str
    source: str
    reason: str
    readers: tuple[str, ...]
    is_output: bool = False


@dataclass(frozen=True)
class Cut:
    """Where the joint graph is sawn through.

    Args:
        strategy: name of the strategy, or "by_hand".
        captures: in graph order.
        masks: dropout masks that the backward reads. They are inputs, so the forward does not
            return them, and `bytes` leaves them out.
        recomputed: ids of the forward's nodes that the backward computes again, in graph order;
            what is computed from constants alone is left out.
    """

    strategy: str
    captures: tuple[Capture, ...]
    masks: tuple[Capture, ...]
    recomputed: tuple[str, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the captures."""
        return tuple(c.id for c in self.captures)

    @property
    def bytes(self) -> int | None:
        """Bytes of all captures, or None where one is not known."""
        return _total(self.captures)

    @property
    def extra_bytes(self) -> int | None:
        """Bytes of the captures that are not outputs of the forward anyway."""
        return _total(c for c in self.captures if not c.is_output)

    @property
    def mask_bytes(self) -> int | None:
        """Bytes of the masks."""
        return _total(self.masks)


def _total(captures: Iterable[Capture]) -> int | None:
    sizes = [c.bytes for c in captures]
    return None if None in sizes else sum(s for s in sizes if s is not None)


class Joint:
    """What strategies need to know of a joint graph.

    Args:
        graph: with `forward_outputs` set.

    Raises:
        ValueError: it is no joint graph.
    """

    def __init__(self, graph: Graph) -> None:
        if graph.forward_outputs is None:
            raise ValueError(f"graph {graph.name} is no joint graph: take the gradient first")
        self.graph = graph
        self.outputs = frozenset(graph.outputs[: graph.forward_outputs])
        self.gradients = graph.outputs[graph.forward_outputs :]

    @cached_property
    def forward(self) -> frozenset[str]:
        """Ids of what the forward computes or reads.

        These are the ancestors of its outputs, and the items of tuples among them: which field of
        a forward tuple is meant is no work of the backward.
        """
        inside = self.graph.ancestors(self.outputs)
        for node in self.graph.nodes:
            if node.kind is Kind.ITEM and node.edges and node.edges[0] in inside:
                inside.add(node.id)
        return frozenset(inside)

    @cached_property
    def free(self) -> frozenset[str]:
        """Ids of inputs, parameters, constants, and what is computed from constants alone."""
        constant: set[str] = set()
        free: set[str] = set()
        for node in self.graph.nodes:
            if node.kind in (Kind.INPUT, Kind.PARAMETER):
                free.add(node.id)
            elif all(e in constant for e in node.edges):
                constant.add(node.id)
        return frozenset(free | constant)

    @cached_property
    def crossings(self) -> tuple[str, ...]:
        """Ids of the forward's tensors that the backward reads, in graph order.

        Where it reads a tuple, its fields cross. A call whose result is a tuple, read as a whole,
        cannot cross: what it reads does, and it is computed again.
        """
        by_id = self.graph.by_id
        todo, seen = self._read_by_backward(), set[str]()
        while todo:
            current = todo.pop()
            if current not in seen and current not in self.free:
                seen.add(current)
                if not is_tensor(by_id[current]):
                    todo.extend(by_id[current].edges)
        return tuple(n.id for n in self.graph.nodes if n.id in seen and is_tensor(n))

    def may_be_captured(self, node_id: str) -> bool:
        """Whether a node is a tensor that the forward computes and could hand over."""
        return (
            node_id in self.forward
            and node_id not in self.free
            and is_tensor(self.graph.by_id[node_id])
        )

    def _read_by_backward(self) -> list[str]:
        """Ids of the forward's nodes that the backward reads or returns, with repeats."""
        read = [g for g in self.gradients if g in self.forward]
        for node in self.graph.nodes:
            if node.id not in self.forward:
                read.extend(e for e in node.edges if e in self.forward)
        return read

    def computed_again(self, captured: Collection[str]) -> tuple[str, ...]:
        """Ids of the forward's nodes that the backward must compute when it is handed `captured`.

        In graph order; constants, inputs and parameters are not among them.
        """
        by_id = self.graph.by_id
        todo, seen = self._read_by_backward(), set[str]()
        while todo:
            current = todo.pop()
            if current not in seen and current not in captured and current not in self.free:
                seen.add(current)
                todo.extend(by_id[current].edges)
        return tuple(n.id for n in self.graph.nodes if n.id in seen)


def is_tensor(node: Node) -> bool:
    """Whether a node's value is one tensor, and not a tuple of them."""
    return node.kind is not Kind.TUPLE and len(node.outputs) == 1


@dataclass(frozen=True)
class Strategy:
    """A rule that picks the captures.

    Args:
        name: as the command line calls it.
        title, summary: for people.
        choose: from a joint graph to the reason for each capture, by node id.
    """

    name: str
    title: str
    summary: str
    choose: Callable[[Joint], Mapping[str, str]]


def _keep_all(joint: Joint) -> Mapping[str, str]:
    return dict.fromkeys(joint.crossings, "the backward reads it")


def _inputs_only(joint: Joint) -> Mapping[str, str]:
    return {}


STRATEGIES: dict[str, Strategy] = {
    s.name: s
    for s in (
        Strategy(
            "keep_all",
            "Keep everything that crosses",
            "Saves every value of the forward that the backward reads; computes nothing again. "
            "The tutorial's rule.",
            _keep_all,
        ),
        Strategy(
            "inputs_only",
            "Keep only the inputs",
            "Saves nothing; the backward computes the forward again as far as it needs it.",
            _inputs_only,
        ),
    )
}


def cut(graph: Graph, strategy: str = "keep_all") -> Cut:
    """Cut a joint graph by a strategy.

    Args:
        graph: with `forward_outputs` set.
        strategy: a name in `STRATEGIES`.

    Raises:
        ValueError: it is no joint graph, or no strategy has that name.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"no strategy is called {strategy!r}; known: {', '.join(STRATEGIES)}")
    joint = Joint(graph)
    return _cut(joint, strategy, STRATEGIES[strategy].choose(joint))


def cut_at(graph: Graph, captured: Iterable[str]) -> Cut:
    """Cut a joint graph at nodes picked by hand.

    Raises:
        ValueError: it is no joint graph, or a node cannot be captured; says which, and why.
    """
    joint = Joint(graph)
    chosen = tuple(captured)
    for node_id in chosen:
        if node_id not in graph.by_id:
            raise ValueError(f"the graph has no node {node_id}")
        title = f"{node_id} ({graph.by_id[node_id].title})"
        if node_id not in joint.forward:
            raise ValueError(f"node {title} belongs to the backward; only the forward is captured")
        if node_id in joint.free:
            raise ValueError(
                f"node {title} is an input, a parameter or a constant, which the backward is given"
            )
        if not joint.may_be_captured(node_id):
            raise ValueError(f"node {title} is a tuple; capture its fields")
    return _cut(joint, "by_hand", dict.fromkeys(chosen, "picked by hand"))


def _cut(joint: Joint, strategy: str, reasons: Mapping[str, str]) -> Cut:
    graph = joint.graph
    again = joint.computed_again(reasons.keys())
    inside = {n.id for n in graph.nodes if n.id not in joint.forward} | set(again)
    masks = [n for n in graph.nodes if n.kind is Kind.INPUT and n.name.startswith(MASK_PREFIX)]

    def capture(node: Node, reason: str) -> Capture:
        readers = tuple(r for r in graph.readers[node.id] if r in inside)
        own = (node.id,) if node.id in joint.gradients else ()
        kind = node.outputs[0]
        return Capture(
            id=node.id,
            name=node.title,
            op=node.op,
            shape=kind.shape,
            dtype=kind.dtype,
            bytes=kind.bytes,
            scope=node.scope,
            source=node.source,
            reason=reason,
            readers=readers + own,
            is_output=node.id in joint.outputs,
        )

    kept = [capture(n, "dropout mask, drawn outside") for n in masks]
    return Cut(
        strategy=strategy,
        captures=tuple(capture(n, reasons[n.id]) for n in graph.nodes if n.id in reasons),
        masks=tuple(m for m in kept if m.readers),
        recomputed=again,
    )


def roles(graph: Graph, captured: Iterable[str] | None = None) -> dict[str, Role]:
    """Where every node of a joint graph stands.

    Args:
        graph: with `forward_outputs` set.
        captured: ids of the captures; None means everything that crosses.

    Returns:
        By id: CAPTURED for the captures, FORWARD for the rest of what the outputs are computed
        from, BACKWARD for everything else.

    Raises:
        ValueError: it is no joint graph.
    """
    joint = Joint(graph)
    saved = set(joint.crossings if captured is None else captured)

    def role(node_id: str) -> Role:
        if node_id in saved:
            return Role.CAPTURED
        return Role.FORWARD if node_id in joint.forward else Role.BACKWARD

    return {n.id: role(n.id) for n in graph.nodes}
