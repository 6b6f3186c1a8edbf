"""What the values and operators of a graph cost: bytes, storages, FLOPs, bytes moved, seconds.

All are estimates from names, attributes and types. Operators that `core.operators` lacks count as
pointwise, one FLOP an element. Times follow the roofline, the longer of arithmetic and memory
traffic (Williams, Waterman and Patterson, "Roofline", CACM 2009), of materialised values."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod
from statistics import fmean

from relascope.core import operators
from relascope.core.graph import Graph, Kind, Node, TensorType

_POLYNOMIAL = 8  # FLOPs of a transcendental function: about the length of its polynomial
_CALL = 300
"""How many FLOPs take as long as a call of the C library for an element: 2 to 8 ns on a core."""

Kernels = Sequence[Collection[str]]
"""Ids of the nodes that each kernel computes."""

MeasuredKernels = Sequence[tuple[Collection[str], float]]
"""For each kernel that was timed, the ids of the nodes that it computes, and its seconds."""


@dataclass(frozen=True)
class Machine:
    """The two rates that a roofline needs, of one device, and that of a copy to its host. `flops`
    are floating point operations a second, `bandwidth` bytes a second from and to memory, `copy`
    bytes a second from the device to the host, or back."""

    flops: float = 1e11
    bandwidth: float = 1e10
    copy: float = 2e8

    def seconds(self, flops: float, traffic: float) -> float:
        """How long work of so many FLOPs and so many bytes moved takes at least."""
        return max(flops / self.flops, traffic / self.bandwidth)


def averaged(graph: Graph, measured: MeasuredKernels) -> MeasuredKernels:
    """Measured kernels, each with the mean time of those that compute the same operators, in the
    same order, on the same types: their times differ by noise."""

    def kind(node: Node) -> object:
        read = tuple(graph.by_id[e].outputs for e in node.edges)
        return node.op, repr(node.attrs), node.outputs, read

    kinds = [tuple(kind(graph.by_id[i]) for i in nodes) for nodes, _ in measured]
    times: dict[object, list[float]] = {}
    for of, (_, taken) in zip(kinds, measured, strict=True):
        times.setdefault(of, []).append(taken)
    return [(m[0], fmean(times[of])) for of, m in zip(kinds, measured, strict=True)]


NOMINAL = Machine()
"""Ten FLOPs for each byte moved, near both a few CPU cores and a data-centre GPU in float32. A copy
to the host is fifty times slower than memory, as over PCIe beside such a GPU."""


def is_view(node: Node) -> bool:
    """Whether a node's result shares the storage of its first input, with another shape."""
    return node.op in operators.VIEWS and node.kind is Kind.CALL and bool(node.edges)


def is_product(node: Node) -> bool:
    """Whether a node is a matrix product or a convolution, or a function that contains one."""
    bodies = () if node.body is None else node.body.with_bodies()
    return any(_is_class(n, "product") for n in (node, *chain.from_iterable(bodies)))


def is_random(node: Node) -> bool:
    """Whether a node draws random numbers, so that running it again gives others."""
    return _is_class(node, "random")


def is_reduction(node: Node) -> bool:
    """Whether a node reduces many elements to each one that it writes."""
    return _is_class(node, "reduction")


def is_fusible(node: Node) -> bool:
    """Whether a node computes elements independently, so that its reader's kernel can do it."""
    if node.kind in (Kind.TUPLE, Kind.ITEM):
        return True
    return _is_class(node, "other") and len(node.outputs) == 1


def _is_class(node: Node, name: str) -> bool:
    return node.kind is Kind.CALL and operators.cost_class(node.op) == name


def storages(graph: Graph) -> dict[str, str]:
    """For every node, the id of the node that owns its memory: itself, or a view's base."""
    owner: dict[str, str] = {}
    for node in graph.nodes:
        owner[node.id] = owner[node.edges[0]] if is_view(node) else node.id
    return owner


def flops_of(graph: Graph) -> dict[str, float]:
    """Each node's FLOPs: a multiply-add counts as two, an unknown dimension as one element."""
    return {i: _flops(graph, node) for i, node in graph.by_id.items()}


def _flops(graph: Graph, node: Node) -> float:
    if node.kind is Kind.FUNCTION and node.body is not None:
        return sum(flops_of(node.body).values())  # bodies of fused groups do not nest
    told = node.attrs.get("flops")
    if isinstance(told, int | float):  # a kernel, whose loop nest the compiler has counted
        return float(told)
    if node.kind is not Kind.CALL or node.op in operators.VIEWS or node.op in operators.MOVES:
        return 0.0
    work, written = operators.cost_class(node.op), sum([_elements(t) for t in node.outputs])
    if work in ("other", "random"):
        return float(written * (_POLYNOMIAL if node.op in operators.TRANSCENDENTAL else 1))
    if node.op in operators.ROWWISE:
        return float(operators.ROWWISE[node.op] * written)
    read = [t for e in node.edges for t in _fields(graph.by_id[e])]
    if work == "product":
        return 2.0 * _multiplications(node, read, written)
    return float(_elements(read[0]) if read else written)


def longest(graph: Graph) -> float:
    """The most dependent operations on any path through a graph. An operator counts those for one
    element of its result, such as the terms of a sum."""
    ahead: dict[str, float] = {}
    each = flops_of(graph)
    for node in graph:
        own = each.get(node.id, 0.0) / max(sum(_elements(kind) for kind in node.outputs), 1)
        ahead[node.id] = own + max((ahead[i] for i in graph.edges[node.id]), default=0.0)
    return max(ahead.values(), default=0.0)


def known_flops(graph: Graph, node_id: str) -> float | None:
    """Floating point operations of a node; None for unknown operators or dimensions, which `flops`
    guesses because costs need a figure."""
    node = graph.by_id[node_id]
    if node.kind is Kind.FUNCTION and node.body is not None:
        inside = [known_flops(node.body, n.id) for n in node.body.nodes]
        known = [f for f in inside if f is not None]
        return sum(known) if len(known) == len(inside) else None
    if node.kind is Kind.CALL and "flops" not in node.attrs:
        types = (*node.outputs, *(t for e in node.edges for t in graph.by_id[e].outputs))
        if not operators.is_known(node.op) or any(t.elements is None for t in types):
            return None
    return _flops(graph, node)


@dataclass(frozen=True)
class Read:
    """What a kernel reads besides other kernels' results. `weights` are bytes of parameters and
    constants, `unread` bytes of its arguments that it skips, such as other rows of a table."""

    weights: int = 0
    unread: int = 0


def reads(graph: Graph, nodes: Collection[str], owner: Mapping[str, str]) -> Read:
    """What the kernel that computes some nodes reads, from the graph and its `storages`."""
    kernel = frozenset(nodes)
    whole: set[str] = set()
    parts: dict[str, int] = {}
    for node in (n for n in map(graph.by_id.__getitem__, kernel) if not is_view(n)):
        for index, source in enumerate(map(owner.__getitem__, node.edges)):
            if source in kernel:
                continue
            if node.op in operators.PARTIAL and index == 0:
                parts[source] = parts.get(source, 0) + (node.bytes or 0)
            else:
                whole.add(source)
    weights = unread = 0
    for source in {*whole, *parts}:
        held = graph.by_id[source].bytes or 0
        taken = held if source in whole else min(held, parts[source])
        unread += held - taken
        if graph.by_id[source].kind in (Kind.PARAMETER, Kind.CONSTANT):
            weights += taken
    return Read(weights, unread)


def _fields(node: Node) -> tuple[TensorType, ...]:
    """The tensors that a reader sees: all of a tuple, else the first result."""
    return node.outputs if node.kind is Kind.TUPLE else node.outputs[:1]


def _multiplications(node: Node, read: list[TensorType], written: int) -> int:
    """How many pairs of numbers a matrix product or a convolution multiplies."""
    if len(read) < 2 or not read[1].shape:
        return written
    if "backward_weight" in node.op:
        return _elements(read[0]) * (written // max(1, _size_of(node.outputs[0].shape[0])))
    if operators.is_convolution(node.op):
        backwards = "transpose" in node.op
        # The axis of channels read for a transposed convolution, else of channels written.
        layout, axis = str(node.attrs.get("kernel_layout", "")), "I" if backwards else "O"
        at = layout.index(axis) if len(layout) == len(read[1].shape) and axis in layout else 0
        kernel = _elements(read[1]) // max(1, _size_of(read[1].shape[at]))
        return (_elements(read[0]) if backwards else written) * kernel
    if node.op == "einsum":
        return _letters(str(node.attrs.get("subscripts", node.attrs.get("equation", ""))), read)
    if "attention" in node.op and len(read[0].shape) > 2:
        keys = _size_of(read[1].shape[1])  # queries are [batch, length, heads, width]
        return (_elements(read[0]) + written) * keys
    shared = -2 if node.attrs.get("transpose_a") and len(read[0].shape) > 1 else -1
    return written * (_size_of(read[0].shape[shared]) if read[0].shape else 1)


def _letters(subscripts: str, read: list[TensorType]) -> int:
    """The product of the sizes of all axes of an einsum; those of "..." count from the last."""
    sizes: dict[str, int] = {}
    terms = subscripts.replace(" ", "").partition("->")[0].split(",")
    for term, kind in zip(terms, read, strict=False):
        before, dots, behind = term.partition("...")
        places = kind.shape[len(kind.shape) - len(behind) :] if dots else kind.shape[len(before) :]
        sizes.update((a, _size_of(d)) for a, d in zip(before, kind.shape, strict=False))
        sizes.update((a, _size_of(d)) for a, d in zip(behind, places, strict=False))
        between = kind.shape[len(before) : len(kind.shape) - len(behind)] if dots else ()
        for i, d in enumerate(reversed(between)):
            sizes[f"...{i}"] = max(sizes.get(f"...{i}", 1), _size_of(d))
    return prod(sizes.values())


def _elements(kind: TensorType) -> int:
    known = kind.elements
    return prod(map(_size_of, kind.shape)) if known is None else known


def _size_of(dimension: int | str) -> int:
    return dimension if isinstance(dimension, int) else 1


@dataclass(eq=False)
class Work:
    """What it costs to compute the nodes of a graph. `graph` has types; `assumed` is the machine
    whose rates turn work into seconds if none was measured. `kernels` are ids of the nodes that
    a compiler fused into each, which decides what is written to memory, guessed by operators' names
    for others; `measured` is what those took, which is then their nodes' price."""

    graph: Graph
    assumed: Machine = NOMINAL
    kernels: Kernels | None = None
    measured: MeasuredKernels | None = None

    @cached_property
    def machine(self) -> Machine:
        """The machine whose rates turn work into seconds, slowed to match measured kernels."""
        if self.measured is None:
            return self.assumed
        known = self._estimates
        estimated = sum(known[i] for nodes, _ in self.measured for i in nodes)
        taken = sum(seconds for _, seconds in self.measured)
        pace, given = estimated / taken if taken and estimated else 1.0, self.assumed
        return Machine(given.flops * pace, given.bandwidth * pace, given.copy * pace)

    @cached_property
    def flops(self) -> dict[str, float]:
        return flops_of(self.graph)

    @cached_property
    def bytes(self) -> dict[str, int]:
        """Bytes of each node's results; 0 with unknown dimensions."""
        return {n.id: n.bytes or 0 for n in self.graph.nodes}

    @cached_property
    def owner(self) -> dict[str, str]:
        """The node that owns each node's storage."""
        return storages(self.graph)

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Seconds of each node within the whole graph; views, tuples and inputs take none.
        Estimates split a measured kernel's time among its nodes; other kernels are estimated on an
        equally fast machine."""
        if self.measured is None:
            return self._estimates
        pace = self.assumed.bandwidth / self.machine.bandwidth
        found = {i: seconds * pace for i, seconds in self._estimates.items()}
        for nodes, taken in self.measured:
            whole = sum(found[i] for i in nodes)
            for node_id in nodes:
                part = found[node_id] / whole if whole else 1 / len(nodes)
                found[node_id] = taken * part
        return found

    @cached_property
    def again(self) -> dict[str, float]:
        """Seconds of each node when it is recomputed. A result of the graph is then written only
        for readers that need it in memory. A reduction reads its input once more, as its readers
        come after the last element."""
        if self.measured is not None:
            return self.seconds
        spared = self._estimated(self._written() - self._unspared, self._unspared)
        found = self._in_kernels(self._estimates | spared, results=False)
        for node in filter(is_reduction, self.graph.nodes):
            read = {self.owner[e] for e in self.graph.edges[node.id]} & self._fusible
            found[node.id] += self.assumed.seconds(0, sum(self.bytes[b] for b in read))
        return found

    @cached_property
    def _estimates(self) -> dict[str, float]:
        return self._in_kernels(self._estimated(self.graph.by_id, self._written()), results=True)

    def _estimated(self, ids: Iterable[str], written: Set[str]) -> dict[str, float]:
        """Seconds of nodes on the assumed machine, those in `written` with writing. Values
        between operators of a kernel cost no traffic. A recomputed node's extra reads of saved
        values are left out: the backward would have read others instead."""
        fusible, inner = self._fusible, self._inner
        writes = {*self.graph.by_id} - fusible | written
        return self._priced(ids, writes, lambda base, i: base in fusible and i in inner)

    def _priced(
        self, ids: Iterable[str], written: Container[str], passed: Callable[[str, str], bool]
    ) -> dict[str, float]:
        """Seconds of nodes on the assumed machine. They write those in `written`, and read what
        they need but the storages `passed` to them within their kernel."""
        owner, held = self.owner, self.bytes
        found = dict.fromkeys(ids, 0.0)
        for node in map(self.graph.by_id.__getitem__, found):
            if node.kind not in (Kind.CALL, Kind.FUNCTION) or is_view(node):
                continue
            read = {owner[e] for e in self.graph.edges[node.id]}
            moved = sum([held[b] for b in read if not passed(b, node.id)])
            moved += held[node.id] if node.id in written else 0
            calls = _CALL * sum(map(_elements, node.outputs)) if node.op in operators.CALLED else 0
            found[node.id] = self.assumed.seconds(self.flops[node.id] + calls, moved)
        return found

    def _in_kernels(self, found: dict[str, float], results: bool) -> dict[str, float]:
        """Seconds, or those within the known kernels where they are less. A recomputed node joins
        its new reader's kernel, so a border between two pointwise operators that only another
        reader needed disappears."""
        place, written = self._places, self._over_borders(results)
        known = self._priced(place, written, lambda base, i: place.get(base) == place[i])
        return found | {i: min(found[i], seconds) for i, seconds in known.items()}

    @cached_property
    def _places(self) -> dict[str, int]:
        """By node the number of the known kernel that computes it."""
        return {i: k for k, nodes in enumerate(self.kernels or ()) for i in nodes}

    def _over_borders(self, results: bool = True) -> set[str]:
        """Storages that one kernel writes for another to read; and results, if asked."""
        written = {self.owner[o] for o in self.graph.outputs} if results else set[str]()
        for node_id, kernel in self._places.items():
            bases = {self.owner[e] for e in self.graph.edges[node_id]}
            written.update(b for b in bases if self._places.get(b) != kernel)
        return written

    def carried(self, forward: Collection[str]) -> dict[str, float]:
        """Seconds of memory traffic that saving a pointwise value of a forward (ids in `forward`)
        adds, by id. The forward writes what it would otherwise pass on within a kernel, and the
        backward reads what it could compute within one. Other reads are in their readers'
        seconds."""
        ahead = {self.owner[i] for i in self._written(forward) if i not in self._places}
        ahead |= self._over_borders()
        anyway, found = {self.owner[i] for i in self._unspared}, {}
        for node_id in self._fusible.intersection(forward):
            passes = (node_id not in ahead) + (node_id not in anyway)
            found[node_id] = self.machine.seconds(0, passes * self.bytes[node_id])
        return found

    @cached_property
    def _fusible(self) -> frozenset[str]:
        return frozenset(n.id for n in self.graph.nodes if is_fusible(n))

    @cached_property
    def _inner(self) -> frozenset[str]:
        """Nodes that can read values that no kernel wrote to memory."""
        return self._fusible.union(n.id for n in self.graph.nodes if is_reduction(n))

    @cached_property
    def _unspared(self) -> frozenset[str]:
        """Nodes that a reader needs in memory."""
        return frozenset(self._written(results=False))

    def _written(self, readers: Collection[str] | None = None, results: bool = True) -> set[str]:
        """Nodes that some readers, or any, need in memory; and results, if asked."""
        written = set(self.graph.outputs) if results else set[str]()
        for node in reversed(self.graph.nodes):
            asks = node.id not in self._inner or (is_view(node) and node.id in written)
            if asks and (readers is None or node.id in readers):
                written.update(self.graph.edges[node.id])
        return written
