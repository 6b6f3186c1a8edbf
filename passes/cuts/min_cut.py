"""The least of bytes kept and work done again, with matrix products and convolutions kept.

The idea is AOTAutograd's partitioner (He and Yu, "Transcending runtime-memory tradeoffs in
checkpointing by being fusion aware", MLSys 2023); prices and restrictions are our own.
"""

from dataclasses import replace

from relascope.passes.cost import is_product, is_random, is_reduction
from relascope.passes.cuts.flow import Answer, cheapest
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import Wish, problem

PRICE = 0.01
"""Bytes worth keeping to save one byte of memory traffic, or the arithmetic of that time."""

SHARE = 0.05
"""How much of the forward's time may at most be spent on computing again."""

MOST_PRICE = 1e4
"""From here on recomputing is as good as forbidden."""

_TIE = 1e-6
"""Bytes that a second's nanosecond is worth: it only decides between cuts of equal bytes."""

_STEPS = 8  # of halving the price's logarithm once it is known between two powers of eight


def min_cut(joint: Joint, wish: Wish, price: float = PRICE, share: float = SHARE) -> frozenset[str]:
    """What to save so that bytes plus `price` times the work of recomputing are least.

    Where that recomputes for longer than `share` of the forward's estimated time, the price is
    raised until it does not.

    Args:
        share: of the forward's time. What is to be computed again by wish may exceed it.
    """
    seconds = joint.work.seconds
    banned = {n.id for n in joint.graph.nodes if is_product(n) or is_random(n)}
    given = problem(joint, seconds, banned, wish)
    limit = share * sum(seconds[i] for i in joint.forward if i not in joint.free)

    def at(asked: float) -> tuple[Answer, bool]:
        answer = cheapest(replace(given, redo=given.redo * asked * joint.work.machine.bandwidth))
        return answer, given.redo[answer.again].sum() <= limit

    low = price
    best, fits = at(price)
    while not fits and price < MOST_PRICE:
        low, price = price, price * 8
        best, fits = at(price)
    for _ in range(_STEPS if fits and low < price else 0):
        middle = (low * price) ** 0.5
        answer, fits = at(middle)
        if fits:
            best, price = answer, middle
        else:
            low = middle
    return given.named(best.saved)


def recompute_pointwise(joint: Joint, wish: Wish) -> frozenset[str]:
    """The fewest bytes that need no more than pointwise operators and views computed again."""
    banned = {n.id for n in joint.graph.nodes if is_product(n) or is_random(n) or is_reduction(n)}
    work = {i: s * 1e9 * _TIE for i, s in joint.work.seconds.items()}
    given = problem(joint, work, banned, wish)
    return given.named(cheapest(given).saved)
