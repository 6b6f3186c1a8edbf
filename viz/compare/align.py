"""Which nodes of two graphs of one model belong together, by what both say of their origin.

Two compilers draw one PyTorch model differently, but each node says which module and which PyTorch
operator it came from. Nodes of one graph that share both and are connected are taken as one
*occurrence*: one call in PyTorch, or several in a row. Occurrences of one module and operator are
paired where they read what is paired already, and otherwise in order. Everything here is plain
data, takes time in proportion to the edges, and recurses over nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from relascope.core.graph import Graph, Kind, Node
from relascope.core.identity import flat
from relascope.core.operators import category
from relascope.viz.compare.match import match
from relascope.viz.compare.words import common_word

Key = tuple[str, str]  # scope, framework operator


class Confidence(str, Enum):
    """How sure a counterpart is; the value is what people read."""

    OPERATOR = "same PyTorch operator"
    NAME = "same input or parameter"
    MODULE = "same module only"
    ENCLOSING = "enclosing module only"
    NONE = "no counterpart"


@dataclass(frozen=True, slots=True)
class Counterpart:
    """What stands in the other graph for a node or a module of this one.

    Args:
        confidence: how sure it is.
        nodes: ids in the other graph, in its order: those made of the same operator, or of the
            whole module. Empty for an enclosing module and where there is none.
        focus: the id among them to look at first, or None where the module is to be looked at.
        module: the path of the other graph's module that was found, where one was.
    """

    confidence: Confidence
    nodes: tuple[str, ...] = ()
    focus: str | None = None
    module: str = ""


@dataclass(frozen=True, slots=True)
class MatchedGroup:
    """What one PyTorch operator of one module became.

    Args:
        scope: the module's path.
        source: the framework's operator.
        nodes: ids of each graph's nodes, the left one's first.
        operators: of each graph, how often it calls which operator there; where it calls none,
            how many items or tuples there are.
        occurrences: in each graph, how many connected parts the nodes form.
        paired: how many of them have a partner.
    """

    scope: str
    source: str
    nodes: tuple[tuple[str, ...], tuple[str, ...]]
    operators: tuple[dict[str, int], dict[str, int]]
    occurrences: tuple[int, int]
    paired: int


class Alignment:
    """Two graphs of one model, held side by side: side 0 is the left one, side 1 the right one."""

    def __init__(self, left: Graph, right: Graph) -> None:
        self.graphs = (left, right)
        self._sides = (_ModelSide(left), _ModelSide(right))
        shared = set(self._sides[0].by_key) & set(self._sides[1].by_key)
        self._partner = _pair(*self._sides, shared)
        self._back = {theirs: ours for ours, theirs in self._partner.items()}

    @cached_property
    def groups(self) -> tuple[MatchedGroup, ...]:
        """One a module and operator, in the left graph's order, then what only the right has."""
        left, right = self._sides
        return tuple(self._group(key) for key in {**left.by_key, **right.by_key})

    def without_origin(self, side: int) -> tuple[str, ...]:
        """Ids of a graph's calls and functions that say of no operator that they came from it."""
        one = self._sides[side]
        made = (Kind.CALL, Kind.FUNCTION)
        return tuple(n.id for n in one.graph if n.kind in made and not one.keys[n.id])

    def counterpart(self, side: int, node_id: str) -> Counterpart:
        """What stands in the other graph for a node of this one.

        It is what the same PyTorch operator became, the node of the same kind first; for an input
        or parameter the one of the same name; else the module; else nothing. A constant goes with
        the first node that reads it.

        Raises:
            KeyError: the graph has no such node.
        """
        here, there = self._sides[side], self._sides[1 - side]
        node = here.graph.by_id[node_id]
        if node.kind in (Kind.INPUT, Kind.PARAMETER):
            if (found := there.named.get(node.name)) is not None:
                return Counterpart(Confidence.NAME, (found,), found)
            return self.module(side, _module_of(node))
        if node.kind is Kind.CONSTANT and here.graph.readers[node_id]:
            node = here.graph.by_id[here.graph.readers[node_id][0]]
        partner = self._back if side else self._partner
        ours = [here.occurrence[node.id, key] for key in here.keys[node.id]]
        theirs = [partner[o] for o in ours if o in partner]
        if theirs:
            nodes = there.in_order(n for o in theirs for n in there.occurrences[o].nodes)
            same = there.occurrences[theirs[-1]].nodes
            own = here.occurrences[next(o for o in ours if partner.get(o) == theirs[-1])].nodes
            focus = _same_kind(here.graph, own, node, there.graph, same)
            return Counterpart(Confidence.OPERATOR, nodes, focus, node.scope)
        keys = [k for k in here.keys[node.id] if k in there.by_key]
        if keys:  # that operator of that module, but which of several is not known
            nodes = there.in_order(n for k in keys for n in there.nodes_of(k))
            return Counterpart(Confidence.MODULE, nodes, None, keys[0][0])
        return self.module(side, node.scope)

    def module(self, side: int, path: str) -> Counterpart:
        """What stands in the other graph for a module: the same one, or the nearest around it."""
        there = self._sides[1 - side]
        around = path
        while around:
            if around in there.modules:
                if around != path:
                    return Counterpart(Confidence.ENCLOSING, module=around)
                return Counterpart(Confidence.MODULE, there.inside(path), None, path)
            around = around.rpartition(".")[0]
        return Counterpart(Confidence.NONE)

    def inside(self, side: int, path: str) -> tuple[str, ...]:
        """Ids of a graph's nodes in a module and in those within it, in graph order."""
        return self._sides[side].inside(path)

    def occurrence(self, side: int, node_id: str) -> tuple[str, ...]:
        """The node and what the same PyTorch operator became beside it, in graph order."""
        one = self._sides[side]
        found = (one.occurrence[node_id, key] for key in one.keys.get(node_id, ()))
        return one.in_order([node_id, *(n for o in found for n in one.occurrences[o].nodes)])

    def _group(self, key: Key) -> MatchedGroup:
        left, right = self._sides
        paired = sum(o in self._partner for o in left.by_key.get(key, ()))
        nodes = left.nodes_of(key), right.nodes_of(key)
        counts = len(left.by_key.get(key, ())), len(right.by_key.get(key, ()))
        return MatchedGroup(*key, nodes, (left.called(key), right.called(key)), counts, paired)


def align(left: Graph, right: Graph) -> Alignment:
    """Hold two graphs of one model side by side; see the module."""
    return Alignment(left, right)


@dataclass(frozen=True, slots=True)
class _Occurrence:
    key: Key
    nodes: tuple[str, ...]


class _ModelSide:
    """One graph, cut into occurrences."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {n.id: i for i, n in enumerate(graph)}
        self.bodies: dict[str, Counter[tuple[Key, str]]] = {}
        self.keys = self._keys()
        self.named = {n.name: n.id for n in graph if n.kind in (Kind.INPUT, Kind.PARAMETER)}
        self.occurrence: dict[tuple[str, Key], int] = {}
        self.occurrences: list[_Occurrence] = []
        self.by_key: dict[Key, list[int]] = defaultdict(list)
        for parts in self._parts():
            number, key = len(self.occurrences), parts[0][1]
            self.occurrences.append(_Occurrence(key, tuple(n for n, _ in parts)))
            self.occurrence.update(dict.fromkeys(parts, number))
            self.by_key[key].append(number)
        self.by_key = dict(self.by_key)

    @cached_property
    def modules(self) -> dict[str, list[str]]:
        """Ids of the nodes right in each module; a module around others is there, too."""
        modules: dict[str, list[str]] = {}
        for node in self.graph:
            scopes = {_module_of(node), *(scope for scope, _ in self.keys[node.id])}
            for scope in filter(None, scopes):
                modules.setdefault(scope, []).append(node.id)
        for scope in list(modules):
            while scope := scope.rpartition(".")[0]:
                modules.setdefault(scope, [])
        return modules

    def inside(self, path: str) -> tuple[str, ...]:
        below = path + "."
        found = (ids for at, ids in self.modules.items() if at == path or at.startswith(below))
        return self.in_order(i for ids in found for i in ids)

    def nodes_of(self, key: Key) -> tuple[str, ...]:
        parts = (self.occurrences[o].nodes for o in self.by_key.get(key, ()))
        return self.in_order(n for nodes in parts for n in nodes)

    def in_order(self, ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(set(ids), key=self.place.__getitem__))

    def called(self, key: Key) -> dict[str, int]:
        """How often each operator is called for a key, fused bodies included.

        Operators that only move data about stand last.
        """
        calls: Counter[str] = Counter()
        other: Counter[str] = Counter()
        for node_id in self.nodes_of(key):
            node = self.graph.by_id[node_id]
            if node_id in self.bodies:
                inside = self.bodies[node_id].items()
                calls.update({op: count for (of, op), count in inside if of == key})
            elif node.kind in (Kind.CALL, Kind.FUNCTION):
                calls[node.title] += 1
            else:
                other[node.kind.value] += 1
        counts = (calls or other).items()
        return dict(sorted(counts, key=lambda kv: (category(kv[0]) == "shape", -kv[1], kv[0])))

    def _keys(self) -> dict[str, tuple[Key, ...]]:
        """For every node where it comes from; a function comes from where its body does."""
        keys: dict[str, tuple[Key, ...]] = {}
        for node in self.graph:
            own: tuple[Key, ...] = ((node.scope, node.source),) if node.source else ()
            if node.kind in (Kind.INPUT, Kind.PARAMETER, Kind.CONSTANT):
                own = ()
            elif node.body is not None:
                calls = [n for n in _calls(node.body) if n.source]
                self.bodies[node.id] = Counter(((n.scope, n.source), n.op) for n in calls)
                own = tuple(dict.fromkeys((n.scope, n.source) for n in calls)) or own
            elif node.kind is Kind.ITEM and not own and node.edges:
                own = keys[node.edges[0]][-1:]
            keys[node.id] = own
            if own and node.kind is not Kind.TUPLE:
                for source in node.edges:  # a tuple is made for the one that reads it
                    if self.graph.by_id[source].kind is Kind.TUPLE and not keys[source]:
                        keys[source] = own[:1]
        return keys

    def _parts(self) -> list[list[tuple[str, Key]]]:
        """The connected parts of each key's nodes, ordered by where their last node stands."""
        above: dict[tuple[str, Key], tuple[str, Key]] = {}

        def root(one: tuple[str, Key]) -> tuple[str, Key]:
            while above[one] != one:
                above[one] = above[above[one]]
                one = above[one]
            return one

        for node in self.graph:
            for key in self.keys[node.id]:
                above[node.id, key] = node.id, key
            for source in node.edges:
                for key in set(self.keys[source]).intersection(self.keys[node.id]):
                    above[root((source, key))] = root((node.id, key))
        parts: dict[tuple[str, Key], list[tuple[str, Key]]] = defaultdict(list)
        for one in above:
            parts[root(one)].append(one)
        return sorted(parts.values(), key=lambda part: self.place[part[-1][0]])


def _pair(left: _ModelSide, right: _ModelSide, shared: set[Key]) -> dict[int, int]:
    """For occurrences of the left side their partners on the right.

    They are those that most of their nodes are matched with; what no node tells goes in order,
    where as many are left on both sides.
    """
    votes: dict[tuple[int, int], float] = defaultdict(float)
    for pair in match(left.graph, right.graph).pairs:
        for key in left.keys.get(pair.left, ()):
            if key in shared and key in right.keys.get(pair.right, ()):
                both = left.occurrence[pair.left, key], right.occurrence[pair.right, key]
                votes[both] += pair.sure
    partner: dict[int, int] = {}
    taken: set[int] = set()
    for ours, theirs in sorted(votes, key=lambda both: -votes[both]):
        if ours not in partner and theirs not in taken:
            partner[ours] = theirs
            taken.add(theirs)
    for key in shared:
        free = [o for o in left.by_key[key] if o not in partner]
        others = [o for o in right.by_key[key] if o not in taken]
        if len(free) == len(others):
            partner.update(zip(free, others, strict=True))
    return partner


def _same_kind(
    here: Graph, ours: tuple[str, ...], node: Node, there: Graph, theirs: tuple[str, ...]
) -> str:
    """Of the other graph's nodes the k-th that does what this node does, or the last of all.

    What a node does is its operator, under the name that both IRs know it by, or else its sort.
    """
    for what in (_word, _sort):
        same = [i for i in theirs if what(there.by_id[i]) == what(node)]
        if same:
            alike = [i for i in ours if what(here.by_id[i]) == what(node)]
            return same[min(alike.index(node.id), len(same) - 1)]
    return theirs[-1]


def _word(node: Node) -> str:
    return common_word(node) if node.kind is Kind.CALL else node.kind.value


def _sort(node: Node) -> str:
    return category(node.op) if node.kind is Kind.CALL else node.kind.value


def _module_of(node: Node) -> str:
    """A node's module; a parameter may be filed under its own name."""
    own = node.scope == node.name
    return node.scope.rpartition(".")[0] if own else node.scope


def _calls(body: Graph) -> list[Node]:
    """The calls inside a function, those of functions inside it included."""
    return [n for n in flat(body) if n.kind is Kind.CALL and n.body is None]
