"""The least of bytes kept and recomputation, with matrix products and convolutions kept.

As AOTAutograd's partitioner (He and Yu, "Transcending runtime-memory tradeoffs in checkpointing by
being fusion aware", MLSys 2023), with our prices and restrictions.
"""

import numpy as np
from numpy.typing import NDArray

from relascope.passes.cost import is_product, is_random, is_reduction
from relascope.passes.cuts.flow import Answer, cheapest, saving
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import CutProblem, Wish, problem

PRICE = 0.01
"""Bytes worth keeping to save one byte of memory traffic, or the arithmetic of that time."""

SHARE = 0.05
"""How much longer a step may be at most for what is computed again, as a share of the forward's
time: the work again, less the memory traffic of what need not be saved."""

MOST_PRICE = 1e4  # from here on recomputing is as good as forbidden

_TIE = 1e3
"""Bytes that a second is worth: it only decides between cuts of equal bytes."""

_STEPS = 8  # of halving the price's logarithm once it is known between two powers of eight


def min_cut(joint: Joint, wish: Wish, price: float = PRICE, share: float = SHARE) -> frozenset[str]:
    """What to save so that bytes plus `price` times the time that recomputing takes are least.

    While that makes a step longer by more than `share` of the forward's estimated time, the price
    is raised; then as much of the last cut too long as `share` allows is taken. Recomputation by
    wish may exceed it.
    """
    banned = {n.id for n in joint.graph.nodes if is_product(n) or is_random(n)}
    given = problem(joint, banned, wish)
    everything = given.named(saving(given).saved)
    limit = joint.extra_seconds(everything) + share * joint.forward_seconds

    def at(asked: float) -> tuple[Answer, bool]:
        answer = cheapest(given, asked * joint.work.machine.bandwidth)
        return answer, _taken(given, answer) <= limit

    low = price
    first, fits = best, _ = at(price)
    if fits:
        return given.named(best.saved)
    beyond = first
    while not fits and price < MOST_PRICE:
        low, price = price, price * 8
        best, fits = at(price)
        beyond = beyond if fits else best
    for _ in range(_STEPS if fits else 0):
        middle = (low * price) ** 0.5
        answer, fits = at(middle)
        if fits:
            best, price = answer, middle
        else:
            beyond, low = answer, middle
    for other in (beyond, first):
        best = _filled(given, best, other, limit)
    return given.named(best.saved)


def _taken(given: CutProblem, answer: Answer) -> float:
    """Seconds of an answer: of what is computed again, and of the traffic of what is saved."""
    return float(given.redo[answer.again].sum() + given.carry[answer.saved].sum())


def _filled(given: CutProblem, best: Answer, other: Answer, limit: float) -> Answer:
    """The parts in which two answers differ, each as in the one or the other.

    Recomputing needs only what it reads, so connected parts are independent. Those that save most
    bytes for their seconds go first, up to `limit`.
    """
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
    """The fewest bytes that need no more than pointwise operators and views computed again."""
    banned = {n.id for n in joint.graph.nodes if is_product(n) or is_random(n) or is_reduction(n)}
    given = problem(joint, banned, wish)
    return given.named(cheapest(given, _TIE).saved)
