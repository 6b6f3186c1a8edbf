"""How much memory a function takes while it runs, estimated from its graph and its kernels.

Tensors between kernels get storages in order of execution: the smallest free one that is large
enough, else the largest, which grows, but within a factor of 16, as in TVM's graph planner (Chen et
al., "Training deep nets with sublinear memory cost", arXiv 1604.06174, section 3). Relax's results
have memory of their own; Relay's may reuse some. Inputs, parameters, masks and constants are free.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from relascope.core.graph import Graph, Kind
from relascope.passes.cost import storages

_RANGE = 16  # by what factor a storage may be larger or smaller than what it is to hold


@dataclass(frozen=True)
class Plan:
    """The memory of one call of a function, in bytes. `results` are of what the function returns,
    each storage once, `between` of the storages that its kernels hand results to each other in."""

    results: int
    between: int

    @property
    def bytes(self) -> int:
        """All that the call takes."""
        return self.results + self.between


def plan(graph: Graph, kernels: Sequence[Collection[str]], scratch: Sequence[int] = ()) -> Plan:
    """Plan the memory of a function. `kernels` are ids of each kernel's nodes, in order of
    execution; others are views, tuples and items. `scratch` is bytes that each kernel writes for
    the next one beside its nodes, such as layouts."""
    owner = storages(graph)
    place = {i: k for k, nodes in enumerate(kernels) for i in nodes}
    # Items and tuples stand for what they are of; views for their base, unless a kernel copies.
    for node in graph.nodes:
        if node.id in place:
            owner[node.id] = node.id
        elif node.edges and (node.kind is Kind.ITEM or owner[node.id] != node.id):
            owner[node.id] = owner[node.edges[0]]
    returned = {owner[o] for o in graph.outputs}
    last: dict[str, int] = {}
    for node in graph.nodes:
        here = place.get(node.id)
        if here is None:
            continue  # its readers count, by way of its owner
        todo = list(graph.edges[node.id])
        while todo:
            base = owner[todo.pop()]
            if base in place:
                if here != place[base]:
                    last[base] = max(last.get(base, -1), here)
            elif graph.by_id[base].kind is Kind.TUPLE:
                todo.extend(graph.edges[base])
    return _planned(graph, kernels, last, returned, scratch)


def _planned(
    graph: Graph,
    kernels: Sequence[Collection[str]],
    last: dict[str, int],
    returned: set[str],
    scratch: Sequence[int],
) -> Plan:
    results = between = 0
    free: list[int] = []  # sizes of free storages
    held: dict[str, int] = {}
    ends: dict[int, list[str]] = {}
    for base, index in last.items():
        ends.setdefault(index, []).append(base)
    spare: list[int] = []  # storages of scratch that the kernel before wrote
    for index, nodes in enumerate(kernels):
        before, spare = spare, []
        if index < len(scratch) and scratch[index]:
            found = _fitting(free, scratch[index])
            spare.append(max(scratch[index], found))
            between += spare[0] - found
        for node_id in nodes:
            size = graph.by_id[node_id].bytes or 0
            if node_id in returned:
                results += size
                if graph.ir == "relay":
                    # Its executor lays results where other tensors were before.
                    between -= min(size, _fitting(free, size))
            elif node_id in last:
                found = _fitting(free, size)
                held[node_id] = max(size, found)
                between += held[node_id] - found
        free.extend(before)
        free.extend(held.pop(base) for base in ends.get(index, ()) if base in held)
    return Plan(results, between)


def _fitting(free: list[int], size: int) -> int:
    """Take a free storage for so many bytes; 0 where none will do."""
    large = [s for s in free if size <= s <= size * _RANGE]
    small = [s for s in free if size / _RANGE <= s < size]
    if not large and not small:
        return 0
    chosen = min(large) if large else max(small)
    free.remove(chosen)
    return chosen
