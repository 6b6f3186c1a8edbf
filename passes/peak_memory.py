"""How much memory a function takes while it runs, estimated from its graph and its kernels.

A tensor that one kernel hands to another has memory from the one that writes it to its last reader.
Results have memory of their own. Inputs, parameters, masks and constants are free.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from relascope.core.graph import Graph, Kind
from relascope.passes.cost import storages
from relascope.passes.held_memory import KernelLives


@dataclass(frozen=True)
class Plan:
    """The memory of one call of a function, in bytes. `results` are of what the function returns,
    each storage once, `between` the most that its kernels hold for each other at one time."""

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
    number = {node_id: n for n, node_id in enumerate(place)}
    read: dict[int, set[int]] = {k: set() for k in range(len(kernels))}
    for node_id, here in place.items():
        todo = list(graph.edges[node_id])
        while todo:
            base = owner[todo.pop()]
            if base in place:
                read[here] |= {number[base]} if place[base] != here else set()
            elif graph.by_id[base].kind is Kind.TUPLE:
                todo.extend(graph.edges[base])
    size = {i: graph.by_id[i].bytes or 0 for i in place}
    handed = set[int]().union(*read.values())
    made = {k: {number[i] for i in nodes} & handed for k, nodes in enumerate(kernels)}
    sizes = {n: 0 if i in returned else size[i] for i, n in number.items()}
    for k, written in enumerate(scratch[:-1]):
        for storages_of in (made[k], read[k + 1]):
            storages_of.add(-1 - k)
        sizes[-1 - k] = written
    lives = KernelLives(range(len(kernels)), {}, read, made, sizes, kept=())
    return Plan(sum(size[i] for i in returned & place.keys()), lives.peak(lives.order))
