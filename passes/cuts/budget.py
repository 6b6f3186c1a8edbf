"""The least time within a budget of bytes: a mixed-integer program, solved by HiGHS.

Only saving is integer; recomputing is then a closure, whose linear program has integral solutions
(Jain et al., "Checkmate", MLSys 2020, for one recomputation of each value). The frontier's cut
below the budget counts, too. There is no time limit, so a budget gives the same cut everywhere.
"""

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relascope.passes.cuts.flow import Answer
from relascope.passes.cuts.frontier import FrontierPoint, Prices, frontier
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import CutProblem, Wish

if TYPE_CHECKING:
    from scipy.sparse import coo_matrix

HALF = 0.5  # the budget where none is given: a fraction of the bytes of everything that crosses
GAP = 5e-3  # how far the time may be above the least, as a share, when the solver may stop
NODES = 20  # of the search tree, after which the solver stops with the best it has

LARGE = 6_000
"""Values and edges of a graph for whose program the solver takes minutes; there prices decide."""

_TIE = 1e-6  # of all bytes, beside all time: decides between cuts of equal time only


def within_budget(joint: Joint, wish: Wish) -> frozenset[str]:
    """What to save for the shortest step within the budget; 0 keeps nothing. Matrix products may be
    recomputed.

    Raises:
        ValueError: no cut is within the budget, or the budget is no number.
    """
    allowed, prices = budget_bytes(joint, wish), Prices(joint, wish)
    found, given = _by_price(joint, prices, allowed, wish), prices.problem
    if len(given.ids) + len(given.sources) <= LARGE:
        forced = joint.kept(wish.save).items()
        answer = _exact(given, allowed - sum(b for i, b in forced if i not in joint.masks))
        exact = found if answer is None else prices.point(answer)
        if exact.bytes <= allowed and exact.seconds <= found.seconds:
            found = exact
    return found.saved


def on_frontier(joint: Joint, wish: Wish) -> frozenset[str]:
    """The point of the frontier with least time whose bytes are within the wish's budget.

    Raises:
        ValueError: no point of it keeps so few bytes, or the budget is no number.
    """
    allowed, points = budget_bytes(joint, wish), frontier(joint, wish)
    within = [p for p in points if p.bytes <= allowed]
    if not within:
        raise _too_low(joint, wish, allowed, points[-1])
    return within[0].saved


def _too_low(joint: Joint, wish: Wish, allowed: int, least: FrontierPoint) -> ValueError:
    """No cut is within the budget: says why."""
    kept = joint.kept(wish.save)
    masks = sum(b for i, b in joint.kept(least.saved).items() if i in joint.masks)
    forced = sum(b for i, b in kept.items() if i not in joint.masks)
    parts = (masks, "are dropout masks"), (forced, "are saved by hand")
    said = " and ".join(f"{b:,} {what}" for b, what in parts if b)
    message = f"the budget is {allowed:,} bytes, and no cut keeps less than {least.bytes:,}"
    return ValueError(f"{message}, of which {said}" if said else message)


def budget_bytes(joint: Joint, wish: Wish) -> int:
    """A wish's budget in bytes.

    A float is a fraction of what everything that crosses takes, masks included; an int is bytes;
    None is `HALF`, or the fewest possible bytes if more.

    Raises:
        ValueError: it is negative or not a number.
    """
    given = HALF if wish.budget is None else wish.budget
    if not given >= 0:
        raise ValueError(f"a budget of {given} is below nothing")
    if isinstance(given, int):
        return given
    allowed = int(given * joint.bytes_of(joint.crossings))
    return allowed if wish.budget is not None else max(allowed, Prices(joint, wish).least().bytes)


def parse_budget(text: str) -> float | int:
    """A budget as people write it: `0.5` and `50%` are fractions; `400000`, `1.5MiB` are bytes.

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
    whole = redo.sum() + given.carry.sum()
    if not whole:
        return None
    tie = _TIE * save / max(save.sum(), 1.0)
    cost = np.concatenate([given.carry / whole + tie, redo / whole])
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


def _rows(
    given: CutProblem, weight: NDArray[np.float64]
) -> "tuple[coo_matrix, NDArray[np.float64]]":
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


def _by_price(joint: Joint, prices: Prices, allowed: int, wish: Wish) -> FrontierPoint:
    """The best cut within the budget of those that one price for all time makes best."""
    above, within = prices.most(), prices.least()
    if above.bytes <= allowed:
        return above
    if within.bytes > allowed:
        raise _too_low(joint, wish, allowed, within)
    while within.seconds > above.seconds:
        third = prices.between(above, within)
        if third is None:
            break
        above, within = (above, third) if third.bytes <= allowed else (third, within)
    return within
