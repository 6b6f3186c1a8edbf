"""The frontier of bytes kept against time: every cut that one price can make best.

Points are the lower convex hull of all cuts: the price at which two of them cost the same shows a
cheaper third, or that there is none (Eisner and Severance, "Mathematical techniques for efficient
record segmentation in large shared databases", JACM 1976). Each question is one minimum cut."""

import heapq
import itertools
from dataclasses import dataclass

from relascope.passes.cost import is_random
from relascope.passes.cuts.flow import Answer, cheapest
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import Wish, problem

SAME = 1e-6
"""The share by which a third cut must be cheaper than two known ones to be on the frontier."""

MOST = 64  # minimum cuts; the widest gaps are searched first


@dataclass(frozen=True)
class FrontierPoint:
    """One cut on the frontier: the bytes that it keeps (`Joint.kept`), and the seconds of its
    recomputation and of the traffic of its saved values (`Joint.extra_seconds`)."""

    bytes: int
    seconds: float
    saved: frozenset[str]


class Frontier(tuple[FrontierPoint, ...]):
    """Cuts that are best at some price, the most bytes first; all of them, if `proven`."""

    proven = True


class Prices:
    """The cuts of a joint graph that one price for all time makes best. Matrix products may be
    recomputed and masks drawn again; what draws random numbers in the graph may not."""

    def __init__(self, joint: Joint, wish: Wish) -> None:
        self._joint, self._wish = joint, wish
        self.problem = problem(joint, {n.id for n in joint.graph.nodes if is_random(n)}, wish)

    def most(self) -> FrontierPoint:
        """The cut of a price at which no bytes are worth a longer step."""
        return self.at(self._joint.work.machine.bandwidth * 1e4)

    def least(self) -> FrontierPoint:
        """The cut that keeps the fewest bytes."""
        return self.at(0.0)

    def at(self, price: float) -> FrontierPoint:
        """The best cut at a price, in bytes a second."""
        return self.point(cheapest(self.problem, price))

    def between(self, left: FrontierPoint, right: FrontierPoint) -> FrontierPoint | None:
        """The cut that is cheaper than both at the price at which they cost the same, if any is."""
        price = (left.bytes - right.bytes) / (right.seconds - left.seconds)
        found, limit = self.at(price), (left.bytes + price * left.seconds) * (1 - SAME)
        return found if found.bytes + price * found.seconds < limit else None

    def point(self, answer: Answer) -> FrontierPoint:
        """What an answer keeps, and computes again."""
        return self.used(answer.named(self.problem))

    def used(self, saved: frozenset[str]) -> FrontierPoint:
        """The cut that saves what is read of some tensors, or asked for."""
        joint, edges = self._joint, self._joint.graph.edges
        again = joint.computed_again(saved)
        read = {e for i in again for e in edges[i]} | set(joint.needed) | self._wish.save
        read.update(joint.masks_read())
        saved &= read
        return FrontierPoint(joint.bytes_of(saved), joint.extra_seconds(saved), saved)


def frontier(joint: Joint, wish: Wish | None = None, most: int = MOST) -> Frontier:
    """The cuts that no other beats in bytes and time at any price, the most bytes first."""
    prices = Prices(joint, wish or Wish())
    first, last = prices.most(), prices.least()
    points = {p.saved: p for p in (first, last)}
    gaps: list[tuple[float, int, FrontierPoint, FrontierPoint]] = []
    order = itertools.count()  # among gaps of equal width

    def look(left: FrontierPoint, right: FrontierPoint) -> None:
        width = (left.bytes - right.bytes) * (right.seconds - left.seconds)
        if width > 0:
            heapq.heappush(gaps, (-width, next(order), left, right))

    look(first, last)
    for _ in range(most):
        if not gaps:
            break
        _, _, left, right = heapq.heappop(gaps)
        found = prices.between(left, right)
        if found is not None:
            points[found.saved] = found
            look(left, found)
            look(found, right)
    ordered = sorted(points.values(), key=lambda p: (-p.bytes, p.seconds))
    line = Frontier(p for i, p in enumerate(ordered) if not i or p.bytes < ordered[i - 1].bytes)
    line.proven = not gaps
    return line
