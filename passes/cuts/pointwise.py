"""Recompute pointwise operators and views; keep matrix products, convolutions and reductions."""

from __future__ import annotations

from relascope.passes.cost import is_product, is_random, is_reduction
from relascope.passes.cuts.flow import cheapest
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import Wish, problem

_TIE = 1e-6
"""Bytes that a second's nanosecond is worth: it only decides between cuts of equal bytes."""


def recompute_pointwise(joint: Joint, wish: Wish) -> frozenset[str]:
    """The fewest bytes that need no more than pointwise operators and views computed again."""
    banned = {n.id for n in joint.graph.nodes if is_product(n) or is_random(n) or is_reduction(n)}
    work = {i: s * 1e9 * _TIE for i, s in joint.work.seconds.items()}
    given = problem(joint, work, banned, wish)
    return given.named(cheapest(given).saved)
