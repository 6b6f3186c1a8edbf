"""Cuts that lower the peak of a step, and a bound of it: see `passes.cuts.lifetimes`."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from math import gcd, isfinite
from time import monotonic

import numpy as np

from relascope.core.graph import reached
from relascope.core.memo import Memo
from relascope.passes.cuts.flow import solved
from relascope.passes.cuts.frontier import FrontierPoint, Prices, frontier
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.layers import Few, few_layers
from relascope.passes.cuts.lifetimes import Lifetimes, peak
from relascope.passes.cuts.offload import may_wait, offloaded
from relascope.passes.cuts.per_use import fitted
from relascope.passes.cuts.problem import Wish

NEAR = 0.97  # what share of a quicker cut's bytes a cut with narrow places may keep at most
MOST = 32  # how many minimum cuts may be asked for the cuts to choose from
LARGE = 600  # nodes, beyond which nothing is asked
SECONDS = 4.0  # of the solver
_BOUNDS: Memo[int | None] = Memo(4)
_Found = tuple[frozenset[str], Lifetimes]
_SAFE = 1e-3  # more than the share by which HiGHS's own tolerances may let the bound be too high


def peak_limit(joint: Joint, wish: Wish) -> int | None:
    """A wish's budget as bytes of the peak: a float is a fraction of the peak where everything that
    crosses is kept. Raises ValueError where it is negative or not a number."""
    given = wish.budget
    if given is None:
        return None
    if not given >= 0:
        raise ValueError(f"a budget must be 0 or more, not {given}")
    return given if isinstance(given, int) else int(given * peak(joint, joint.crossings))


def within_peak(joint: Joint, wish: Wish) -> frozenset[str]:
    """Of the frontier's cuts, and of those that also save what the forward hands on at narrow
    places, the one with least time whose peak is within the wish's budget; without a budget, of
    those with the lowest peak. A lower budget never gives a higher peak. Raises ValueError where
    no such cut has so low a peak, or the budget is no number.

    Where the wish allows captures on the host, each cut has there what it needs to, and counts with
    the time of its copies; where values may be computed per use, likewise."""
    limit, points, prices = peak_limit(joint, wish), _points(joint, wish), Prices(joint, wish)

    def below(point: FrontierPoint, most: float, limit: int | None) -> _Found | None:
        """A cut and its step, if the peak is at most `most`; what cannot be is not simulated."""
        saved = prices.used(point.saved).saved
        away = may_wait(joint, saved, wish)
        if point.bytes - sum(joint.work.bytes[i] for i in away) > most or points[point]() > most:
            return None
        lives = Lifetimes(joint, saved, away)
        if wish.per_use and lives.forward_peak <= most:
            lives = fitted(lives, limit)
        return (saved, lives) if lives.backward_peak <= most and lives.peak <= most else None

    def quickest(limit: int) -> frozenset[str] | None:
        best, chosen = float("inf"), None
        for point in sorted(points, key=lambda p: p.seconds):
            if point.seconds < best and (found := below(point, limit, limit)) is not None:
                saved, lives = found
                if lives.offloaded:  # as few as will do
                    lives = Lifetimes(joint, saved, offloaded(joint, saved, wish, limit))
                    lives = fitted(lives, limit) if wish.per_use else lives
                taken = point.seconds + joint.more_seconds(saved, lives.offloaded, lives.times)
                best, chosen = (taken, saved) if taken < best else (best, chosen)
        return chosen

    if limit is not None and (chosen := quickest(limit)) is not None:
        return chosen
    lowest, seconds, chosen = 1 << 62, 0.0, frozenset[str]()
    for least, point in _lowest_first(points, wish):
        now = lowest, seconds
        if (least, point.seconds) < now and (found := below(point, lowest, None)) is not None:
            taken = point.seconds + joint.more_seconds(found[0], (), found[1].times)
            if (found[1].peak, taken) < now:
                lowest, seconds, chosen = found[1].peak, taken, found[0]
    if limit is not None:
        raise ValueError(f"the peak cannot be {limit:,} bytes: the lowest is {lowest:,}")
    # Copies may keep that peak in less time than the fewest bytes do.
    return (quickest(lowest) or chosen) if wish.offload else chosen


def peak_curve(joint: Joint) -> list[FrontierPoint]:
    """The cuts that `within_peak` finds as the budget falls, the quickest first."""
    points, prices = _points(joint, Wish()), Prices(joint, Wish())
    found, least = list[FrontierPoint](), float("inf")
    for point in sorted(points, key=lambda p: p.seconds):
        used = prices.used(point.saved)
        if points[point]() < least and (high := peak(joint, used.saved)) < least:
            found, least = [*found, used], high
    return found


def _quickest(
    points: list[FrontierPoint], peaks_of: Callable[[FrontierPoint], list[float]]
) -> list[FrontierPoint]:
    """Those that no quicker one has a lower peak than, of the step or of its forward: how often
    the backward computes a value does not change what the forward holds."""
    found, least = list[FrontierPoint](), [float("inf")] * 2
    for point in sorted(points, key=lambda p: p.seconds):
        peaks = peaks_of(point)
        if any(a < b for a, b in zip(peaks, least, strict=True)):
            found.append(point)
            least = [*map(min, peaks, least)]
    return found


Points = dict[FrontierPoint, Callable[[], float]]
"""Cuts to choose from, each with what gives bytes that its peak is not below."""


def _points(joint: Joint, wish: Wish) -> Points:
    """Cuts to choose from: of few of equal layers, spread to the others. The peak grows with each
    layer by as much, or at last by more, where another place of the step becomes the highest."""
    layers, prices = few_layers(joint, wish), Prices(joint, wish)
    few, more, times = layers or (Few(joint, {}), None, 0.0)
    own = Prices(few.joint, few.wish(wish)) if layers else prices

    def grown(point: FrontierPoint, per_use: bool = wish.per_use) -> list[float]:
        """The peaks of the whole, and of its forward."""
        steps, saved = list[Lifetimes](), few.spread(own.used(point.saved).saved)
        for each in filter(None, (few, more)):
            there = saved & each.joint.graph.by_id.keys()
            steps.append(Lifetimes(each.joint, there, may_wait(each.joint, there, each.wish(wish))))
        if per_use:
            steps[0] = fitted(steps[0])
            rewiring = few.rewired(steps[0].rewiring, steps[-1].joint)
            steps[1:] = [lives.rewired_by(rewiring) for lives in steps[1:]]
        peaks = [(lives.peak, lives.forward_peak) for lives in steps]
        return [a + (b - a) * times for a, b in zip(peaks[0], peaks[-1], strict=True)]

    points = _frontiers(few.joint, few.wish(wish))
    points = _quickest(points, partial(grown, per_use=False)) if wish.per_use else points
    if not layers:
        return dict.fromkeys(points, lambda: 0.0)
    spread = (prices.used(few.spread(own.used(p.saved).saved)) for p in points)
    return {s: cache(lambda p=p: grown(p)[0]) for s, p in zip(spread, points, strict=True)}


def _lowest_first(points: Points, wish: Wish) -> list[tuple[float, FrontierPoint]]:
    """Cuts with bytes that their peaks are not below, the least first."""
    found, least = list[tuple[float, FrontierPoint]](), float("inf")
    for point in sorted(points, key=lambda p: (p.bytes, p.seconds)):
        held = 0 if wish.offload or wish.on_host else point.bytes
        bytes_ = max(held, points[point]()) if held <= least else held
        found, least = [*found, (bytes_, point)], min(least, bytes_ or least)
    return sorted(found, key=lambda f: (f[0], f[1].seconds))


def _frontiers(joint: Joint, wish: Wish) -> list[FrontierPoint]:
    """Cuts to choose from. A minimum cut counts what is kept and not how long what is computed
    again is held, so it may cut a deep stack where each layer is computed again from the one
    before, and all of them are there when the backward begins. With what a layer hands to the next
    (Chen et al., "Training deep nets with sublinear memory cost", 2016), it does not. Where a layer
    has two such places, one of them may do: the one with which the fewest bytes take less time."""
    given = Prices(joint, wish).problem
    able = {i for i, b in zip(given.ids, given.save, strict=True) if isfinite(b)}
    places = [able & ids for ids in _narrow(joint)]
    sets = places, places[::2], places[1::2]
    every, *halves = (replace(wish, save=wish.save.union(*some)) for some in sets)
    half = min(halves, key=lambda h: Prices(joint, h).least().seconds)
    wishes = [wish, every, half] if any(places) else [wish]
    found: dict[frozenset[str], FrontierPoint] = {}
    for each in wishes:
        least = float("inf")
        for point in frontier(joint, each, MOST):  # the most bytes first
            if each is wish or point.bytes < NEAR * least:
                found[point.saved], least = point, point.bytes
    return [*found.values()]


def _narrow(joint: Joint) -> Iterator[set[str]]:
    """Ids of the storages that the forward hands on at each of its narrow places, in graph order,
    between any two of which it holds twice as many bytes."""
    order, edges, owner = joint.behind(joint.needed), joint.graph.edges, joint.work.owner
    left = Counter(owner[e] for i in order for e in edges[i])
    alive: dict[str, int] = {}
    held, most, least, place = 0, 0, float("inf"), set[str]()
    for node_id in order:
        if owner[node_id] == node_id and left[node_id]:
            held += alive.setdefault(node_id, joint.work.bytes[node_id])
        left.subtract(owner[e] for e in edges[node_id])
        ended = {owner[e] for e in edges[node_id] if not left[owner[e]]}
        held -= sum(alive.pop(b) for b in ended & alive.keys())
        if 2 * least <= held:
            yield place
            least, most = float("inf"), held
        most = max(most, held)
        if held < least and 2 * held <= most:
            least, place = held, {*alive}


def peak_bound(joint: Joint, start: tuple[str, ...], per_use: bool = False) -> int | None:
    """Bytes below which no captures on the device bring the peak of a step, as far as it is proven
    within `SECONDS`; `per_use` allows what `passes.cuts.per_use` does. `start` are the captures
    whose peak it is to be compared with. None for a large graph, or one without an answer."""
    return _BOUNDS.get((joint, per_use), lambda: _bound(joint, start, per_use))


def _bound(joint: Joint, start: tuple[str, ...], per_use: bool) -> int | None:
    if len(joint.graph) > LARGE:
        return None
    program, until = _Program(joint, per_use), monotonic() + SECONDS
    best, more = 0, 4
    while (nodes := program.busiest(start)[:more]) and monotonic() < until:
        for node in nodes:
            program.add(node)
        low, start = program.solved(max(until - monotonic(), 0.1))
        best, more = max(best, low), 2 * more
    return best or None


class _Program:
    """A mixed-integer program, for HiGHS. Only what is saved is integer, and the order is open,
    unlike in Checkmate (Jain et al., MLSys 2020): while a node of the backward runs, those that ran
    before are some set with all that its nodes read, and what one of them made and others have yet
    to read is held. The sets of different nodes need not fit together, and what is held while
    something is computed again, or in the forward, counts nowhere, which makes it a bound. Nodes
    enter where the best choice so far holds most.

    It has columns with their highest values, and rows that are 0 or more. Column 0 is the
    peak, in units of `unit` bytes; those after it say for each storage whether it is saved."""

    def __init__(self, joint: Joint, per_use: bool) -> None:
        self.joint, self.per_use, self.there = joint, per_use, set[str]()
        own, size = {*joint.own_backward}, joint.work.bytes
        lives = Lifetimes(joint, joint.crossings)._backward.lives
        results, again = joint.storages_of(joint.outputs), joint.behind(joint.needed)
        self.over, self.ends = lives.over, joint.storages_of(joint.gradients) - results
        self.base = dict.fromkeys(i for i in again if joint.writes[i] and i not in results)
        cost: dict[str, int] = {}  # of saving each storage: a view of it may be smaller
        for i in filter(joint.may_be_captured, again):
            for b in self.base.keys() & joint.storages[i]:
                cost[b] = min(size[i], cost.get(b, size[i]))
        read = (m for m in joint.masks if not own.isdisjoint(joint.graph.readers[m]))
        masks = {m: size[m] for m in read if m not in results}
        sizes = {**lives.sizes, **dict.fromkeys(results, 0)}
        made = {b: sizes[b] for b in joint.own_backward if joint.writes[b]}
        there = own.union(self.base, masks)
        self.reads = {i: there.intersection(joint.reads[i]) for i in (*own, *self.base)}
        self.readers: dict[str, list[str]] = {b: [] for b in (*made, *masks, *self.base)}
        for i in joint.own_backward:
            for b in self.reads[i]:
                self.readers[b].append(i)
        several = joint.graph.ir == "relay"
        one = (b for b in self.base if b in joint.joins and (several or len(self.readers[b]) < 2))
        fused = {b for b in one if joint.joins[b].issuperset(self.readers[b])}  # in its kernel
        self.size = made | masks | {b: 0 if b in fused else size[b] for b in self.base}
        every = *self.size.values(), *cost.values()
        self.fixed = sum(size[b] for b in results)
        self.step, self.unit = gcd(self.fixed, *every) or 1, max(1, self.fixed, *every)
        self.high, self.low = [np.inf], list[float]()
        self.entries = list[tuple[int, int, float]]()
        self.saved = {b: self.column() for b in cost}
        self.apart = self.column(np.inf) if joint.graph.ir == "relay" else 0
        self.waits = [(b, n, self.saved.get(b)) for b, n in (masks | cost).items()]
        kept = [(self.saved[b], -float(n)) for b, n in cost.items()]
        self.held(sum(masks.values()), kept, self.apart)
        self.held(sum(made[b] for b in self.ends & made.keys()), [], self.apart)

    def column(self, high: float = 1.0) -> int:
        self.high.append(high)
        return len(self.high) - 1

    def row(self, *terms: tuple[int, float], low: float = 0.0) -> None:
        self.entries += [(len(self.low), column, factor) for column, factor in terms]
        self.low.append(low)

    def held(self, bytes_: float, terms: list[tuple[int, float]], most: int = 0) -> None:
        """The peak, or what column `most` is, is at least the results, some bytes, and those of
        some columns."""
        scaled = [(c, n / self.unit) for c, n in terms]
        self.row((most, 1.0), *scaled, low=(self.fixed + bytes_) / self.unit)

    def busiest(self, captured: tuple[str, ...]) -> list[str]:
        """The backward's other nodes, first the one at which a step holds most."""
        lives, own = Lifetimes(self.joint, captured), {*self.joint.own_backward} - self.there
        held = dict(zip(lives.order, lives.pooled[1:], strict=True))
        return sorted(own, key=lambda i: (-held[i], i))

    def add(self, node: str) -> None:
        """The rows of one node of the backward."""
        graph, own = self.joint.graph, self.joint.own_backward
        self.there.add(node)
        after = {*reached([node], graph.readers.__getitem__)}
        before = {*reached([node], graph.edges.__getitem__)} - {node}
        ran = {i: self.column() for i in (*own, *self.base) if i not in after}
        for i in before.intersection(own):
            self.row((ran[i], 1.0), low=1.0)
        self.fits(node, ran)
        own_ends, pooled = self.ends & ran.keys(), list[tuple[int, float]]()
        terms = [(ran[b], -float(self.size[b])) for b in own_ends]
        makes = [(b, n, ran[b]) for b, n in self.size.items() if b in ran and b not in own_ends]
        for b, bytes_, made in (*makes, *self.waits):
            if not bytes_ or not self.readers[b]:
                continue
            alive = self.column()  # from what makes it, a column or always, to its last reader
            again = made == ran.get(b, -1)
            (pooled if again else terms).append((alive, -float(bytes_)))
            per_use = self.per_use and b in self.base and again
            for reader in self.readers[b]:
                if not per_use or reader == node:
                    ends = [(ran[reader], 1.0)] if reader in ran else []
                    there = [] if made is None else [(made, -1.0)]
                    self.row((alive, 1.0), *there, *ends, low=0.0 if there else 1.0)
        writes = self.writes(node, after - {node})
        if self.apart:
            self.held(writes * (node in self.ends), terms, self.apart)
            writes = writes * (node not in self.ends) - self.fixed
            terms = [(self.apart, -float(self.unit))]
        self.held(writes, terms + pooled)

    def fits(self, node: str, ran: dict[str, int]) -> None:
        """The rows by which a node, and what ran before it, have all that they read."""
        for i in (node, *ran):
            when = [(ran[i], -1.0)] if i in ran else []
            low = 0.0 if when else 1.0
            for e in self.joint.graph.edges[i] if i not in self.base else ():
                if e in ran and e not in self.base:
                    self.row((ran[e], 1.0), *when, low=low)
            for b in self.reads[i].intersection(self.base):
                saved = [(self.saved[b], 1.0)] if b in self.saved else []
                self.row((ran[b], 1.0), *saved, *when, low=low)

    def writes(self, node: str, after: set[str]) -> int:
        """Bytes that a node takes for its result where it writes over nothing."""
        over = self.joint.elementwise.get(node, frozenset()) | {*self.over.get(node, ())}
        last = [b for b in over if b not in self.ends and after.isdisjoint(self.readers.get(b, ()))]
        inner = not self.apart and any(self.size.get(b) == 0 for b in self.reads[node])
        return 0 if last or inner else self.size.get(node, 0)

    def solved(self, seconds: float) -> tuple[int, tuple[str, ...]]:
        """The bound, and the captures of the best choice found."""
        rows, columns, factors = map(np.array, zip(*self.entries, strict=True))
        entries, most = (factors, (rows, columns)), np.array(self.high)
        whole, price = np.zeros(len(most)), np.zeros(len(most))
        whole[1 : len(self.saved) + 1], price[0] = 1, 1.0
        answer = solved(price, entries, np.array(self.low), np.inf, whole, most, time_limit=seconds)
        bound = answer.mip_dual_bound  # None where nothing is integer
        bound = answer.fun if bound is None and answer.success else bound
        low = 0.0 if bound is None or not np.isfinite(bound) else bound * self.unit * (1 - _SAFE)
        found = () if answer.x is None else [b for b, c in self.saved.items() if answer.x[c] > 0.5]
        return -int(-low // self.step) * self.step, tuple(found)
