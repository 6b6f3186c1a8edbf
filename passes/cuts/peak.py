"""Cuts that lower the peak of a step: see `passes.cuts.lifetimes`."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import isfinite

from relascope.passes.cuts.frontier import FrontierPoint, Prices, frontier
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.lifetimes import Lifetimes, peak
from relascope.passes.cuts.offload import may_wait, offloaded
from relascope.passes.cuts.per_use import fitted
from relascope.passes.cuts.problem import Wish

NEAR = 0.97  # what share of a quicker cut's bytes a cut with narrow places may keep at most
MOST = 32  # how many minimum cuts may be asked for the cuts to choose from


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
    places, the one with least time whose peak is within the wish's budget, or the one with the
    lowest peak without a budget. A lower budget never gives a higher peak. Raises ValueError where
    no such cut has so low a peak, or the budget is no number.

    Where the wish allows captures on the host, each cut has there what it needs to, and counts with
    the time of its copies; where values may be computed per use, likewise."""
    limit, points, prices = peak_limit(joint, wish), _points(joint, wish), Prices(joint, wish)
    points = _quickest(joint, prices, points) if wish.per_use else points

    def below(point: FrontierPoint, most: int) -> tuple[frozenset[str], Lifetimes] | None:
        """A cut and its step, if the peak is below `most`; what cannot be is not simulated."""
        saved = prices.used(point.saved).saved
        away = may_wait(joint, saved, wish)
        if point.bytes - sum(joint.work.bytes[i] for i in away) >= most:
            return None
        lives = Lifetimes(joint, saved, away)
        if wish.per_use and lives.forward_peak < most:
            lives = fitted(lives, limit)
        return (saved, lives) if lives.peak < most else None

    if limit is not None:
        best = float("inf"), frozenset[str]()
        for point in sorted(points, key=lambda p: p.seconds):
            if point.seconds < best[0] and (found := below(point, limit + 1)) is not None:
                saved, lives = found
                if lives.offloaded:  # as few as will do
                    lives = Lifetimes(joint, saved, offloaded(joint, saved, wish, limit))
                    lives = fitted(lives, limit) if wish.per_use else lives
                more = joint.more_seconds(saved, lives.offloaded, lives.times)
                best = min(best, (point.seconds + more, saved), key=lambda b: b[0])
        if best[0] < float("inf"):
            return best[1]
    lowest = 1 << 62, frozenset[str]()
    for point in sorted(points, key=lambda p: (p.bytes, p.seconds)):
        if (found := below(point, lowest[0])) is not None:
            lowest = found[1].peak, found[0]
    if limit is not None:
        raise ValueError(f"the peak cannot be {limit:,} bytes: the lowest is {lowest[0]:,}")
    # Copies may keep that peak in less time than the fewest bytes do.
    return within_peak(joint, replace(wish, budget=lowest[0])) if wish.offload else lowest[1]


def peak_curve(joint: Joint) -> list[FrontierPoint]:
    """The cuts that `within_peak` finds as the budget falls, the quickest first."""
    prices, found, least = Prices(joint, Wish()), list[FrontierPoint](), 1 << 62
    for point in sorted(_points(joint, Wish()), key=lambda p: p.seconds):
        used = prices.used(point.saved)
        if (high := peak(joint, used.saved)) < least:
            found, least = [*found, used], high
    return found


def _quickest(joint: Joint, prices: Prices, points: list[FrontierPoint]) -> list[FrontierPoint]:
    """Those that no quicker one has a lower peak than, of the step or of its forward: how often
    the backward computes a value does not change what the forward holds."""
    found, least = list[FrontierPoint](), (1 << 62, 1 << 62)
    for point in sorted(points, key=lambda p: p.seconds):
        lives = Lifetimes(joint, prices.used(point.saved).saved)
        peaks = lives.peak, lives.forward_peak
        if any(a < b for a, b in zip(peaks, least, strict=True)):
            found.append(point)
            least = min(peaks[0], least[0]), min(peaks[1], least[1])
    return found


def _points(joint: Joint, wish: Wish) -> list[FrontierPoint]:
    """Cuts to choose from. A minimum cut counts what is kept and not how long what is computed
    again is held, so it may cut a deep stack where each layer is computed again from the one
    before, and all of them are there when the backward begins. With what a layer hands to the next
    (Chen et al., "Training deep nets with sublinear memory cost", 2016), it does not. Where a layer
    has two such places, one of them may do: the one with which the fewest bytes take less time."""
    given = Prices(joint, wish).problem
    able = {i for i, b in zip(given.ids, given.save, strict=True) if isfinite(b)}
    places = [able & ids for ids in _narrow(joint)]
    every, *halves = (
        replace(wish, save=wish.save.union(*some)) for some in (places, places[::2], places[1::2])
    )
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
