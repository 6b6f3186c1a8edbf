"""Finds where the nodes that a step added came from, and where those that it removed went.

`core.identity` says which nodes a step added, removed and changed. This module finds, from the two
graphs alone, which new nodes replace which old ones. Our own method, with four kinds of evidence,
the strongest first:

1. *Value*: a removed node that equals a remaining one, after replacing its inputs by what they
   became, was merged with it.
2. *Inputs*: a new node with the inputs and type of a removed one replaces it; a kernel with the
   inputs of a fused function is that function.
3. *Readers*: if a remaining reader, or a result of the program, has a new value in place of an old
   one, the new one replaces the old one. A removed product with a constant was folded into the new
   constant that its other operand reads now.
4. *Neighbours*: a node that served only one removed node went where that went, and a node that
   serves only one new node came from where that came from.

An origin is `sure` if one value provably takes the other's place, not if only its place in the
graph or model supports it. Linear in the size of both graphs; does not recurse over edges.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from operator import eq

from relascope.core.graph import Graph, Kind, Node
from relascope.core.identity import Matched, flat, own_key
from relascope.viz.compare.opened import FlatBodies

MOST = 12  # an origin names at most so many nodes

_GRADIENT = "gradient of "
_FAR = 64  # nodes looked at to find whether one is computed from another


class Fate(str, Enum):
    """How a node came or went; the nodes of its `Origin` complete the phrase."""

    FOLDED = "folded into"
    MERGED = "merged with"
    LEFT_OUT = "left out for"  # its readers read what it was computed from
    REPLACED = "replaced by"
    MOVED = "moved into"  # a fused function, or the kernel that it became
    DEAD = "dead"  # nothing reads it any more
    FOLDS = "folds"
    REPLACES = "replaces"
    FUSES = "fuses"
    INSERTED = "inserted behind"
    GRADIENT = "gradient of"
    ARGUMENT = "new argument"
    NEW = "new, reads"  # no node before did what it does
    CHANGED = "changed"


@dataclass(frozen=True)
class Origin:
    """The origin of one node. `nodes` are those that it came from (in the graph before, or new
    ones that it reads or follows) or went to (in the graph after)."""

    id: str  # of a removed one, from before the step
    what: str  # "added", "removed" or "changed"
    how: Fate
    nodes: tuple[str, ...] = ()
    sure: bool = True  # if more than its place supports it
    detail: str = ""  # how a changed one differs


def origins(before: Graph, matched: Matched) -> tuple[Origin, ...]:
    """The origin of every node that a step added, removed or changed, in graph order; `matched` is
    the graph after it under the ids of the one before (`core.identity.carry_identity`)."""
    search = _OriginSearch(before, matched)
    search.merge()
    search.pair_by_inputs(alike=True)
    search.pair_by_readers()
    search.pair_by_inputs(alike=False)
    search.follow_the_removed()
    search.follow_the_added()
    return search.result()


@dataclass(frozen=True)
class _Link:
    how: Fate
    nodes: tuple[str, ...]
    sure: bool


_DEAD = _Link(Fate.DEAD, (), True)


def _joined(links: Sequence[_Link]) -> _Link:
    """The first of several links, with the nodes of all links of its kind."""
    how = links[0].how
    nodes = _first(n for link in links if link.how is how for n in link.nodes)
    return _Link(how, nodes, all(link.sure for link in links))


class _OriginSearch:
    def __init__(self, before: Graph, matched: Matched) -> None:
        self.matched = matched
        self.old, self.new = FlatBodies(before), FlatBodies(matched.graph)
        self.removed, self.added = matched.removed, matched.added
        self.went: dict[str, _Link] = {}
        self.came: dict[str, _Link] = {}
        self.becomes: dict[str, str] = {}  # a removed node to the node that replaces it
        self.stands_for: dict[str, str] = {}  # an added node to the one that it replaces

    # 1. Value.

    def merge(self) -> None:
        # Equal constants are one value, although the graph may have one for each reader.
        first: dict[object, str] = {}
        equal = {
            i: first.setdefault(own_key(n), i)
            for i, n in (*self.new.nodes.items(), *self.old.nodes.items())
            if n.kind is Kind.CONSTANT
        }

        def one(read: Iterable[str]) -> tuple[str, ...]:
            return tuple(equal.get(i, i) for i in read)

        there: dict[object, str] = {}
        for ident, node in self.new.nodes.items():
            there.setdefault((own_key(node), one(self.new.reads[ident])), ident)
        for ident, node in self.old.nodes.items():
            if ident in self.removed and node.kind is not Kind.FUNCTION:
                same = there.get((own_key(node), one(self._now(self.old.reads[ident]))))
                if same is not None:
                    how = Fate.REPLACED if same in self.added else Fate.MERGED
                    self._stand(ident, same, how, True)

    # 2. Inputs.

    def pair_by_inputs(self, alike: bool) -> None:
        """Pair nodes of the same inputs and type; if `alike`, only of the same operator."""
        open_: dict[object, deque[str]] = defaultdict(deque)
        for ident, node in self.new.nodes.items():
            if node.edges and node.body is None and self._is_open(ident):
                open_[node.outputs, self.new.reads[ident]].append(ident)
        for node in _functions_first(self.old.graph):
            if node.id not in self.removed or node.id in self.went:
                continue
            found = open_.get((node.outputs, self._now(self.old.reads[node.id])))
            if not found:
                continue
            chosen = min(found, key=lambda i: -_likeness(node, self.new.nodes[i]))
            like = _likeness(node, self.new.nodes[chosen])
            if node.body is None and (like < 2 if alike else like == 0 and len(found) > 1):
                continue
            found.remove(chosen)
            if node.body is None:
                self._stand(node.id, chosen, Fate.REPLACED, like > 0)
            else:
                self._move(node.id, node.body, chosen)

    def _is_open(self, new: str) -> bool:
        return new in self.added and new not in self.came

    def _move(self, old: str, body: Graph, new: str) -> None:
        """Record that a function, with its nodes, became an added one."""
        for ident in (*(n.id for n in flat(body) if n.id in self.removed), old):
            self.went[ident] = _Link(Fate.MOVED, (new,), True)
        self.came[new] = _Link(Fate.REPLACES, (old,), True)
        self.becomes[old] = self.becomes[self.old.producers.get(old, old)] = new
        self.stands_for[new] = old

    # 3. Readers.

    def pair_by_readers(self) -> None:
        same_count = len(self.old.outputs) == len(self.new.outputs)
        for old, new in zip(self.old.outputs, self.new.outputs, strict=False):
            self._takes_the_place(old, new, same_count)
        for ident in reversed(tuple(self.new.nodes)):
            reader = self.new.nodes[ident]
            known = ident in self.old.nodes
            other = self.old.nodes.get(self.stands_for.get(ident, ident))
            if other is None or reader.body is not None or other.body is not None:
                continue
            was, now = self.old.reads[other.id], self.new.reads[ident]
            if self._now(was) == now:
                continue
            placed = bool(reader.source) and reader.source == other.source
            shared = any(map(eq, self._now(was), now))
            if known:
                sure = placed or (shared and own_key(reader) == own_key(other))
            elif _likeness(other, reader) > 1:
                sure = self.went[other.id].sure and (placed or shared or len(was) == 1)
            else:
                continue  # another operator: its arguments mean something else
            self._pair_arguments(was, now, sure)

    def _pair_arguments(self, was: tuple[str, ...], now: tuple[str, ...], sure: bool) -> None:
        """Pair a reader's arguments before and after; `sure` if it is the same reader."""
        if len(was) != len(now):
            gone = [i for i in was if self.becomes.get(i, i) not in now]
            for old, new in zip(gone, [i for i in now if i in self.added], strict=False):
                self._takes_the_place(old, new, False)
            return
        # Next to a changed weight, a changed value may compensate for the weight.
        weighs = any(a != b and self._constants(a, b) for a, b in zip(was, now, strict=True))
        for old, new in zip(was, now, strict=True):
            self._takes_the_place(old, new, sure and (old in self.constant or not weighs))

    def _takes_the_place(self, old: str, new: str, sure: bool) -> None:
        """Record that some reader has `new` in place of `old`."""
        if old == new or old not in self.old.nodes or new not in self.new.nodes:
            return
        was, now = self.old.nodes[old], self.new.nodes[new]
        typed = sure and was.outputs[:1] == now.outputs[:1]
        if old not in self.removed:
            if self._is_open(new):
                behind = _reaches(new, old, self.new.reads, self.added)
                self.came[new] = _Link(Fate.INSERTED if behind else Fate.REPLACES, (old,), behind)
        elif old in self.went:
            if typed and self.becomes.get(old) == new:  # a second witness
                self.went[old] = replace(self.went[old], nodes=(new,), sure=True)
                if new in self.came and old in self.came[new].nodes:
                    self.came[new] = replace(self.came[new], sure=True)
        elif now.kind is Kind.CONSTANT and old in self.constant:
            self._stand(old, new, Fate.FOLDED, typed)
        elif new not in self.added and self._computed_from(old, new):
            self._is_left_out(old, new, sure)
        else:
            self._stand(old, new, Fate.REPLACED, typed)

    def _is_left_out(self, old: str, new: str, sure: bool) -> None:
        # If it reads new nodes, it may compute something else than before.
        fresh = [i for i in self.new.reads[new] if i in self.added]
        self._stand(old, new, Fate.REPLACED if fresh else Fate.LEFT_OUT, sure and not fresh)
        taken = [i for i in fresh if self.new.nodes[i].kind is Kind.CONSTANT]
        if taken and self._weighs(old):  # a scale that a weight has taken over
            self.went[old] = _Link(Fate.FOLDED, tuple(taken[:1]), False)

    def _stand(self, old: str, new: str, how: Fate, sure: bool) -> None:
        self.went[old] = _Link(how, (new,), sure)
        self.becomes[old] = new
        if new in self.added:
            self.stands_for.setdefault(new, old)
            before = self.came.get(new)
            nodes = (*before.nodes, old) if before else (old,)
            back = Fate.FOLDS if how is Fate.FOLDED else Fate.REPLACES
            if len(nodes) <= MOST:
                self.came[new] = _Link(back, nodes, sure and (before is None or before.sure))

    # 4. Neighbours.

    def follow_the_removed(self) -> None:
        ends = set(self.old.outputs)
        end = tuple(i for i in self.new.outputs if i in self.added)[:1]
        for ident in reversed(tuple(self.old.nodes)):
            if ident not in self.removed or ident in self.went:
                continue
            node = self.old.nodes[ident]
            if node.body is not None:
                self.went[ident] = self._opened(node.body)
                continue
            fates = [self.went[r] for r in self.old.readers[ident] if r in self.removed]
            links = [link for f in fates if (link := self._served(ident, f)).how is not Fate.DEAD]
            guess = _Link(Fate.REPLACED, end, False) if end and ident in ends else _DEAD
            self.went[ident] = _joined(links) if links else guess

    def _served(self, ident: str, fate: _Link) -> _Link:
        """Where a node went if its reader had this fate."""
        if fate.how is Fate.LEFT_OUT:
            return fate if self._computed_from(ident, fate.nodes[0]) else _DEAD
        decided = ident in self.constant or self._weighs(ident)
        if fate.how is Fate.MERGED or (fate.how is Fate.FOLDED and not decided):
            return _Link(Fate.REPLACED, fate.nodes, False)
        return fate

    def _opened(self, body: Graph) -> _Link:
        inside = [n.id for n in flat(body)]
        kept = _first(i for i in inside if i in self.new.nodes)
        to = kept or _first(n for i in inside if i in self.went for n in self.went[i].nodes)
        return _Link(Fate.REPLACED, to, bool(kept)) if to else _DEAD

    def follow_the_added(self) -> None:
        by_place: dict[tuple[str, str], list[str]] = defaultdict(list)
        for ident, node in self.old.nodes.items():
            if node.source and node.kind is Kind.CALL:
                by_place[node.scope, node.source].append(ident)
        for ident in reversed(tuple(self.new.nodes)):
            node = self.new.nodes[ident]
            if ident in self.added and node.body is not None:
                inside = [n.id for n in flat(node.body) if n.id in self.new.nodes]
                old = _first(i for i in inside if i in self.old.nodes)
                self.came[ident] = _Link(Fate.FUSES, old or tuple(inside[:MOST]), bool(old))
            elif self._is_open(ident):
                self.came[ident] = self._comes(node, by_place)

    def _comes(self, node: Node, by_place: Mapping[tuple[str, str], list[str]]) -> _Link:
        if node.kind in (Kind.INPUT, Kind.PARAMETER):
            return _Link(Fate.ARGUMENT, (), True)
        forward = by_place.get((node.scope, node.source.removeprefix(_GRADIENT)))
        if forward and node.source.startswith(_GRADIENT):
            return _Link(Fate.GRADIENT, tuple(forward[:MOST]), True)
        serves = (self.came[r] for r in self.new.readers[node.id] if r in self.came)
        kinds = (Fate.REPLACES, Fate.FOLDS, Fate.INSERTED, Fate.GRADIENT)
        if links := [s for s in serves if s.how in kinds]:
            link = _joined(links)
            return replace(link, sure=link.sure and link.how is not Fate.GRADIENT)
        there = by_place.get((node.scope, node.source), ())
        if gone := tuple(filter(self.removed.__contains__, there)):
            return _Link(Fate.REPLACES, gone[:MOST], False)
        read = _first(i for i in self.new.reads[node.id] if i in self.new.nodes)
        return _Link(Fate.NEW, read or tuple(self.new.readers[node.id][:MOST]), True)

    # Shared by these.

    @cached_property
    def constant(self) -> set[str]:
        """Nodes of the graph before that depend on constants alone."""
        found: set[str] = set()
        for ident, node in self.old.nodes.items():
            read = [i for i in self.old.reads[ident] if i in self.old.nodes]
            if node.kind is Kind.CONSTANT or (node.inputs and found.issuperset(read)):
                found.add(ident)
        return found

    def _now(self, read: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.becomes.get(i, i) for i in read)

    def _constants(self, old: str, new: str) -> bool:
        was, now = self.old.nodes.get(old), self.new.nodes.get(new)
        return was is not None and now is not None and was.kind is now.kind is Kind.CONSTANT

    def _weighs(self, ident: str) -> bool:
        """Whether a node before the step reads both constant and other values."""
        return len({i in self.constant for i in self.old.reads[ident]}) > 1

    def _computed_from(self, ident: str, source: str) -> bool:
        """Whether a removed node was computed, through removed ones, from another node."""
        return _reaches(ident, source, self.old.reads, self.removed)

    def result(self) -> tuple[Origin, ...]:
        into: dict[str, list[str]] = defaultdict(list)
        found: list[Origin] = []
        for ident in filter(self.went.__contains__, self.old.nodes):
            link = self.went[ident]
            if link.how in (Fate.FOLDED, Fate.MOVED):
                into[link.nodes[0]].append(ident)
            if ident in self.removed:
                found.append(Origin(ident, "removed", link.how, link.nodes, link.sure))
        for ident, node in self.new.nodes.items():
            if ident in self.added:
                link = self.came[ident]
                nodes = _first((*link.nodes, *into.get(ident, ())))
                found.append(Origin(ident, "added", link.how, nodes, link.sure))
            elif ident in self.matched.changed:
                nodes, detail = self._difference(self.old.nodes[ident], node)
                found.append(Origin(ident, "changed", Fate.CHANGED, nodes, True, detail))
        return tuple(found)

    def _difference(self, old: Node, new: Node) -> tuple[tuple[str, ...], str]:
        """The nodes that a changed node newly reads, and its differences in words."""
        was, now = self.old.reads[old.id], self.new.reads[new.id]
        facts = [(n.kind.value, n.op, ", ".join(map(str, n.outputs))) for n in (old, new)]
        parts = [f"{a} → {b}" for a, b in zip(*facts, strict=True) if a != b]
        for key in dict.fromkeys((*old.attrs, *new.attrs)) if old.kind is new.kind else ():
            a, b = old.attrs.get(key), new.attrs.get(key)
            if a != b:
                parts.append(f"{key}: {_short(a)} → {_short(b)}")
        if len(was) != len(now):
            parts.append(f"reads {len(now)} values, not {len(was)}")
        else:
            pairs = ((a, b) for a, b in zip(was, now, strict=True) if a != b)
            parts += [f"reads {self._title(b)}, not {self._title(a)}" for a, b in pairs]
        return _first(i for i in now if i in self.new.nodes and i not in was), "; ".join(parts)

    def _title(self, ident: str) -> str:
        node = self.new.nodes.get(ident) or self.old.nodes.get(ident)
        return node.title if node is not None else ident.removeprefix("=")


def _functions_first(graph: Graph) -> Iterable[Node]:
    """All nodes, each fused function before its own."""
    for node in graph.nodes:
        yield node
        if node.body is not None:
            arguments = set(node.body.inputs)
            yield from (n for n in flat(node.body) if n.id not in arguments)


def _likeness(old: Node, new: Node) -> int:
    """The evidence that a node replaces another, besides its inputs and type."""
    named = old.kind is new.kind and _plain(old.op) == _plain(new.op)
    placed = bool(old.source) and (old.scope, old.source) == (new.scope, new.source)
    return 2 * named + placed


def _plain(op: str) -> str:
    """An operator's name without its namespace and the number that distinguishes kernels."""
    return re.sub(r"_?\d+$", "", op.rpartition(".")[2])


def _reaches(
    start: str, end: str, reads: Mapping[str, tuple[str, ...]], through: Iterable[str]
) -> bool:
    todo, seen = deque([start]), {start}
    while todo and len(seen) < _FAR:
        for source in reads.get(todo.popleft(), ()):
            if source == end:
                return True
            if source in through and source not in seen:
                seen.add(source)
                todo.append(source)
    return False


def _first(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))[:MOST]


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
