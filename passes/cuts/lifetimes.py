"""How long a training step holds each tensor, and the most bytes that it holds at once.

Captures, masks, results, recomputed values, and everything else that forward and backward write
count, in the order of nodes that holds least, which engines use. Captures are freed after their
last reader. An elementwise operator or a reduction computes the elements that only it reads. In
Relax, an elementwise operator writes over an operand that it is the last to read. In Relay, what
else a function computes is in one memory, which it has at its largest as long as it runs; and
products read and write transposed matrices in place. Otherwise each node is a kernel, storages are
not packed, and memory inside libraries' kernels does not count. Unknown dimensions count as none.

A capture on the host is held until its last reader in the forward, and again from the copy back,
right before its first reader in the backward; memory of the host does not count."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain

from relascope.core.graph import Role, read_first
from relascope.passes.cuts.joint import MARK, Joint, Rewiring, original
from relascope.passes.kernel_memory import KernelLives

AGAIN = "again"
"""The role of what the backward computes again."""


@dataclass(frozen=True)
class Lifetime:
    """The nodes between which a storage is held. Nodes are numbered from 1 through forward and
    backward, in order of execution; `begin` is 0 for what exists before the first, and `end` is
    None for what is held to the end. `id` is that of the node that writes it, `reads` are the
    numbers of its readers, and `role` is a node's (`core.graph.Role`), or "again" if the backward
    recomputes it. What is `pooled` shares its function's one memory in Relay."""

    id: str
    role: str
    bytes: int
    begin: int
    end: int | None
    reads: tuple[int, ...]
    pooled: bool

    def next_read(self, step: int) -> int | None:
        """The number of the first reader from a node on; None if none is left."""
        return next(iter(self.reads[bisect_left(self.reads, step) :]), None)


class _Phase:
    """Forward or backward: its nodes in graph order, or in that of `backward_order`, and the
    storages that they use. `results` are held to the end, and `given` exist before the first node.
    Captures in `copied` are a kernel each, which reads nothing if it copies `back`."""

    def __init__(
        self,
        joint: Joint,
        ids: list[str],
        results: Collection[str],
        given: Mapping[str, int],
        copied: Collection[str],
        back: bool,
        fused: bool,
    ) -> None:
        inside, by_id = frozenset(ids), joint.graph.by_id
        came = dict.fromkeys(copied if back else (), ())
        made = {i: () if i in given else joint.writes[i] for i in ids}
        made.update({i: joint.storages[i] for i in came})
        self.ids, self.given = ids, given
        self.bases = [*(b for of in made.values() for b in of), *given]
        read, over = {**joint.reads, **came}, {**joint.elementwise}
        sizes = dict.fromkeys(chain.from_iterable(map(read.__getitem__, ids)), 0)
        sizes.update({b: joint.work.bytes[i] for i, of in made.items() for b in of})
        sizes.update(given)
        other = dict[str, frozenset[str]]()
        for node_id, reader in _fused(joint, ids, inside, results, copied) if fused else ():
            if made[node_id]:
                sizes[node_id] = 0
            if reader in over:
                for each in (node_id, reader):
                    other.setdefault(each, frozenset(joint.reads[each]) - over[each])
                other[reader] |= other[node_id]
                if by_id[node_id].outputs == by_id[reader].outputs:
                    over[reader] |= over[node_id]
            read[reader] = tuple(dict.fromkeys(read[reader] + read[node_id]))
        over.update({i: over[i] - other[i] for i in other})
        sources = {**joint.graph.edges, **came} if came else joint.graph.edges
        self.sizes, apart = sizes, {*results, *given} if joint.graph.ir == "relay" else set()
        of = sources, read, made, sizes if fused else {**sizes, **dict.fromkeys(apart, 0)}
        self.lives = KernelLives(ids, *of, results, given.keys(), over, apart if fused else ())
        self.apart = apart

    @cached_property
    def overwritten(self) -> set[str]:
        """Storages that their last reader writes over."""
        return self.lives.overwritten(self.lives.best_order)

    def uses(self, before: int) -> dict[str, tuple[int, list[int]]]:
        """By storage the number of the node that writes it, or with which the phase begins after
        `before`, and those of its readers."""
        found = {base: (before and before + 1, list[int]()) for base in self.bases}
        for step, node in enumerate(self.lives.best_order, before + 1):
            found.update((s, (step, [])) for s in self.lives.writes[node])
            for storage in found.keys() & self.lives.read[node]:
                found[storage][1].append(step)
        return found


class Lifetimes:
    """A training step that saves `captured`, ids of a joint graph's nodes, and has those in
    `offloaded` on the host. `before` is a step with another rewiring of the backward. Unless
    `fused`, each node is a kernel, and the order is that in which they share the least memory."""

    def __init__(
        self,
        joint: Joint,
        captured: Collection[str],
        offloaded: Collection[str] = (),
        rewiring: Rewiring | None = None,
        before: "Lifetimes | None" = None,
        fused: bool = True,
    ) -> None:
        self.joint, self.captured, self.rewiring = joint, captured, rewiring or {}
        self.offloaded, self.fused = offloaded, fused
        self.rewired = rewired = joint.rewired(self.rewiring) if rewiring else joint
        self._away, results = map(joint.storages_of, (offloaded, joint.outputs))
        kept = {b: n for b, n in joint.kept(captured).items() if b not in self._away}
        kept |= {i: joint.work.bytes[i] for i in joint.drawn_again(captured)}  # while either runs
        masks = {i: kept[i] for i in joint.masks if i in kept}
        ends = results | rewired.storages_of(joint.gradients)
        given = kept | {b: joint.work.bytes[b] for b in results}
        again = {*joint.computed_again(captured), *(i for i in self.rewiring if MARK in i)}
        again |= {*offloaded}
        edges = rewired.graph.edges

        def read(node_id: str) -> Iterator[str]:
            return (e for e in edges[node_id] if e in again and node_id not in offloaded)

        # What is recomputed, or copied from the host, comes right before its first reader.
        back = [*read_first(joint.own_backward, read)]
        self._backward = _Phase(rewired, back, ends, given, offloaded, True, fused)
        self._before, self._kept, self._ends = before, kept, (results | kept.keys(), masks)
        self.forward, self.backward = len(joint.own_forward), len(back)

    @cached_property
    def _forward(self) -> _Phase:
        if self._before is not None:
            return self._before._forward
        ids = self.joint.own_forward
        return _Phase(self.joint, ids, *self._ends, self.offloaded, False, self.fused)

    def rewired_by(self, rewiring: Rewiring, fused: bool | None = None) -> "Lifetimes":
        """The same step, with another rewiring of the backward, `fused` or not."""
        fused = self.fused if fused is None else fused
        before = self if fused == self.fused else None
        return Lifetimes(self.joint, self.captured, self.offloaded, rewiring, before, fused)

    @cached_property
    def times(self) -> Mapping[str, int]:
        """How often the backward computes each of the forward's nodes that it computes."""
        return Counter(i for i in map(original, self._backward.ids) if i in self.joint.forward)

    @cached_property
    def peak(self) -> int:
        """The most bytes that are held at once."""
        forward, high = self._forward.lives, self.backward_peak
        # Most often the forward holds less in any order.
        return high if forward.peak(forward.order) <= high else max(high, self.forward_peak)

    @cached_property
    def backward_peak(self) -> int:
        """The most bytes that are held at once in the backward."""
        return self._backward.lives.lowest_peak

    @cached_property
    def forward_peak(self) -> int:
        """The most bytes that are held at once in the forward."""
        return self._forward.lives.lowest_peak

    @cached_property
    def order(self) -> list[str]:
        """Ids of the nodes, in order of execution."""
        return self._forward.lives.best_order + self._backward.lives.best_order

    @cached_property
    def all(self) -> tuple[Lifetime, ...]:
        """All storages, in the order in which they are written."""
        ahead, back = self._forward, self._backward
        uses = {ahead: ahead.uses(0), back: back.uses(self.forward)}

        def lifetime(base: str, phase: _Phase) -> Lifetime:
            begin, read = uses[phase][base]
            last, early = phase, list[int]()
            if phase is ahead and base in back.given:
                last, early, read = back, read, uses[back][base][1]
            kept = base in last.lives.kept or (base in last.given and not read)
            # What is written over its place is what is held then.
            end = None if kept else max(read, default=begin) - (base in last.overwritten)
            role = (Role.FORWARD if phase is ahead else Role.BACKWARD).value
            if base in self._kept or base in self._away:
                role = Role.CAPTURED.value
            elif phase is back and original(base) in self.joint.forward and base not in back.given:
                role = AGAIN
            more = (*early, *read), base not in last.apart
            return Lifetime(base, role, last.sizes[base], begin, end, *more)

        own = (b for b in back.bases if b not in back.given or b not in ahead.lives.sizes)
        found = [*(lifetime(b, ahead) for b in ahead.bases), *(lifetime(b, back) for b in own)]
        return tuple(sorted(found, key=lambda one: one.begin))

    def bytes(self, *roles: str) -> list[int]:
        """Bytes held while each node runs, of some roles or all; the first is before any runs. What
        is pooled in Relay counts as where it is most."""
        apart, pooled = (self._sums(of, *roles) for of in (False, True))
        return [n + pooled[at] for n, at in zip(apart, self._fullest, strict=True)]

    @cached_property
    def pooled(self) -> list[int]:
        """Bytes of what is pooled, or in Relax of all, that each node needs."""
        return self._sums(True)

    def _sums(self, pooled: bool, *roles: str) -> list[int]:
        change = [0] * (len(self.order) + 2)
        for one in self.all:
            if one.pooled == pooled and (not roles or one.role in roles):
                change[one.begin] += one.bytes
                change[-1 if one.end is None else one.end + 1] -= one.bytes
        return [*accumulate(change[:-1])]

    @cached_property
    def _fullest(self) -> list[int]:
        """For each node the one in its phase with most that is pooled; in Relax the node itself."""
        first, last = self.forward + 1, len(self.pooled)
        if self.joint.graph.ir == "relax":
            return [*range(last)]
        phases = filter(None, (range(1), range(1, first), range(first, last)))
        return [at for of in phases for at in [max(of, key=self.pooled.__getitem__)] * len(of)]

    def at(self, step: int) -> list[Lifetime]:
        """The storages held while a node runs, the largest first."""
        at = step, self._fullest[step]
        there = ((x, at[x.pooled]) for x in self.all if x.bytes)
        here = (x for x, now in there if x.begin <= now and (x.end is None or now <= x.end))
        return sorted(here, key=lambda one: -one.bytes)


def peak(joint: Joint, captured: Collection[str], offloaded: Collection[str] = ()) -> int:
    """Bytes at the peak of a step that saves `captured`, some of them on the host."""
    return Lifetimes(joint, captured, offloaded).peak


def _fused(
    joint: Joint, ids: list[str], inside: Collection[str], *out: Collection[str]
) -> list[tuple[str, str]]:
    """Nodes that join their readers' kernel, and each of these, in order: in Relax one alone, in
    Relay all of a kernel. Those in `out` do not."""
    found, kernel, several = list[tuple[str, str]](), dict[str, str](), joint.graph.ir == "relay"
    for node_id in (i for i in reversed(ids) if i in joint.joins and not any(i in o for o in out)):
        readers = [r for r in joint.graph.readers[node_id] if r in inside]
        one = len({kernel.get(r, r) for r in readers} if several else readers) == 1
        if one and joint.joins[node_id].issuperset(readers):
            kernel[node_id] = kernel.get(readers[0], readers[0])
            found += [(node_id, reader) for reader in readers]
    return found[::-1]
