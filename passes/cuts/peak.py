"""The peak of a step: the most bytes of tensors that are alive at one time, and cuts that lower it.

Counted are captures, masks, results, what the backward computes again, and what forward and
backward write on the way, in the order in which they run. Captures are held until the backward
ends, as a call's arguments are. Storages are not packed, and no kernel has two nodes.
"""

from collections.abc import Collection, Iterable

from relascope.core.graph import Kind
from relascope.passes.cost import is_view
from relascope.passes.cuts.depth import backward_order
from relascope.passes.cuts.frontier import frontier
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import Wish

MOST = 32  # how many minimum cuts may be asked for the cuts to choose from


class Storages:
    """Where the values of a joint graph are."""

    def __init__(self, joint: Joint) -> None:
        self._joint = joint
        self._behind: dict[str, tuple[str, ...]] = {}
        for node in joint.graph.nodes:
            if node.id in joint.free:
                self._behind[node.id] = (node.id,) if node.id in joint.masks else ()
            elif is_view(node) or node.kind in (Kind.TUPLE, Kind.ITEM):
                read = node.edges[:1] if is_view(node) else node.edges
                found = (base for e in read for base in self._behind[e])
                self._behind[node.id] = tuple(dict.fromkeys(found))
            else:
                self._behind[node.id] = (node.id,)
        nodes = (n.id for n in joint.graph.nodes if n.edges and n.id not in joint.free)
        self._forward = [i for i in nodes if i in joint.forward]

    def peak(self, captured: Collection[str]) -> int:
        """Bytes at the peak of a step; unknown dimensions count as none."""
        joint = self._joint
        kept = joint.kept(captured)
        masks = {i: kept[i] for i in joint.masks if i in kept}
        results = self._of(joint.outputs)
        first = self._most(self._forward, results | kept.keys(), sum(masks.values()))
        held = kept | {b: joint.work.bytes[b] for b in results}
        order = backward_order(joint, joint.computed_again(captured))
        return max(first, self._most(order, self._of(joint.gradients), sum(held.values()), held))

    def _of(self, ids: Iterable[str]) -> set[str]:
        return {base for i in ids for base in self._behind[i]}

    def _most(
        self, order: list[str], results: Collection[str], live: int, given: Collection[str] = ()
    ) -> int:
        """The most bytes while some nodes run; `live` are there before, of storages `given`."""
        sizes, behind, edges = self._joint.work.bytes, self._behind, self._joint.graph.edges
        here = {i for i in order if behind[i] == (i,) and i not in given}
        last = {b: k for k, i in enumerate(order) for e in (i, *edges[i]) for b in behind[e]}
        ends: dict[int, list[int]] = {}
        for base, step in last.items():
            if base in here and base not in results:
                ends.setdefault(step, []).append(sizes[base])
        most = live
        for step, node_id in enumerate(order):
            if node_id in here:
                live += sizes[node_id]
                most = max(most, live)
            live -= sum(ends.get(step, ()))
        return most


def peak_limit(joint: Joint, wish: Wish) -> int | None:
    """A wish's budget as bytes of the peak: a float is a fraction of the peak where everything that
    crosses is kept.

    Raises:
        ValueError: it is negative or not a number.
    """
    given = wish.budget
    if given is None:
        return None
    if not given >= 0:
        raise ValueError(f"a budget of {given} is below nothing")
    return given if isinstance(given, int) else int(given * Storages(joint).peak(joint.crossings))


def within_peak(joint: Joint, wish: Wish) -> frozenset[str]:
    """Of the frontier's cuts, the one with least time whose peak is within the wish's budget, or
    the one with the lowest peak without a budget. A lower budget never gives a higher peak.

    Raises:
        ValueError: no such cut has so low a peak, or the budget is no number.
    """
    limit, storages = peak_limit(joint, wish), Storages(joint)
    points = [(storages.peak(p.saved), p) for p in frontier(joint, wish, MOST)]
    lowest = min(peak for peak, _ in points)
    allowed = lowest if limit is None else limit
    within = [(p.seconds, peak, k) for k, (peak, p) in enumerate(points) if peak <= allowed]
    if not within:
        raise ValueError(f"the peak is to be {allowed:,} bytes, and the lowest is {lowest:,}")
    return points[min(within)[2]][1].saved
