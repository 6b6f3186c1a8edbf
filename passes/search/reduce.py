"""Finds a small piece of a program that still shows a fault, in few tries, whatever the compiler.

A piece is any set of nodes; values that it reads but does not compute are its arguments. The search
starts where values first differ, if known, else halves the program from both ends; then it drops
ever smaller chunks, down to single nodes: delta debugging (Zeller and Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", 2002)."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from relascope.core.graph import Graph, Kind, reached
from relascope.passes.search.bisect import Verdict

MOST = 80  # how many pieces are tried at most

_LEAVES = (Kind.INPUT, Kind.PARAMETER, Kind.CONSTANT)


@dataclass(frozen=True)
class Piece:
    """A part of a program. `nodes` are the ids of its nodes, in graph order; `outputs` those of its
    results among them, each one tensor."""

    nodes: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class PieceVerdict:
    """The result of trying a piece: bad if it shows the fault, in these outputs as far as known."""

    verdict: Verdict
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reduced:
    """The result of a reduction. `piece` is the smallest that shows the fault, None if the whole
    program does not; `tries` counts the pieces tried; `minimal` says that the fault disappears
    without any one node, and is False if tries ran out before."""

    piece: Piece | None
    tries: int
    minimal: bool = False


Judge = Callable[[Piece], PieceVerdict]


def whole(graph: Graph) -> Piece:
    """The piece of all nodes of a program."""
    nodes = tuple(n.id for n in graph if n.kind not in _LEAVES)
    computed = set(nodes)
    return Piece(nodes, tuple(dict.fromkeys(o for o in graph.outputs if o in computed)))


def read_values(graph: Graph, piece: Piece) -> tuple[str, ...]:
    """Ids of nodes that a piece reads but does not compute, except constants, in graph order."""
    inside = set(piece.nodes)
    read = {i for n in piece.nodes for i in graph.by_id[n].edges if i not in inside}
    return tuple(n.id for n in graph if n.id in read and n.kind is not Kind.CONSTANT)


def near(graph: Graph, same: Collection[str], differ: Collection[str]) -> tuple[str, ...]:
    """Where to look first: from the first node whose value differs back to equal values. `same` and
    `differ` are ids of nodes that exist after the pass, too, with equal or different values."""
    first = next((n.id for n in graph if n.id in differ and n.kind not in _LEAVES), None)
    if first is None:
        return ()
    ends = {n.id for n in graph if n.id in same or n.kind in _LEAVES}
    seen = reached([first], lambda i: (e for e in graph.edges[i] if e not in ends))
    return tuple(n.id for n in graph if n.id in seen)


def reduce(graph: Graph, judge: Judge, start: Collection[str] = (), most: int = MOST) -> Reduced:
    """Find a small piece that shows a fault. `judge` tries pieces of `graph`, the whole program
    first, no piece twice. `start` are ids of nodes near the fault; see `near`. After `most` tries,
    returns the smallest bad piece so far."""
    search = _Search(graph, judge, most)
    if not search.bad(search.all):
        return Reduced(None, search.tries)
    search.focus()
    if start:
        search.grow(start)
    if len(search.units) > 4:
        search.halve()
        search.focus()
    minimal = search.leave_out()
    if search.focus():
        minimal = search.leave_out()
    return Reduced(search.piece, search.tries, minimal)


Units = tuple[int, ...]


class _Search:
    """The smallest bad piece so far, in units that stay together, such as a tuple and its
    readers."""

    def __init__(self, graph: Graph, judge: Judge, most: int) -> None:
        self._graph, self._judge, self._most = graph, judge, most
        self._members, self._unit_of = _units(graph)
        self._read, self._neighbours = self._edges()
        self._known: dict[Piece, bool] = {}
        self.piece = whole(graph)
        self.all: Units = tuple(range(len(self._members)))
        self.units, self.tries = self.all, 0
        self._wrong: tuple[str, ...] = ()  # outputs of the piece that show the fault

    def _edges(self) -> tuple[list[set[int]], list[set[int]]]:
        read: list[set[int]] = [set() for _ in self._members]
        around: list[set[int]] = [set() for _ in self._members]
        for ident, unit in self._unit_of.items():
            for source in self._graph.edges[ident]:
                other = self._unit_of.get(source, unit)
                if other != unit:
                    read[unit].add(other)
                    around[unit].add(other)
                    around[other].add(unit)
        return read, around

    def bad(self, units: Units, outputs: tuple[str, ...] | None = None) -> bool:
        """Whether these units show the fault; if so, they become the smallest piece. `outputs` are
        by default the smallest piece's that are still in it, and nodes that it does not read."""
        piece = self._piece(units, outputs)
        if not piece.outputs:
            return False
        if piece in self._known:
            return self._known[piece]
        if self.tries >= self._most:
            return False
        self.tries += 1
        look = self._judge(piece)
        self._known[piece] = look.verdict is Verdict.BAD
        if look.verdict is not Verdict.BAD:
            return False
        self.units, self.piece, self._wrong = units, piece, look.outputs
        return True

    def _piece(self, units: Units, outputs: tuple[str, ...] | None) -> Piece:
        inside = {i for u in units for i in self._members[u]}
        nodes = tuple(n.id for n in self._graph if n.id in inside)
        if len(units) == len(self.all):
            return Piece(nodes, outputs or whole(self._graph).outputs)
        if outputs is None:
            read = {s for i in nodes for s in self._graph.edges[i]}
            kept = [o for o in self.piece.outputs if o in inside]
            ends = [i for i in nodes if i not in read and self._graph.by_id[i].is_tensor]
            outputs = tuple(dict.fromkeys([*kept, *ends]))
        return Piece(nodes, outputs)

    def focus(self) -> bool:
        """Keep one output that shows the fault, and the nodes it needs; whether that worked."""
        inside = set(self.units)
        for output in self._wrong[:1]:
            ahead = reached([self._unit_of[output]], lambda u: self._read[u] & inside)
            smaller = len(ahead) < len(self.units) or len(self.piece.outputs) > 1
            return smaller and self.bad(tuple(sorted(ahead)), (output,))
        return False

    def grow(self, start: Iterable[str]) -> None:
        """Try larger and larger surroundings of a place, while smaller than the piece so far."""
        around, hops = {self._unit_of[i] for i in start if i in self._unit_of}, 1
        while around and len(around) < len(self.units):
            if self.bad(tuple(sorted(around))):
                return
            for _ in range(hops):
                around |= {n for u in around for n in self._neighbours[u]}
            hops *= 2

    def halve(self) -> None:
        """Cut off as much as possible of the end, then of the beginning, by halving."""
        for from_end in (True, False):
            units = self.units
            low, high = 0, len(units)  # counts: too few, and enough
            while high - low > 1:
                middle = (low + high) // 2
                if self.bad(units[:middle] if from_end else units[-middle:]):
                    high = middle
                else:
                    low = middle

    def leave_out(self) -> bool:
        """Leave out chunks of the rest; whether every single unit was tried in vain."""
        size = max(1, len(self.units) // 2)
        while len(self.units) > 1:
            removed, place = False, len(self.units)
            while place > 0:
                low = max(0, place - size)
                if self.bad(self.units[:low] + self.units[place:]):
                    removed = True
                place = low
            if not removed and size == 1:
                break
            if not removed:
                size = max(1, size // 2)
            size = min(size, max(1, len(self.units) // 2))
        return self.tries < self._most


def _units(graph: Graph) -> tuple[list[list[str]], dict[str, int]]:
    """The ids of each unit, in order of its first node, and the unit of each computed node."""
    from networkx.utils import UnionFind  # slow to import

    computed = dict.fromkeys(n.id for n in graph if n.kind not in _LEAVES)
    root = UnionFind(computed)
    for node in graph:
        for source in graph.edges[node.id]:
            several = node.kind is Kind.ITEM or not graph.by_id[source].is_tensor
            if several and source in computed:
                root.union(node.id, source)
    numbers: dict[str, int] = {}
    members: list[list[str]] = []
    for node in graph:
        if node.id in computed:
            unit = numbers.setdefault(root[node.id], len(members))
            if unit == len(members):
                members.append([])
            members[unit].append(node.id)
    return members, {i: numbers[root[i]] for i in computed}


def operators(graph: Graph, piece: Piece) -> Sequence[str]:
    """The operators (and fused functions) that a piece calls."""
    found = (graph.by_id[i] for i in piece.nodes)
    return [n.op for n in found if n.kind in (Kind.CALL, Kind.FUNCTION)]
