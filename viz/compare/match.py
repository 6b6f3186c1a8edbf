"""Matches the nodes of two graphs, with the rule and the certainty of each pair.

The graphs may be of one program before and after a change, of two runs of one model, of two files,
or of two IRs; their ids are unrelated. Our own method; finding certain pairs by hashes first and
growing from them along edges is known from comparing binaries (Flake, "Structural Comparison of
Executable Objects", DIMVA 2004). In order:

1. *Computation*: the node and all that it is computed from are equal; or all that is computed from
   it is; or it is the only weight of that name, or constant of that content.
2. *Place in the model*: the only node of its operator, attributes, module and framework operator.
3. *Neighbours*: from every pair to the nodes that both read as one argument and to the readers of
   both, the best supported first, past nodes that only one side has.
4. *Order*: the remaining nodes between the same pairs, one after the other.
5. *Place*: another operator with the same inputs and readers; a fused group by its nodes.

Takes time proportional to the edges, times a queue's logarithm, and does not recurse.
"""

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import product

from relascope.core.graph import Graph, Kind, Node
from relascope.core.identity import parameter_of
from relascope.viz.compare.opened import FlatBodies, kernel_name


class Rule(str, Enum):
    """The rule that matched two nodes, with its text for people."""

    VALUE = "computes the same"
    USE = "is used for the same"
    NAME = "same name"
    CONTENT = "same constant"
    PLACE = "same module and operator"
    NEIGHBOURS = "same neighbours"
    ORDER = "same order"
    REPLACED = "another operator in its place"
    INSIDE = "fuses the same"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two matched nodes, by id, and the rule that found them."""

    left: str
    right: str
    rule: Rule
    sure: float  # from 0 to 1, see `Matching`
    same: bool  # whether the nodes are equal and read matched nodes


@dataclass(frozen=True)
class Matching:
    """Two matched graphs, with fused bodies opened. A pair's certainty is 1 if both compute the
    same all the way up, else the share of operator, attributes and types, module, inputs and
    readers that agree."""

    left: Graph
    right: Graph
    pairs: tuple[Pair, ...]  # in the left graph's order
    removed: tuple[str, ...]  # ids of nodes of the left only
    added: tuple[str, ...]  # ids of nodes of the right only
    results: bool  # whether both return matched results in the same order

    @cached_property
    def by_side(self) -> tuple[dict[str, Pair], dict[str, Pair]]:
        """Pairs by the left node's id, and by the right's."""
        return {p.left: p for p in self.pairs}, {p.right: p for p in self.pairs}

    @property
    def changed(self) -> tuple[Pair, ...]:
        return tuple(p for p in self.pairs if not p.same)

    @property
    def same(self) -> bool:
        return self.results and not (self.added or self.removed or self.changed)


def match(left: Graph, right: Graph) -> Matching:
    return _NodeMatcher(left, right).run()


_OWN, _PLACE, _SCOPE, _TYPE, _CLASS = 4.0, 3.0, 1.0, 1.0, 4.0
"""Points for a pair's own agreement; a neighbour that agrees is worth `_NEAR`."""
_NEAR, _NEAR_PAST, _NEAR_IN_ORDER = 2.0, 1.0, 0.5
_LEAST = 3.0  # points that a pair needs
_MANY = 8  # inputs of a node that are compared
_FAR = 2  # unmatched nodes past which the search for neighbours goes


class _GraphSide(FlatBodies):
    """One graph, with hashes of its nodes as numbers that both graphs share."""

    def __init__(self, graph: Graph, numbers: dict[Hashable, int], across: bool) -> None:
        super().__init__(graph)
        self.uses: dict[str, list[tuple[str, int]]] = defaultdict(list)
        """A node's readers, with the argument's index."""
        for reader, read in self.reads.items():
            if self.nodes[reader].body is None:
                for place, source in enumerate(read):
                    self.uses[source].append((reader, place))
        self.place_in_order = {ident: i for i, ident in enumerate(self.nodes)}
        around = [node for g in graph.with_bodies() for node in g]
        bodies = [(node.id, node.body) for node in around if node.body is not None]
        self.inside = {n.id: i for i, body in bodies for n in body if n.id not in body.inputs}
        """For each node in a fused function, the function."""
        self.partner: dict[str, str] = {}
        """For each matched node, its counterpart on the other side."""
        self.gap: dict[str, int] = {}

        def number(of: Hashable) -> int:
            return numbers.setdefault(of, len(numbers))

        self.word, self.own, self.named = dict[str, int](), dict[str, int](), dict[str, int]()
        for ident, node in self.nodes.items():
            word = _word(node, across)
            own = (word, "" if across else _attributes(node), node.outputs)
            self.word[ident] = number(word)
            self.own[ident] = number(own)
            self.named[ident] = number((*own, node.kind, node.name or parameter_of(node)))
        self.up, self.down = dict[str, int](), dict[str, int]()
        """Numbers for each node's computation, all the way up, and its use, all the way down."""
        for ident in self.nodes:
            above = tuple(self.up.get(r, r) for r in self.reads[ident])
            self.up[ident] = number(("up", self.named[ident], above))
        results = Counter(self.outputs)
        for ident in reversed(self.nodes):
            uses = tuple(sorted((self.down[reader], place) for reader, place in self.uses[ident]))
            self.down[ident] = number(("down", self.own[ident], results[ident], uses))

    def place(self, ident: str) -> tuple[str, str]:
        """A node's place in the model: module, framework operator."""
        node = self.nodes[ident]
        return node.scope, node.source

    def by_key(self, key: "_Key", groups: bool) -> dict[Hashable, list[str]]:
        """Free nodes by key: fused `groups` only, or all others."""
        found: dict[Hashable, list[str]] = defaultdict(list)
        for ident, node in self.nodes.items():
            if ident not in self.partner and (node.body is not None) == groups:
                value = key(self, ident)
                if value is not None:
                    found[value].append(ident)
        return found

    def line(self, ident: str) -> Iterator[tuple[int, str]]:
        """A free node, its first input, and so on, with their distances."""
        for far in range(_FAR + 1):
            if ident not in self.nodes or ident in self.partner:
                return
            yield far, ident
            read = [r for r in self.reads[ident] if r in self.nodes]
            if not read:
                return
            ident = read[0]

    def free_uses(self, *idents: str) -> list[tuple[str, int]]:
        """The free readers of some nodes, with the argument's index."""
        return [u for i in idents for u in self.uses[i] if u[0] not in self.partner]


_Key = Callable[[_GraphSide, str], Hashable]

_COMMON = {
    "permute_dims": "transpose",
    "concat": "concatenate",
    "batch_matmul": "matmul",
    "dense": "matmul",
    "bias_add": "add",
}
"""Names of operators common to both IRs."""


def _word(node: Node, across: bool) -> str:
    """The kind of a node, which neighbours and order match only to its equal."""
    if parameter_of(node) or node.kind is Kind.PARAMETER:
        return "parameter"
    if node.kind is not Kind.CALL:
        return node.kind.value
    word = node.op.rpartition(".")[2]
    return _COMMON.get(word, word) if across else kernel_name(node)


def _attributes(node: Node) -> str:
    """Attributes as text; for a constant, only its content."""
    if node.kind is Kind.CONSTANT and "digest" in node.attrs:
        return str(node.attrs["digest"])
    return json.dumps(dict(node.attrs), sort_keys=True, default=str)


class _NodeMatcher:
    def __init__(self, left: Graph, right: Graph) -> None:
        numbers: dict[Hashable, int] = {}
        self.across = left.ir != right.ir
        self.left, self.right = (_GraphSide(g, numbers, self.across) for g in (left, right))
        self.to, self.back = self.left.partner, self.right.partner
        self.rule: dict[str, Rule] = {}
        self.support: dict[tuple[str, str], float] = defaultdict(float)
        self.asked: dict[tuple[str, str], Rule] = {}
        self.queue: list[tuple[float, int, int, str, str]] = []
        self.spread: set[str] = set()  # the left nodes whose neighbours were looked at
        self.overlap: dict[str, float] = {}

    def run(self) -> Matching:
        self._sure()
        self._propose(lambda s, i: (s.own[i], *s.place(i)) if s.nodes[i].source else None)
        if len(self.left.outputs) == len(self.right.outputs):
            for a, b in zip(self.left.outputs, self.right.outputs, strict=True):
                self._above(a, b, _NEAR_PAST)
        self._grow()
        for find in (self._in_order, self._in_place, self._in_order):
            while find():
                self._grow()
        self._functions()
        return self._result()

    # What is known without neighbours.

    def _sure(self) -> None:
        keys: tuple[tuple[Rule, _Key], ...] = (
            (Rule.VALUE, lambda s, i: (s.up[i], s.down[i], s.place(i))),
            (Rule.VALUE, lambda s, i: (s.up[i], s.place(i))),
            (Rule.VALUE, lambda s, i: s.up[i]),
            (Rule.NAME, _name),
            (Rule.CONTENT, _content),
            (Rule.USE, lambda s, i: s.down[i] if s.nodes[i].inputs else None),
        )
        for rule, key in keys:
            if self.across and rule in (Rule.VALUE, Rule.USE):
                continue  # equality without attributes proves nothing
            for a, b in list(self._classes(key)):
                self._take(a, b, rule)

    def _classes(
        self, key: _Key, alike: bool = False, groups: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Pairs of free nodes, or `groups`, by keys: unique or, if `alike`, equally frequent."""
        ours, theirs = (side.by_key(key, groups) for side in (self.left, self.right))
        for value, ids in ours.items():
            others = theirs.get(value, ())
            if len(ids) == len(others) and (alike or len(ids) == 1):
                yield from zip(ids, others, strict=True)

    def _take(self, a: str, b: str, rule: Rule) -> None:
        self.to[a], self.back[b], self.rule[a] = b, a, rule

    # Neighbours.

    def _propose(self, key: _Key, rule: Rule = Rule.PLACE) -> bool:
        """Support pairs with the same key, in order if that is the rule."""
        found = list(self._classes(key, rule is Rule.ORDER))
        for a, b in found:
            self._back_up(a, b, _NEAR_IN_ORDER if rule is Rule.ORDER else _NEAR, rule)
        return bool(found)

    def _grow(self) -> None:
        """Take the best supported pairs, and support their neighbours."""
        for a in [a for a in self.to if a not in self.spread]:
            self._beside(a)
        while self.queue:
            points, _, _, a, b = heapq.heappop(self.queue)
            now = self._points(a, b) if self._free(a, b) else 0.0
            if now < _LEAST or -points < now:
                continue  # a pair with more points by now has another entry
            if -points > now:
                self._wait(a, b, now)
                continue
            self._take(a, b, self.asked[a, b])
            self._beside(a)

    def _beside(self, a: str) -> None:
        self.spread.add(a)
        b = self.to[a]
        ours, theirs = self.left.reads[a], self.right.reads[b]
        if len(ours) == len(theirs):
            for x, y in zip(ours, theirs, strict=True):
                self._above(x, y, _NEAR)
            if len(ours) == 2:
                self._above(ours[0], theirs[1], _NEAR_PAST)
                self._above(ours[1], theirs[0], _NEAR_PAST)
        else:
            for x, y in product(ours[:_FAR], theirs[:_FAR]):
                self._above(x, y, _NEAR_PAST)
        self._below(a, b)

    def _above(self, x: str, y: str, points: float) -> None:
        """Support the pair of inputs, or of their own first inputs."""
        uppers = list(self.right.line(y))
        for far, x_up in self.left.line(x):
            for further, y_up in uppers:
                if far + further <= _FAR and self._may_be(x_up, y_up):
                    near = points if far + further == 0 else _NEAR_PAST
                    self._back_up(x_up, y_up, near, Rule.NEIGHBOURS)
                    return

    def _may_be(self, a: str, b: str) -> bool:
        return self._free(a, b) and self.left.word[a] == self.right.word[b]

    def _free(self, a: str, b: str) -> bool:
        return a not in self.to and b not in self.back

    def _below(self, a: str, b: str) -> None:
        """Support pairs of readers that are unique for a key, or pairs behind them."""
        ours = dict.fromkeys(self.left.free_uses(a))
        theirs = dict.fromkeys(self.right.free_uses(b))
        keys: tuple[tuple[float, Callable[[_GraphSide, str, int], Hashable]], ...] = (
            (_NEAR, lambda s, i, at: (at, s.own[i], s.place(i))),
            (_NEAR, lambda s, i, at: (at, s.word[i], s.place(i))),
            (_NEAR, lambda s, i, at: (at, s.down[i])),
            (_NEAR, lambda s, i, at: (at, s.own[i])),
            (_NEAR, lambda s, i, at: (at, s.word[i])),
            (_NEAR_PAST, lambda s, i, at: s.word[i]),
        )
        for points, key in keys:
            if not ours or not theirs:
                break
            here, there = _grouped(self.left, ours, key), _grouped(self.right, theirs, key)
            for value, uses in here.items():
                others = there.get(value, ())
                if len(uses) == len(others) == 1:
                    self._back_up(uses[0][0], others[0][0], points, Rule.NEIGHBOURS)
                    del ours[uses[0]], theirs[others[0]]
        if max(len(ours), len(theirs)) <= 2 * _FAR:
            self._past(list(ours), list(theirs), a, b)

    def _past(
        self, ours: list[tuple[str, int]], theirs: list[tuple[str, int]], a: str, b: str
    ) -> None:
        """Look behind readers without a counterpart, which only one side may have."""
        behind_ours = self.left.free_uses(*(r for r, _ in ours))
        behind_theirs = self.right.free_uses(*(r for r, _ in theirs))
        free_ours = ours or self.left.free_uses(a)
        free_theirs = theirs or self.right.free_uses(b)
        for xs, ys in ((behind_ours, free_theirs), (free_ours, behind_theirs)):
            if max(len(xs), len(ys)) <= 2 * _FAR:
                for (x, _), (y, _) in product(xs, ys):
                    if self._may_be(x, y):
                        self._back_up(x, y, _NEAR_PAST, Rule.NEIGHBOURS)

    def _back_up(self, a: str, b: str, points: float, rule: Rule) -> None:
        self.support[a, b] += points
        self.asked.setdefault((a, b), rule)
        self._wait(a, b, self._points(a, b))

    def _wait(self, a: str, b: str, points: float) -> None:
        where = self.left.place_in_order[a], self.right.place_in_order[b]
        heapq.heappush(self.queue, (-points, *where, a, b))

    def _points(self, a: str, b: str) -> float:
        left, right = self.left, self.right
        points = self.support[a, b] + _OWN * (left.own[a] == right.own[b])
        points += _CLASS * ((left.up[a] == right.up[b]) + (left.down[a] == right.down[b]))
        points += _TYPE if left.nodes[a].outputs == right.nodes[b].outputs else -_TYPE
        read = right.reads[b][:_MANY]
        for source in left.reads[a][:_MANY]:
            other = self.to.get(source)
            points -= _NEAR * (other is not None and other not in read)
        ours, theirs = left.nodes[a], right.nodes[b]
        if ours.scope and theirs.scope:
            if ours.scope != theirs.scope:
                points -= _PLACE
            elif ours.source == theirs.source:
                points += _PLACE
            else:
                points += _SCOPE
        return points

    # Without neighbours.

    def _in_order(self) -> bool:
        """Propose nodes of the same kind between the same pairs, in order."""
        self._set_gaps()
        keys: tuple[_Key, ...] = (
            lambda s, i: (s.up[i], s.down[i], s.place(i)),
            lambda s, i: (s.up[i], s.down[i]),
            lambda s, i: (s.own[i], s.place(i), s.gap[i]),
            lambda s, i: (s.word[i], s.place(i), s.gap[i]),
            lambda s, i: (s.own[i], s.place(i)),
            lambda s, i: (s.own[i], s.gap[i]),
            lambda s, i: s.own[i] if s.nodes[i].inputs else None,
        )
        size = len(self.to)
        for key in keys:
            if self._propose(key, Rule.ORDER):
                self._grow()
                if len(self.to) > size:
                    return True
        return False

    def _set_gaps(self) -> None:
        """Set each node's gap: the pair before it, in the right graph's order."""
        rank = {b: i for i, b in enumerate(b for b in self.right.nodes if b in self.back)}
        for side, ranks in (
            (self.left, {a: rank[b] for a, b in self.to.items()}),
            (self.right, rank),
        ):
            last = -1
            for ident in side.nodes:
                side.gap[ident] = last = ranks.get(ident, last)

    def _in_place(self) -> bool:
        """Match nodes of the same inputs and type, whatever their operators."""

        def reads(side: _GraphSide, ident: str) -> Hashable:
            read = side.reads[ident]
            if side is self.left:
                read = tuple(self.to.get(r, r if r.startswith("=") else "") for r in read)
            elif any(r in side.nodes and r not in self.back for r in read):
                return None
            return (read, side.nodes[ident].outputs) if read and "" not in read else None

        found = False
        for a, b in list(self._classes(reads)):
            served = {self.to.get(r) for r in self.left.readers[a]}
            readers = self.right.readers[b]
            free = not self.left.readers[a] and not readers
            if free or any(r in served or r not in self.back for r in readers):
                self._take(a, b, Rule.REPLACED)
                found = True
        return found

    def _functions(self) -> None:
        """Pair fused groups by the overlap of their nodes."""
        sizes = Counter(self.left.inside.values()), Counter(self.right.inside.values())
        shared: Counter[tuple[str, str]] = Counter()
        for inner in self.left.nodes:
            one = self.left.inside.get(inner)
            other = self.right.inside.get(self.to.get(inner, ""))
            if one and other:
                shared[one, other] += 1

        def overlap(pair: tuple[str, str]) -> float:
            both = shared[pair]
            return both / (sizes[0][pair[0]] + sizes[1][pair[1]] - both)

        place = self.left.place_in_order
        for one, other in sorted(shared, key=lambda p: (-overlap(p), place[p[0]])):
            if self._free(one, other):
                self._take(one, other, Rule.INSIDE)
                self.overlap[one] = overlap((one, other))
        for a, b in list(self._classes(lambda s, i: (s.word[i], s.place(i)), groups=True)):
            self._take(a, b, Rule.PLACE)

    # The result.

    def _result(self) -> Matching:
        pairs = tuple(self._pair(a, self.to[a]) for a in self.left.nodes if a in self.to)
        removed = tuple(a for a in self.left.nodes if a not in self.to)
        added = tuple(b for b in self.right.nodes if b not in self.back)
        results = tuple(self.to.get(o, "") for o in self.left.outputs) == self.right.outputs
        return Matching(self.left.graph, self.right.graph, pairs, removed, added, results)

    def _pair(self, a: str, b: str) -> Pair:
        left, right, rule = self.left, self.right, self.rule[a]
        reads = tuple(self.to.get(r, r) for r in left.reads[a])
        equal = left.named[a] == right.named[b]
        same = equal and reads == right.reads[b] and self.overlap.get(a, 1.0) == 1
        if same and not self.across and left.up[a] == right.up[b]:
            return Pair(a, b, Rule.VALUE, 1.0, same)
        if rule in (Rule.NAME, Rule.CONTENT):
            return Pair(a, b, rule, 0.99, same)
        sure = self.overlap[a] if rule is Rule.INSIDE else self._sureness(a, b, reads)
        return Pair(a, b, rule, round(sure, 2), same)

    def _sureness(self, a: str, b: str, reads: tuple[str, ...]) -> float:
        left, right = self.left, self.right
        alike = 1.0 if left.own[a] == right.own[b] else 0.3 * (left.word[a] == right.word[b])
        parts = [(0.3, alike)]
        if left.nodes[a].scope and right.nodes[b].scope:
            parts.append((0.2, float(left.place(a) == right.place(b))))
        if reads or right.reads[b]:
            parts.append((0.25, _agree(reads, right.reads[b])))
        served = [self.to.get(r, r) for r in left.readers[a]]
        if served or right.readers[b]:
            parts.append((0.25, _agree(served, right.readers[b])))
        return min(sum(w * p for w, p in parts) / sum(w for w, _ in parts), 0.98)


def _agree(ours: Iterable[str], theirs: Iterable[str]) -> float:
    """The share of elements that two lists have in common."""
    first, second = Counter(ours), Counter(theirs)
    return (first & second).total() / max(first.total(), second.total(), 1)


def _name(side: _GraphSide, ident: str) -> Hashable:
    node = side.nodes[ident]
    name = parameter_of(node) or (node.name if node.kind is Kind.INPUT else "")
    return ("name", name) if name else None


def _content(side: _GraphSide, ident: str) -> Hashable:
    node = side.nodes[ident]
    if node.kind is not Kind.CONSTANT or "digest" not in node.attrs:
        return None
    return node.attrs["digest"], node.outputs


def _grouped(
    side: _GraphSide,
    uses: Iterable[tuple[str, int]],
    key: Callable[[_GraphSide, str, int], Hashable],
) -> dict[Hashable, list[tuple[str, int]]]:
    found: dict[Hashable, list[tuple[str, int]]] = defaultdict(list)
    for use in uses:
        found[key(side, *use)].append(use)
    return found
