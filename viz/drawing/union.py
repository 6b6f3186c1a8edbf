"""The union of the graphs of a program's steps, so that all are drawn in the same places.

A node has one slot in all its steps. A new node takes the slot of the node that it replaces, or of
the last that it fuses, if free, else a new slot. The union is laid out, and each step leaves the
slots that it lacks blank, so nothing moves from step to step.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from relascope.core.graph import Graph, Node, Role
from relascope.viz.drawing import labels
from relascope.viz.drawing.modules import GroupTree, module_groups

LEAST_KNOWN = 0.5
"""The share of a graph's nodes that must have a slot; otherwise, the union starts over."""


@dataclass
class Union:
    """Steps laid out together, in order."""

    slot: dict[str, str] = field(default_factory=dict)  # by a node's id, that of its first node
    nodes: dict[str, Node] = field(default_factory=dict)  # by slot, the one with most text
    reads: dict[str, dict[str, None]] = field(default_factory=dict)  # slots, read in any step
    version: int = 0  # counts changes
    _made: tuple[int, Graph, GroupTree] | None = None

    def add(self, graph: Graph, beside: Mapping[str, str] | None = None) -> None:
        """Give each node of a step a slot; `beside` maps new nodes to those that they replace."""
        if not self.knows(graph):
            self.slot, self.nodes, self.reads = {}, {}, {}
        taken = {self.slot[n.id] for n in graph.nodes if n.id in self.slot}
        grew, stands_for = False, beside or {}
        before = len(self.slot), sum(map(len, self.reads.values()))
        for node in graph.nodes:
            if node.id not in self.slot:
                others = (self.slot.get(i) for i in (*_fused(node), stands_for.get(node.id, "")))
                free = (slot for slot in others if slot is not None and slot not in taken)
                self.slot[node.id] = next(free, node.id)
                taken.add(self.slot[node.id])
            slot = self.slot[node.id]
            larger = _larger(self.nodes.get(slot), node)
            grew |= _size(larger) != _size(self.nodes.get(slot))
            self.nodes[slot] = larger
            reads = self.reads.setdefault(slot, {})
            reads |= dict.fromkeys(r for e in node.edges if (r := self.slot[e]) != slot)
        if grew or before != (len(self.slot), sum(map(len, self.reads.values()))):
            self.version += 1

    def knows(self, graph: Graph) -> bool:
        """Whether enough of a graph has slots for it to be a step of these."""
        known = sum(any(i in self.slot for i in (n.id, *_fused(n))) for n in graph.nodes)
        return known >= LEAST_KNOWN * len(graph)

    def graph(self) -> tuple[Graph, GroupTree]:
        """All slots as a graph, producers first, with its modules, cached by version. If steps
        contradict each other in order, the earlier one decides."""
        if self._made is None or self._made[0] != self.version:
            nodes = [
                replace(self.nodes[slot], id=slot, inputs=tuple(reads), body=None)
                for slot, reads in self._sorted().items()
            ]
            made = Graph("union", "", tuple(nodes), (), ())
            self._made = self.version, made, module_groups(made)
        return self._made[1:]

    def _sorted(self) -> dict[str, list[str]]:
        """By slot, in topological order, the earlier slots that it reads."""
        number = {slot: i for i, slot in enumerate(self.nodes)}
        slots = list(number)
        readers: dict[str, list[str]] = defaultdict(list)
        waiting = {slot: len(self.reads[slot]) for slot in slots}
        for slot, reads in self.reads.items():
            for read in reads:
                readers[read].append(slot)
        ready = [number[slot] for slot in slots if not waiting[slot]]
        found: dict[str, list[str]] = {}
        first = 0
        while len(found) < len(slots):
            if not ready:  # a cycle: break it at its first slot
                while slots[first] in found:
                    first += 1
                ready.append(number[slots[first]])
            slot = slots[heappop(ready)]
            found[slot] = [read for read in self.reads[slot] if read in found]
            for reader in readers[slot]:
                waiting[reader] -= 1
                if not waiting[reader] and reader not in found:
                    heappush(ready, number[reader])
        return found


def _fused(node: Node) -> tuple[str, ...]:
    return tuple(node.body.outputs) if node.body is not None else ()


def _size(node: Node | None) -> tuple[bool, int]:
    """Whether a box has a second line, and its approximate width in characters."""
    if node is None:
        return False, 0
    second = labels.subtitle(node)
    return bool(second), max(len(labels.title(node)), len(second))


def _larger(old: Node | None, new: Node) -> Node:
    if old is None:
        return new
    larger, scope, role = _size(old) >= _size(new), old.scope, new.role
    if role is Role.NONE:
        role = old.role
    return replace(old if larger else new, scope=scope, role=role)
