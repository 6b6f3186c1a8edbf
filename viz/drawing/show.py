"""The data of a show: every cut of the frontier, with each capture and its reason."""

from collections.abc import Callable
from typing import Any

from relascope.passes.cuts.cut import STRATEGIES, Capture, Cut, cut_of
from relascope.passes.cuts.frontier import Frontier
from relascope.passes.cuts.lifetimes import AGAIN


def show_document(line: Frontier, chosen: Cut, peak_words: Callable[[Cut], str]) -> dict[str, Any]:
    """The cuts of a frontier and the chosen one with its strategy, the fewest bytes first.

    A cut's `saved` has a row for each capture, then for each mask: id and bytes, why it is saved,
    its `sort`, which is "chosen", "forced" (it cannot be recomputed) or "by hand", the ids on the
    `path` to the backward, the nodes recomputed if it is not saved (`instead`), whether these are
    the `whole`, their estimated time as a share of the forward's, and the first and last step
    that hold it, None for the end. `held` has the bytes saved or recomputed at each step that
    changes them, `peak` the most of them, `step` the `peak_words` of a whole step. Steps are
    counted through forward and backward. The `line` is the frontier for the wish of the chosen cut,
    if its strategy respects one; `chosen` is the cut on the screen, on the frontier or not.
    """
    wish, joint = chosen.wish, chosen.joint
    rows = [(cut_of(joint, point, wish), "") for point in reversed(line)]
    where = [k for k, (cut, _) in enumerate(rows) if {*cut.marked} == {*chosen.marked}]
    at = where[0] if where else sum(point.bytes <= joint.bytes_of(chosen.ids) for point in line)
    if not where:
        rows.insert(at, (chosen, STRATEGIES[chosen.strategy].title))
    return {
        "cuts": [{**_told(cut, title), "step": peak_words(cut)} for cut, title in rows],
        "chosen": at,
        "strategy": chosen.strategy,
        "everything": joint.bytes_of(joint.crossings),
        "prices": "estimated" if joint.measured is None else "measured",
    }


def _told(cut: Cut, title: str) -> dict[str, Any]:
    joint, owner = cut.joint, cut.joint.work.owner
    lived = cut.lifetimes
    spans: dict[str, tuple[int, int | None]] = {}
    for one in (x for x in lived.all if x.role == "captured"):  # twice where it is copied back
        spans[one.id] = spans.get(one.id, (one.begin, 0))[0], one.end
    held = lived.bytes("captured", AGAIN)
    changes = [k for k, now in enumerate(held) if now != (held[k - 1] if k else 0)]

    def saved(one: Capture, sort: str) -> dict[str, Any]:
        cost = sum(joint.work.again.get(i, 0.0) for i in one.instead)
        return {
            "id": one.id,
            "bytes": one.bytes,
            "reason": one.reason,
            "sort": sort,
            "path": one.path,
            "instead": one.instead,
            "whole": not one.instead or cut.reasons.instead(one.id).whole,
            "cost": cost / cut.forward_seconds if cut.forward_seconds else 0.0,
            **dict(zip(("begin", "end"), spans.get(owner[one.id], (0, None)), strict=True)),
        }

    return {
        "title": title,
        "bytes": cut.bytes,
        "share": cut.share,
        "net": cut.net_share,
        "peak": max(held),
        "forward": lived.forward,
        "backward": lived.backward,
        "saved": [saved(c, _sort(cut, c)) for c in cut.captures]
        + [saved(m, "forced") for m in cut.masks],
        "again": list(cut.recomputed),
        "held": [(step, held[step]) for step in changes],
    }


def _sort(cut: Cut, capture: Capture) -> str:
    chosen = "chosen" if cut.reasons.standing(capture.id).can_recompute else "forced"
    return "by hand" if capture.id in cut.wish.save else chosen
