"""Aligns the nodes of two graphs of one model by their origins.

Two compilers draw one PyTorch model differently, but each node has its module and PyTorch operator.
Connected nodes of one graph that share both form one *occurrence*: one call in PyTorch, or several
in a row. Occurrences of one module and operator are paired by their matched nodes, otherwise in
order. Takes time proportional to the edges, and does not recurse.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from relascope.core.graph import Graph, Kind
from relascope.core.identity import flat
from relascope.core.operators import category
from relascope.viz.compare.match import Matching

Key = tuple[str, str]  # scope, framework operator


@dataclass(frozen=True, slots=True)
class MatchedGroup:
    """What one PyTorch operator of one module became in the left and right graphs."""

    scope: str
    source: str
    nodes: tuple[tuple[str, ...], tuple[str, ...]]  # ids
    operators: tuple[dict[str, int], dict[str, int]]  # calls; without any, items and tuples
    occurrences: tuple[int, int]  # that the nodes form
    paired: int  # occurrences


class Alignment:
    """The graphs of a matching, side 0 the left one, aligned by the origins of nodes."""

    def __init__(self, matching: Matching) -> None:
        self.graphs = (matching.left, matching.right)
        self._sides = (_ModelSide(matching.left), _ModelSide(matching.right))
        self._partner = _pair(*self._sides, matching)

    @cached_property
    def groups(self) -> tuple[MatchedGroup, ...]:
        """One for each module and operator, in the left graph's order, then the right's others."""
        left, right = self._sides

        def group(key: Key) -> MatchedGroup:
            ours, theirs = left.by_key.get(key, ()), right.by_key.get(key, ())
            nodes = left.nodes_of(key), right.nodes_of(key)
            called, counts = (left.called(key), right.called(key)), (len(ours), len(theirs))
            return MatchedGroup(*key, nodes, called, counts, sum(o in self._partner for o in ours))

        return tuple(map(group, {**left.by_key, **right.by_key}))

    def without_origin(self, side: int) -> tuple[str, ...]:
        """Ids of a graph's calls and functions without a PyTorch operator."""
        one = self._sides[side]
        made = (Kind.CALL, Kind.FUNCTION)
        return tuple(n.id for n in one.graph if n.kind in made and not one.keys[n.id])

    def of_one_origin(self, side: int, node_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Ids of the nodes, left and right, of the paired occurrences that contain a side's node;
        none if it has no origin or its occurrences no partner."""
        one = self._sides[side]
        found = {one.occurrence[node_id, key] for key in one.keys.get(node_id, ())}
        pairs = [both for both in self._partner.items() if both[side] in found]
        left, right = (
            one.in_order(n for both in pairs for n in one.occurrences[both[at]])
            for at, one in enumerate(self._sides)
        )
        return left, right


class _ModelSide:
    """One graph, cut into occurrences."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {n.id: i for i, n in enumerate(graph)}
        self.bodies: dict[str, Counter[tuple[Key, str]]] = {}
        self.keys = self._keys()
        self.occurrence: dict[tuple[str, Key], int] = {}
        self.occurrences: list[tuple[str, ...]] = []  # ids of the nodes of each
        self.by_key: dict[Key, list[int]] = defaultdict(list)
        for parts in self._parts():
            number, key = len(self.occurrences), next(iter(parts))[1]
            self.occurrences.append(tuple(n for n, _ in parts))
            self.occurrence.update(dict.fromkeys(parts, number))
            self.by_key[key].append(number)

    def nodes_of(self, key: Key) -> tuple[str, ...]:
        parts = (self.occurrences[o] for o in self.by_key.get(key, ()))
        return self.in_order(n for nodes in parts for n in nodes)

    def in_order(self, ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(set(ids), key=self.place.__getitem__))

    def called(self, key: Key) -> dict[str, int]:
        """How often each operator is called for a key, fused or not; data movement comes last."""
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
        """Every node's origins; a function has those of its body."""
        keys: dict[str, tuple[Key, ...]] = {}
        for node in self.graph:
            own: tuple[Key, ...] = ((node.scope, node.source),) if node.source else ()
            if node.kind in (Kind.INPUT, Kind.PARAMETER, Kind.CONSTANT):
                own = ()
            elif node.body is not None:
                inside = (n for n in flat(node.body) if n.kind is Kind.CALL and n.body is None)
                calls = [((n.scope, n.source), n.op) for n in inside if n.source]
                self.bodies[node.id] = Counter(calls)
                own = tuple(dict(calls)) or own
            elif node.kind is Kind.ITEM and not own and node.edges:
                own = keys[node.edges[0]][-1:]
            keys[node.id] = own
            # A tuple belongs to its reader.
            for source in () if node.kind is Kind.TUPLE else node.edges:
                if self.graph.by_id[source].kind is Kind.TUPLE:
                    keys[source] = keys[source] or own[:1]
        return keys

    def _parts(self) -> list[set[tuple[str, Key]]]:
        """The connected parts of each key's nodes, ordered by their last node."""
        from networkx.utils import UnionFind  # slow to import

        parts = UnionFind((node.id, key) for node in self.graph for key in self.keys[node.id])
        for node, source in ((n, source) for n in self.graph for source in n.edges):
            for key in set(self.keys[source]).intersection(self.keys[node.id]):
                parts.union((source, key), (node.id, key))
        return sorted(parts.to_sets(), key=lambda part: max(self.place[n] for n, _ in part))


def _pair(left: _ModelSide, right: _ModelSide, matching: Matching) -> dict[int, int]:
    """The right side's partners of the left's occurrences: by most matched nodes, else in order."""
    shared = set(left.by_key) & set(right.by_key)
    votes: dict[tuple[int, int], float] = defaultdict(float)
    for pair in matching.pairs:
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
