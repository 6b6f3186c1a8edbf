"""The fastest cut within a budget of bytes: an integer program's, or the frontier's below it."""

import re

from relascope.passes.cuts.flow import exact
from relascope.passes.cuts.frontier import FrontierPoint, Prices, frontier
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import Wish

HALF = 0.5  # the default budget, as a fraction of the bytes of everything that crosses


def within_budget(joint: Joint, wish: Wish) -> frozenset[str]:
    """What to save for the shortest step within the budget; 0 keeps nothing. Matrix products may be
    recomputed. Raises ValueError if no cut is within the budget, or it is not a valid number."""
    allowed, prices = budget_bytes(joint, wish), Prices(joint, wish)
    found, given = _by_price(joint, prices, allowed, wish), prices.problem
    most = allowed - sum(b for i, b in joint.kept(wish.save).items() if i not in joint.masks)
    answer = exact(given, (given.carry, given.redo), (given.save, given.state), most)
    if answer is not None:
        best = prices.point(answer)
        if best.bytes <= allowed and best.seconds <= found.seconds:
            found = best
    return found.saved


def on_frontier(joint: Joint, wish: Wish) -> frozenset[str]:
    """The fastest point of the frontier whose bytes are within the wish's budget. Raises ValueError
    if no point keeps so few bytes, or the budget is not a valid number."""
    allowed, points = budget_bytes(joint, wish), frontier(joint, wish)
    within = [p for p in points if p.bytes <= allowed]
    if not within:
        raise _too_low(joint, wish, allowed, points[-1])
    return within[0].saved


def _too_low(joint: Joint, wish: Wish, allowed: int, least: FrontierPoint) -> ValueError:
    """The error that no cut is within the budget, with the reason."""
    kept = joint.kept(wish.save)
    masks = sum(b for i, b in joint.kept(least.saved).items() if i in joint.masks)
    forced = sum(b for i, b in kept.items() if i not in joint.masks)
    parts = (masks, "are dropout masks"), (forced, "are saved by hand")
    said = " and ".join(f"{b:,} {what}" for b, what in parts if b)
    message = f"the budget is {allowed:,} bytes, and no cut keeps less than {least.bytes:,}"
    return ValueError(f"{message} ({said})" if said else message)


def budget_bytes(joint: Joint, wish: Wish) -> int:
    """A wish's budget in bytes. A float is a fraction of everything that crosses, with masks; an
    int is bytes; None is `HALF`, or the fewest possible bytes if more. Raises ValueError if the
    budget is negative or not a number."""
    given = HALF if wish.budget is None else wish.budget
    if not given >= 0:
        raise ValueError(f"a budget must be 0 or more, not {given}")
    if isinstance(given, int):
        return given
    allowed = int(given * joint.bytes_of(joint.crossings))
    return allowed if wish.budget is not None else max(allowed, Prices(joint, wish).least().bytes)


def parse_budget(text: str) -> float | int:
    """A budget as people write it: `0.5` and `50%` are fractions; `400000`, `1.5MiB` are bytes.
    Raises ValueError if it is none of these, or a fraction above 1."""
    match = re.fullmatch(r"(\d+(\.\d+)?)\s*(%|B|KiB|MiB|GiB)?", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a budget; write 0.5, 50%, 400000 or 1.5MiB")
    number, point, unit = match.groups()
    if unit is None and not point:
        return int(number)
    if unit in (None, "%"):
        fraction = float(number) / (100 if unit else 1)
        if fraction > 1:
            raise ValueError(f"a budget of {text} is more than 100%; add a unit if it is in bytes")
        return fraction
    return int(float(number) * 1024 ** ("B", "KiB", "MiB", "GiB").index(unit))


def _by_price(joint: Joint, prices: Prices, allowed: int, wish: Wish) -> FrontierPoint:
    """The best cut within the budget among those that one price of time makes optimal."""
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
