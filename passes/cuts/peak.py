"""The peak of a step: the most bytes of tensors that are alive at one time, and cuts that lower it.

Counted are captures, masks, results, what the backward computes again, and what forward and
backward write on the way, in the order in which they hold least, as engines run them. In Relax,
captures are given up after their last reader; in Relay they are held until the backward ends.
Storages are not packed, no kernel has two nodes, and what libraries take inside of one is left out.
"""

from collections.abc import Collection, Iterable, Mapping

from relascope.passes.cuts.depth import backward_order
from relascope.passes.cuts.frontier import frontier
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import Wish
from relascope.passes.held_memory import KernelLives

MOST = 32  # how many minimum cuts may be asked for the cuts to choose from


def peak(joint: Joint, captured: Collection[str]) -> int:
    """Bytes at the peak of a step; unknown dimensions count as none."""
    kept, results = joint.kept(captured), _storages(joint, joint.outputs)
    nodes = (n.id for n in joint.graph.nodes if n.edges and n.id not in joint.free)
    forward = [i for i in nodes if i in joint.forward]
    kept |= {i: joint.work.bytes[i] for i in joint.drawn_again(captured)}  # while either runs
    masks = {i: kept[i] for i in joint.masks if i in kept}
    given = kept | {b: joint.work.bytes[b] for b in results}
    held = results if joint.graph.ir == "relax" else given.keys()
    backward = backward_order(joint, joint.computed_again(captured))
    return max(
        _most(joint, forward, results | kept.keys(), masks),
        _most(joint, backward, _storages(joint, joint.gradients) | held, given),
    )


def _storages(joint: Joint, ids: Iterable[str]) -> set[str]:
    return {base for i in ids for base in joint.storages[i]}


def _most(
    joint: Joint, order: list[str], results: Collection[str], given: Mapping[str, int]
) -> int:
    """The most bytes while some nodes run; `given` are the storages that are there before."""
    storages, edges = joint.storages, joint.graph.edges
    place = {node_id: index for index, node_id in enumerate(order)}
    made = {i: {place[i]} if storages[i] == (i,) and i not in given else set() for i in order}
    number = {i: place[i] for i in order if made[i]} | {b: -1 - k for k, b in enumerate(given)}
    sizes = {n: given[b] if n < 0 else joint.work.bytes[b] for b, n in number.items()}
    kernels = KernelLives(
        order=range(len(order)),
        sources={place[i]: {place[e] for e in edges[i] if e in place} for i in order},
        read={
            place[i]: {number[b] for e in edges[i] for b in storages[e] if b in number}
            for i in order
        },
        made={place[i]: made[i] for i in order},
        sizes=sizes,
        kept={number[b] for b in results if b in number},
        given={number[b] for b in given},
    )
    return kernels.peak(kernels.least_held)


def peak_limit(joint: Joint, wish: Wish) -> int | None:
    """A wish's budget as bytes of the peak: a float is a fraction of the peak where everything that
    crosses is kept. Raises ValueError where it is negative or not a number."""
    given = wish.budget
    if given is None:
        return None
    if not given >= 0:
        raise ValueError(f"a budget of {given} is below nothing")
    return given if isinstance(given, int) else int(given * peak(joint, joint.crossings))


def within_peak(joint: Joint, wish: Wish) -> frozenset[str]:
    """Of the frontier's cuts, the one with least time whose peak is within the wish's budget, or
    the one with the lowest peak without a budget. A lower budget never gives a higher peak. Raises
    ValueError where no such cut has so low a peak, or the budget is no number."""
    limit = peak_limit(joint, wish)
    points = [(peak(joint, p.saved), p) for p in frontier(joint, wish, MOST)]
    lowest = min(high for high, _ in points)
    allowed = lowest if limit is None else limit
    within = [(p.seconds, high, k) for k, (high, p) in enumerate(points) if high <= allowed]
    if not within:
        raise ValueError(f"the peak is to be {allowed:,} bytes, and the lowest is {lowest:,}")
    return points[min(within)[2]][1].saved
