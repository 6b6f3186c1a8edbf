"""Least work done again within a budget of bytes: a mixed-integer program, solved by HiGHS.

Whether each value is saved is the only whole number in it: once that is settled, computing again
is a closure, whose linear program has whole answers by itself. The relaxation of activation
checkpointing is that of Jain et al., "Checkmate", MLSys 2020, for one recomputation of each value.
What the solver finds is held against the best that one price for all work gives, the cut of the
frontier below the budget, and the better is taken. Nothing is bounded by time, so that a budget
gives the same cut on every machine, busy or not.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relascope.passes.cost import is_random
from relascope.passes.cuts.flow import Answer, cheapest
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import CutProblem, Wish, problem

if TYPE_CHECKING:
    from scipy.sparse import coo_matrix

HALF = 0.5
"""The budget where none is given: a fraction of the bytes of everything that crosses."""

GAP = 5e-3
"""How far the work may be above the least, as a share, when the solver may stop."""

NODES = 20
"""Of the search tree, after which the solver stops with the best it has."""

LARGE = 6_000
"""Values and edges of a graph for whose program the solver takes minutes; there prices decide."""

SAME = 1e-6
"""By what share a third cut must be cheaper than two known ones to be one of the frontier."""

_TIE = 1e-6  # of all bytes, beside all work: decides between cuts of equal work only


def within_budget(joint: Joint, wish: Wish) -> frozenset[str]:
    """What to save so that its bytes are within the budget and recomputed seconds are least.

    Matrix products may be computed again. A budget of 0 keeps nothing.

    Raises:
        ValueError: the budget is negative, or what is to be saved by wish is above it.
    """
    held = joint.bytes_of(wish.save)
    allowed = budget_bytes(joint, wish.budget) - held
    if allowed < 0:
        raise ValueError(f"the tensors saved by hand take {held} bytes, more than the budget")
    banned = {n.id for n in joint.graph.nodes if is_random(n)}
    given = problem(joint, joint.work.seconds, banned, wish)
    found = _by_price(given, allowed, highest_price(joint))
    if len(given.ids) + len(given.sources) <= LARGE:
        exact = _exact(given, allowed)
        if exact is not None and _work(given, exact) <= _work(given, found):
            found = exact
    return given.named(found.saved)


def highest_price(joint: Joint) -> float:
    """A price of work, in bytes a second, at which nothing is worth computing again."""
    return joint.work.machine.bandwidth * 1e4


def _work(given: CutProblem, answer: Answer) -> float:
    return float(given.redo[answer.again].sum())


def budget_bytes(joint: Joint, budget: float | int | None) -> int:
    """A budget in bytes.

    Args:
        budget: a float is a fraction of what everything that crosses takes; an int is bytes.

    Raises:
        ValueError: it is negative or not a number.
    """
    given = HALF if budget is None else budget
    if not given >= 0:
        raise ValueError(f"a budget of {given} is below nothing")
    return given if isinstance(given, int) else int(given * joint.bytes_of(joint.crossings))


def parse_budget(text: str) -> float | int:
    """A budget as people write it: `0.5` and `50%` are fractions; `400000`, `1.5MiB` are bytes.

    A number with a point and no unit is a fraction, a whole number is bytes.

    Raises:
        ValueError: it is none of these, or a fraction above 1.
    """
    match = re.fullmatch(r"(\d+(\.\d+)?)\s*(%|B|KiB|MiB|GiB)?", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no budget; write 0.5, 50%, 400000 or 1.5MiB")
    number, point, unit = match.groups()
    if unit is None and not point:
        return int(number)
    if unit in (None, "%"):
        fraction = float(number) / (100 if unit else 1)
        if fraction > 1:
            raise ValueError(f"a budget of {text} is more than everything; for bytes write a unit")
        return fraction
    return int(float(number) * 1024 ** ("B", "KiB", "MiB", "GiB").index(unit))


def _exact(given: CutProblem, allowed: int) -> Answer | None:
    """The best answer that the solver finds, or None where it finds none."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

    count = len(given.ids)
    can_save, can_redo = np.isfinite(given.save), np.isfinite(given.redo)
    save = np.where(can_save, given.save, 0.0)
    redo = np.where(can_redo, given.redo, 0.0)
    if not redo.any():
        return None
    cost = np.concatenate([_TIE * save / max(save.sum(), 1.0), redo / redo.sum()])
    fits = can_save & (save <= allowed)  # the rest is out at once, which the solver likes
    matrix, low = _rows(given, save / max(allowed, 1))
    high = np.full(len(low), np.inf)
    low[-1], high[-1] = -np.inf, allowed / max(allowed, 1)
    answer = milp(
        cost,
        constraints=LinearConstraint(matrix, low, high),
        integrality=np.concatenate([np.ones(count), np.zeros(count)]),
        bounds=Bounds(np.zeros(2 * count), np.concatenate([fits, can_redo]).astype(float)),
        options={"mip_rel_gap": GAP, "node_limit": NODES},
    )
    if answer.x is None:
        return None
    saved = answer.x[:count] > 0.5
    if save[saved].sum() > allowed:  # within the solver's tolerance, but not within ours
        return None
    saved[list(given.forced)] = True
    return Answer(saved, answer.x[count:] > 0.5)


def _rows(given: CutProblem, weight: NDArray[np.float64]) -> tuple[coo_matrix, NDArray[np.float64]]:
    """Needed values are there; what is read to compute another is there; the bytes, last."""
    from scipy.sparse import coo_matrix

    count = len(given.ids)
    need = np.flatnonzero(given.needed)
    edges = len(given.sources)
    one, more = np.arange(len(need)), len(need) + np.arange(edges)
    last = len(need) + edges
    rows = np.concatenate([one, one, more, more, more, np.full(count, last)])
    sources, targets = given.sources, given.targets
    read = [sources, sources + count, targets + count]
    columns = np.concatenate([need, need + count, *read, np.arange(count)])
    values = np.concatenate([np.ones(2 * len(need)), np.ones(2 * edges), -np.ones(edges), weight])
    low = np.concatenate([np.ones(len(need)), np.zeros(edges), [0.0]])
    return coo_matrix((values, (rows, columns)), shape=(last + 1, 2 * count)), low


def _by_price(given: CutProblem, allowed: int, highest: float) -> Answer:
    """The best within the budget of the cuts that one price for all work makes best.

    Between a cut above the budget and one within it, the price at which both cost the same shows a
    cheaper third, which takes the place of one of them, or that there is none.

    Raises:
        ValueError: no cut is within the budget.
    """

    def at(price: float) -> tuple[float, float, Answer]:
        redo = given.redo.copy()
        redo[np.isfinite(redo)] *= price
        answer = cheapest(replace(given, redo=redo))
        return float(given.save[answer.saved].sum()), _work(given, answer), answer

    above, within = at(highest), at(0.0)
    if above[0] <= allowed:
        return above[2]
    if within[0] > allowed:
        raise ValueError("the budget is below what cannot be computed again")
    while within[1] > above[1]:
        price = (above[0] - within[0]) / (within[1] - above[1])
        third = at(price)
        if third[0] + price * third[1] >= (above[0] + price * above[1]) * (1 - SAME):
            break
        above, within = (above, third) if third[0] <= allowed else (third, within)
    return within[2]
