"""A joint graph as capture strategies see it."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from math import fsum
from typing import Any

from relascope.core.graph import Graph, Kind, Node, TensorType, reached
from relascope.core.operators import BROADCASTS, EACH, FOLDS
from relascope.passes.cost import Kernels, MeasuredKernels, Work, averaged, is_view

MASK_PREFIX, DRAW_PREFIX = "dropout_mask_", "random_"
"""How the names of mask inputs begin, and of those that other random operators became."""

MARK = "~"
Rewiring = Mapping[str, tuple[str, ...]]
"""By ids of nodes in the backward what they read there instead of their `Graph.edges`, each for
each. An id such as "n~2" is of the second computation of the node "n"."""

MeasuredPeaks = Mapping[tuple[str, ...], int | None]
"""Bytes at the measured peak of a step, by `Cut.marked`; None where a build does not count them."""

STATE = TensorType((5056,), "uint8")
"""The state of PyTorch's generator on the CPU, from which a mask is drawn again."""

DRAWN, _DRAWN_BY_PYTORCH, _FEW = 100, 500, 1 << 15
"""How many FLOPs take as long as drawing an element of a mask, some 1 or 5 ns: by our kernel, and
by PyTorch, which draws masks of up to so many elements."""


def original(node_id: str) -> str:
    """The id of the node that is computed, possibly not for the first time."""
    return node_id.partition(MARK)[0]


@dataclass(eq=False)
class Joint:
    """The facts about a joint graph that strategies need. Raises ValueError if it is none.

    `kernels` are ids of nodes in each of the forward's kernels, which decide the cost of
    recomputation; None guesses by operators' names. `measured` are those kernels' times, which are
    then the cost, and `copied` the measured bytes a second of a copy to the host, or back, if any.
    `early` are ids of what the forward computes although only the backward reads it. `peaks` are
    those of steps that were measured."""

    graph: Graph
    kernels: Kernels | None = None
    measured: MeasuredKernels | None = None
    copied: float | None = None
    early: tuple[str, ...] = ()
    peaks: MeasuredPeaks = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.graph.forward_outputs is None:
            raise ValueError(f"{self.graph.name} is not a joint graph: take the gradient first")
        self.outputs = frozenset(self.graph.outputs[: self.graph.forward_outputs])
        self.gradients = self.graph.outputs[self.graph.forward_outputs :]

    @cached_property
    def work(self) -> Work:
        """The cost of computing the graph's nodes: measured, else on a nominal machine. Equal
        kernels cost the mean of their times, so that equal layers are equal."""
        mean = self.measured and averaged(self.graph, self.measured)
        return Work(self.graph, kernels=self.kernels, measured=mean)

    @cached_property
    def forward_seconds(self) -> float:
        """Estimated time of the whole forward."""
        return sum(self.work.seconds[i] for i in self.own_forward)

    @cached_property
    def carried(self) -> dict[str, float]:
        """Seconds of memory traffic that saving each value adds: see `Work.carried`."""
        return self.work.carried(self.forward)

    def net_share(
        self,
        captured: Collection[str],
        offloaded: Collection[str] = (),
        times: Mapping[str, int] | None = None,
    ) -> float:
        """Estimated extra time over saving all that crosses, as a share of the forward's:
        recomputation, as many `times`, and copies to the host, less spared writes and reads."""
        net = self.extra_seconds(captured) - self.extra_seconds(self.crossings)
        net += self.more_seconds(captured, offloaded, times)
        return net / self.forward_seconds if self.forward_seconds else 0.0

    def more_seconds(
        self, captured: Collection[str], offloaded: Iterable[str], times: Mapping[str, int] | None
    ) -> float:
        """Estimated time of copies to the host, and of what is computed again more than once."""
        often = self.again_seconds(captured, times) - self.again_seconds(captured) if times else 0.0
        return often + self.copy_seconds(offloaded)

    def extra_seconds(self, captured: Collection[str]) -> float:
        """Estimated time of recomputation, and of the traffic of what is saved."""
        moved = (self.carried.get(base, 0.0) for base in self.kept(captured))
        return fsum((self.again_seconds(captured), *moved))

    def copy_seconds(self, offloaded: Iterable[str]) -> float:
        """Time of copying captures to the host and back, during which nothing else runs."""
        rate = self.copied or self.work.machine.copy
        return fsum(2 * self.work.bytes[i] / rate for i in offloaded)

    def again_seconds(
        self, captured: Collection[str], times: Mapping[str, int] | None = None
    ) -> float:
        """Estimated time of recomputation, as many `times`, and of drawing masks again."""
        again = self.computed_again(captured)
        nodes = (self.work.again[i] * (times[i] if times else 1) for i in again)
        return fsum((*nodes, *(self.draws[m] for m in self.drawn_again(captured))))

    @cached_property
    def masks(self) -> tuple[str, ...]:
        """Ids of the dropout masks and other random numbers, which are inputs."""
        named = (n for n in self.graph.nodes if n.kind is Kind.INPUT)
        return tuple(n.id for n in named if n.name.startswith((MASK_PREFIX, DRAW_PREFIX)))

    @cached_property
    def draws(self) -> dict[str, float]:
        """Estimated seconds of drawing each dropout mask again; other random numbers are kept."""
        masks = map(self.graph.by_id.__getitem__, self.masks)
        named = [n for n in masks if n.name.startswith(MASK_PREFIX)]
        counts = [(n.bytes or 0) * (8 if n.name.endswith("_bits") else 1) for n in named]
        flops = (n * (DRAWN if n > _FEW else _DRAWN_BY_PYTORCH) for n in counts)
        taken = (self.work.machine.seconds(each, 0) for each in flops)
        return dict(zip((n.id for n in named), taken, strict=True))

    def drawn_again(self, captured: Collection[str]) -> tuple[str, ...]:
        """Ids of the masks that the backward draws again, those it reads among `captured`: the
        state of the generator before they were drawn is captured in their place."""
        named = self.draws.keys() & captured
        read = self.masks_read(self.computed_again(captured)) if named else ()
        return tuple(m for m in read if m in named)

    @cached_property
    def sought(self) -> dict[str, str]:
        """Maxima and minima whose places the backward finds by comparing them with their operand,
        by the operand's id: a saved one may equal none of its values if another kernel computes
        these again and rounds differently."""
        by_id, edges = self.graph.by_id, self.graph.edges
        found: dict[str, str] = {}

        def path(node_id: str) -> list[str]:  # as wide as what it is compared with, maybe
            ids = [node_id]
            while is_view(by_id[ids[-1]]) or by_id[ids[-1]].op in BROADCASTS:
                ids.append(edges[ids[-1]][0])
            return ids

        inside = {*self.graph.by_id} - self.forward | {*self.behind(self.needed)}
        for node in (n for n in self.graph.nodes if n.op == "equal" and n.id in inside):
            sides = [path(read) for read in edges[node.id]]
            for ids, others in zip(sides, sides[::-1], strict=True):
                if by_id[ids[-1]].op in ("max", "min"):
                    found.update(dict.fromkeys(ids, others[-1]))
        return found

    def with_sought(self, saved: Iterable[str]) -> frozenset[str]:
        """Tensors to save by hand, and the operands of maxima and minima among them (`sought`)."""
        saved = frozenset(saved)
        more = {self.sought[i] for i in saved & self.sought.keys()}
        there = self.behind(self.needed) if more else ()
        return saved.union(filter(self.may_be_captured, more.intersection(there)))

    @cached_property
    def alike(self) -> dict[str, tuple[str, ...]]:
        """By node the ids of the nodes in its place in equal layers, and its own: of the same
        operator and type, in modules whose paths differ only by numbers (layer.0, layer.1)."""
        groups: dict[tuple[Any, ...], list[str]] = {}
        count: Counter[tuple[Any, ...]] = Counter()
        for node in filter(lambda n: self.may_be_captured(n.id), self.graph.nodes):
            own = node.scope, node.op, node.source, node.outputs
            count[own] += 1
            module = tuple("*" if part.isdigit() else part for part in node.scope.split("."))
            groups.setdefault((module, own[1:], count[own]), []).append(node.id)
        return {i: tuple(ids) for ids in groups.values() for i in ids}

    @cached_property
    def storages(self) -> dict[str, tuple[str, ...]]:
        """By node the ids of the nodes whose storages it is in: for a tuple those of its fields;
        inputs, parameters and constants have none, except a mask, which has its own."""
        found: dict[str, tuple[str, ...]] = {}
        for node in self.graph.nodes:
            if node.id in self.free:
                found[node.id] = (node.id,) if node.id in self.masks else ()
            elif is_view(node) or node.kind in (Kind.TUPLE, Kind.ITEM):
                read = node.edges[:1] if is_view(node) else node.edges
                found[node.id] = tuple(dict.fromkeys(base for e in read for base in found[e]))
            else:
                found[node.id] = (node.id,)
        return found

    def storages_of(self, ids: Iterable[str]) -> set[str]:
        """The storages of some nodes."""
        return {base for i in ids for base in self.storages[i]}

    @cached_property
    def elementwise(self) -> dict[str, frozenset[str]]:
        """By elementwise operator, which joins its only reader's kernel, what it may write over: in
        Relax, storages of the same size that it reads in the order in which it writes."""
        found: dict[str, frozenset[str]] = {}
        by_id, storages = self.graph.by_id, self.storages
        for node in self.graph.nodes:
            if node.op in EACH and node.bytes:
                reads = self.graph.edges[node.id] if self.graph.ir == "relax" else ()
                like = [e for e in reads if by_id[e].outputs == node.outputs]
                other = {b for e in reads if e not in like for b in storages[e]}
                bases = {b for e in like for b in storages[e] if by_id[b].bytes == node.bytes}
                found[node.id] = frozenset(bases - other)
        return found

    @cached_property
    def joins(self) -> dict[str, frozenset[str]]:
        """By node the readers whose kernel it may join: of elementwise operators those on as many
        elements, and reductions; in Relay, of a product and a transposed matrix each other."""
        by_id, readers, each = self.graph.by_id, self.graph.readers, self.elementwise

        def joins(node: Node, reader: Node) -> bool:
            if node.id not in each:
                return {node.op, reader.op} == {"transpose", "nn.dense"}  # as a BLAS has both
            same = reader.id in each and reader.outputs[0].shape == node.outputs[0].shape
            return same or reader.op in FOLDS

        own = (by_id[i] for i in by_id.keys() - {*self.gradients})
        return {n.id: frozenset(r for r in readers[n.id] if joins(n, by_id[r])) for n in own}

    @cached_property
    def writes(self) -> dict[str, tuple[str, ...]]:
        """By node the storage that it writes, if it has its own."""
        return {i: of if of == (i,) else () for i, of in self.storages.items()}

    @cached_property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """By node the storages that it reads."""
        edges, storages = self.graph.edges, self.storages
        return {i: tuple({b: None for e in edges[i] for b in storages[e]}) for i in edges}

    @cached_property
    def own_forward(self) -> list[str]:
        """Ids of what the forward computes, in graph order, without constants' results."""
        return [i for i in self.graph.edges if i in self.forward and i not in self.free]

    @cached_property
    def own_backward(self) -> list[str]:
        """Ids of what only the backward computes, in graph order, without constants' results."""
        return [i for i in self.graph.edges if i not in self.forward and i not in self.free]

    def rewired(self, rewiring: Rewiring) -> "Joint":
        """The joint graph as a backward reads it. Raises ValueError if that is no graph."""
        wired: dict[str, dict[str, tuple[str, ...]]] = {}
        for node_id, edges in rewiring.items():
            wired.setdefault(original(node_id), {})[node_id] = edges
        if unknown := wired.keys() - self.graph.by_id.keys():
            raise ValueError(f"the graph has no node {min(unknown)}")
        nodes = []
        for node in self.graph.nodes:
            own = self.graph.edges[node.id]
            for node_id, edges in ({node.id: own} | wired.get(node.id, {})).items():
                if node_id in rewiring:
                    new = dict(zip(own, edges, strict=True))
                    read = tuple(new[i] if isinstance(i, str) else i for i in node.inputs)
                    nodes.append(replace(node, id=node_id, inputs=read))
                else:
                    nodes.append(node)
        graph = self.graph.with_nodes(nodes)
        graph.validate()
        return Joint(graph)

    def kept(self, captured: Collection[str]) -> dict[str, int]:
        """Bytes kept between forward and backward, by the id of each storage's owner. These are
        storages of the captures, and of dropout masks that the backward reads, or `STATE` if it
        draws one again. Other inputs and parameters remain in any case. Unknown dimensions count as
        none."""
        owner, held = self.work.owner, self.work.bytes
        largest: dict[str, int] = {}
        drawn = self.drawn_again(captured)
        for node_id in (i for i in captured if i not in self.draws):
            base = owner[node_id]
            if base not in self.free or base in self.masks:
                largest[base] = max(largest.get(base, 0), held[node_id])
        again = self.computed_again(captured) if self.masks else ()
        read = {m: held[m] for m in self.masks_read(again)}
        return read | dict.fromkeys(drawn, STATE.bytes or 0) | largest

    def masks_read(self, again: Iterable[str] = ()) -> tuple[str, ...]:
        """Ids of the masks that the backward reads if it recomputes some nodes."""
        readers = {m: self.graph.readers[m] for m in self.masks}
        inside = frozenset(again) if readers else ()
        return tuple(
            m for m, by in readers.items() if any(r in inside or r not in self.forward for r in by)
        )

    def bytes_of(self, captured: Collection[str]) -> int:
        """Bytes of everything that is kept: the total of a cut."""
        return sum(self.kept(captured).values())

    @cached_property
    def forward(self) -> frozenset[str]:
        """Ids of what the forward computes or reads: the ancestors of its outputs, and the tuple
        items among their readers, which cost the backward nothing."""
        inside = self.graph.ancestors((*self.outputs, *self.early))
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
            elif all(e in constant for e in self.graph.edges[node.id]):
                constant.add(node.id)
        return frozenset(free | constant)

    @cached_property
    def crossings(self) -> tuple[str, ...]:
        """Ids of the forward's tensors that the backward reads, in graph order. For a tuple, its
        fields cross; for a call whose tuple is read whole, its operands: it is recomputed."""
        return tuple(i for i in self.needed if self.graph.by_id[i].is_tensor)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Ids of what crosses, and of the tuples on the way, which the backward always makes again,
        in graph order."""
        by_id = self.graph.by_id
        edges, free = self.graph.edges, self.free
        seen = reached(
            self._read_by_backward, lambda i: () if i in free or by_id[i].is_tensor else edges[i]
        )
        return tuple(i for i in edges if i in seen and i not in free)

    def may_be_captured(self, node_id: str) -> bool:
        """Whether a node is a tensor that the forward computes and could hand over."""
        inside = node_id in self.forward and node_id not in self.free
        return inside and self.graph.by_id[node_id].is_tensor

    @cached_property
    def _read_by_backward(self) -> tuple[str, ...]:
        """Ids of the forward's nodes that the backward reads or returns, with repeats."""
        read = [g for g in self.gradients if g in self.forward]
        for node_id, edges in self.graph.edges.items():
            if node_id not in self.forward:
                read.extend(e for e in edges if e in self.forward)
        return tuple(read)

    def computed_again(self, captured: Collection[str]) -> tuple[str, ...]:
        """Ids of the forward's nodes that the backward must compute given `captured`, in graph
        order, without constants, inputs and parameters."""
        return self._again(frozenset(captured))

    @cached_property
    def _again(self) -> Callable[[frozenset[str]], tuple[str, ...]]:
        """`computed_again`, cached, because one question about a cut asks it several times."""
        return lru_cache(2)(partial(self.behind, self._read_by_backward))

    def behind(self, ids: Iterable[str], stop: Container[str] = ()) -> tuple[str, ...]:
        """Some nodes and what they are computed from, in graph order, up to what is free or in
        `stop`."""
        edges, free, found = self.graph.edges, self.free, set[str]()
        todo = [*ids]
        while todo:
            current = todo.pop()
            if not (current in found or current in stop or current in free):
                found.add(current)
                todo += edges[current]
        return tuple(filter(found.__contains__, edges))
