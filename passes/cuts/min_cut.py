"""The least of bytes kept and recomputation, with matrix products and convolutions kept.

As AOTAutograd's partitioner (He and Yu, "Transcending runtime-memory tradeoffs in checkpointing by
being fusion aware", MLSys 2023), with our prices and restrictions."""

import numpy as np
from numpy.typing import NDArray

from relascope.passes.cost import is_product, is_random, is_reduction
from relascope.passes.cuts.flow import Answer, cheapest, exact, saving
from relascope.passes.cuts.frontier import SAME
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import CutProblem, Wish, problem

PRICE = 0.01
"""Bytes worth keeping to save one byte of memory traffic, or the arithmetic of that time."""

SHARE = 0.05
"""Limit of the time that recomputation adds to a step, less the memory traffic that it spares, as a
share of the forward's time."""

SLACK = 0.005
"""Share of the forward's time that may go into the fewest bytes at last, at any price: no estimate
is as exact as that."""

_TIE = 1e3
"""Bytes for a second: this only decides between cuts of equal bytes."""

_STEPS = 32  # of the search for the two cuts on both sides of the limit; it takes about five


def min_cut(joint: Joint, wish: Wish, price: float = PRICE, share: float = SHARE) -> frozenset[str]:
    """What to save for the least bytes plus `price` times the time of recomputation, which may add
    at most `share` of the forward's estimated time to a step. It is the best cut that the solver
    finds, or that lies between the two that a higher price makes best, just within the limit and
    just beyond it. What the limit leaves of `SLACK` then goes into fewer bytes. Recomputation by
    wish may exceed the limit."""
    banned = {n.id for n in joint.graph.nodes if is_product(n) or is_random(n)}.union(joint.masks)
    given = problem(joint, banned, wish)
    within = saving(given)
    most = within.named(given)
    by_wish = sum(joint.draws[m] for m in joint.drawn_again(most))
    limit = joint.extra_seconds(most) - by_wish + share * joint.forward_seconds
    unit = price * joint.work.machine.bandwidth
    first = beyond = cheapest(given, unit)
    if (taken := _taken(given, first)) <= limit:
        most_time = min(limit, taken + SLACK * joint.forward_seconds)
        return _filled(given, first, cheapest(given, _TIE), most_time).named(given)
    for _ in range(_STEPS):
        longer = _taken(given, beyond) - _taken(given, within)
        fewer = _cost(given, within) - _cost(given, beyond)
        worth = max(unit, fewer / longer) if longer > 0 else unit
        third = cheapest(given, worth)
        if _cost(given, third, worth) >= _cost(given, within, worth) * (1 - SAME):
            break
        within, beyond = (third, beyond) if _taken(given, third) <= limit else (within, third)
    for other in (beyond, first):
        within = _filled(given, within, other, limit)
    carry, redo = given.carry, given.redo
    price_of = given.save + unit * carry, given.state + unit * redo
    solved = exact(given, price_of, (carry, redo), limit)
    if solved is not None and _cost(given, solved, unit) < _cost(given, within, unit):
        within = solved
    return within.named(given)


def _cost(given: CutProblem, answer: Answer, unit: float = 0.0) -> float:
    """Bytes of an answer, and its seconds at `unit` bytes."""
    kept = given.save[answer.saved].sum() + given.state[answer.again].sum()
    return float(kept) + unit * _taken(given, answer)


def _taken(given: CutProblem, answer: Answer) -> float:
    """Seconds of an answer: of recomputation, and of the traffic of saved values."""
    return float(given.redo[answer.again].sum() + given.carry[answer.saved].sum())


def _filled(given: CutProblem, best: Answer, other: Answer, limit: float) -> Answer:
    """A mixture of two answers: each part in which they differ is as in one of them. Recomputation
    needs only what it reads, so connected parts are independent; those that save most bytes for
    their seconds go first, up to `limit`."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components  # slow to import

    differ = (best.saved != other.saved) | (best.again != other.again)
    ends = differ[given.sources] & differ[given.targets]
    count, edges = len(given.ids), (given.sources[ends], given.targets[ends])
    joined = coo_matrix((np.ones(len(edges[0])), edges), shape=(count, count))
    _, part = connected_components(joined, directed=False)

    def more(prices: NDArray[np.float64], one: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.bincount(part, np.where(one, prices, 0.0)).astype(np.float64)

    fewer = more(given.save, best.saved) - more(given.save, other.saved)
    longer = more(given.redo, other.again) - more(given.redo, best.again)
    longer += more(given.carry, other.saved) - more(given.carry, best.saved)
    taken, chosen = _taken(given, best), np.zeros(len(fewer), dtype=np.bool_)
    worth = np.where(longer > 0, fewer / np.where(longer > 0, longer, 1.0), np.inf)
    for k in np.argsort(-worth, kind="stable"):
        if fewer[k] > 0 and taken + longer[k] <= limit:
            chosen[k], taken = True, taken + longer[k]
    pick = chosen[part]
    return Answer(np.where(pick, other.saved, best.saved), np.where(pick, other.again, best.again))


def recompute_pointwise(joint: Joint, wish: Wish) -> frozenset[str]:
    """The fewest bytes for which only pointwise operators and views are recomputed."""
    banned = {n.id for n in joint.graph.nodes if is_product(n) or is_random(n) or is_reduction(n)}
    banned.update(joint.masks)
    given = problem(joint, banned, wish)
    return cheapest(given, _TIE).named(given)
