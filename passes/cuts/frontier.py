"""The frontier of bytes kept against work done again: every cut that one price can make best.

Points are found as the lower convex hull of all cuts: between two known points, the price at which
both cost the same either shows a third that is cheaper, or that there is none (Eisner and
Severance, "Mathematical techniques for efficient record segmentation in large shared databases",
JACM 1976). Each question is one minimum cut.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from relascope.passes.cost import is_random
from relascope.passes.cuts.budget import SAME, budget_bytes, highest_price
from relascope.passes.cuts.flow import cheapest
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import CutProblem, Wish, problem

MOST = 64
"""How many minimum cuts may be asked for; the widest gaps are looked into first."""


@dataclass(frozen=True)
class FrontierPoint:
    """One cut on the frontier.

    Args:
        bytes: that it keeps, each storage once.
        seconds: of work done again, estimated on a nominal machine (see `passes.cost`).
        saved: ids of the captures.
    """

    bytes: int
    seconds: float
    saved: frozenset[str]


class Frontier(tuple[FrontierPoint, ...]):
    """Cuts that are best at some price, the most bytes first.

    `proven` says whether all of them are here, so that no cut lies below the line through them.
    """

    proven = True


def frontier(joint: Joint, wish: Wish | None = None, most: int = MOST) -> Frontier:
    """The cuts that no other beats in bytes and work at any price, the most bytes first.

    Matrix products may be computed again; what draws random numbers may not.

    Args:
        wish: what is to be saved and what is not; its budget is not heeded.
        most: how many minimum cuts may be asked for.
    """
    banned = {n.id for n in joint.graph.nodes if is_random(n)}
    given = problem(joint, joint.work.seconds, banned, Wish() if wish is None else wish)
    first, last = _at(joint, given, highest_price(joint)), _at(joint, given, 0.0)
    points = {p.saved: p for p in (first, last)}
    gaps: list[tuple[float, int, FrontierPoint, FrontierPoint]] = []
    asked = 0

    def look(left: FrontierPoint, right: FrontierPoint) -> None:
        width = (left.bytes - right.bytes) * (right.seconds - left.seconds)
        if width > 0:
            heapq.heappush(gaps, (-width, len(points), left, right))

    look(first, last)
    while gaps and asked < most:
        _, _, left, right = heapq.heappop(gaps)
        price = (left.bytes - right.bytes) / (right.seconds - left.seconds)
        found = _at(joint, given, price)
        asked += 1
        cost = left.bytes + price * left.seconds
        if found.bytes + price * found.seconds < cost * (1 - SAME):
            points[found.saved] = found
            look(left, found)
            look(found, right)
    ordered = sorted(points.values(), key=lambda p: (-p.bytes, p.seconds))
    line = Frontier(p for i, p in enumerate(ordered) if not i or p.bytes < ordered[i - 1].bytes)
    line.proven = not gaps
    return line


def on_frontier(joint: Joint, wish: Wish) -> frozenset[str]:
    """The point of the frontier with least work whose bytes are within the wish's budget.

    Raises:
        ValueError: no point of it keeps so few bytes, or the budget is no number.
    """
    allowed = budget_bytes(joint, wish.budget)
    points = frontier(joint, wish)
    for point in points:
        if point.bytes <= allowed:
            return point.saved
    raise ValueError(f"no cut of the frontier keeps less than {points[-1].bytes} bytes")


def _at(joint: Joint, given: CutProblem, price: float) -> FrontierPoint:
    """The best cut at a price, in bytes a second."""
    redo = given.redo.copy()
    redo[np.isfinite(redo)] *= price
    answer = cheapest(replace(given, redo=redo))
    saved = given.named(answer.saved)
    again = joint.computed_again(saved)
    seconds = sum(joint.work.seconds[i] for i in again)
    return FrontierPoint(joint.bytes_of(saved), seconds, saved)
