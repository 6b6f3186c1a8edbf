"""What a show goes through: every cut of the frontier, with each capture and why."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from relascope.passes.cuts.cut import STRATEGIES, Capture, Cut, cut_of
from relascope.passes.cuts.depth import depth_of, lives
from relascope.passes.cuts.frontier import Frontier


def show_document(line: Frontier, chosen: Cut) -> dict[str, Any]:
    """The cuts of a frontier and the chosen one, the fewest bytes first.

    Numbers in place of ids point into `ids`, those of reasons into `reasons`. Of each cut `saved`
    has a row a capture, then a mask: id, bytes, reason, whether it is "chosen", "forced" (it
    cannot be computed again) or saved "by hand", the ids on the way to the backward, those
    computed where it is not saved, whether these are all, their estimated time as a share of the
    forward's, and the steps from which and to which it is held; None where it is held to the end.
    `held` has the bytes held after each step at which they change, `peak` the most of them. Steps
    are counted through forward and backward.

    Args:
        line: found for the wish of the chosen cut, where its strategy heeds one.
        chosen: the cut on the screen, which need not be on the frontier.
    """
    wish, joint = chosen.wish, chosen.joint
    known = _Numbering()
    rows = [(cut_of(joint, point, wish), "") for point in reversed(line)]
    where = [k for k, (cut, _) in enumerate(rows) if set(cut.ids) == set(chosen.ids)]
    at = where[0] if where else sum(point.bytes <= joint.bytes_of(chosen.ids) for point in line)
    if not where:
        rows.insert(at, (chosen, STRATEGIES[chosen.strategy].title))
    return {
        "cuts": [known.row(cut, title) for cut, title in rows],
        "chosen": at,
        "everything": joint.bytes_of(joint.crossings),
        "prices": "estimated" if joint.measured is None else "measured",
        "ids": list(known.ids),
        "reasons": list(known.reasons),
    }


@dataclass
class _Numbering:
    """Ids and reasons by where they stand in their lists."""

    ids: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)

    def row(self, cut: Cut, title: str) -> dict[str, Any]:
        joint, owner = cut.joint, cut.joint.work.owner
        lived = lives(joint, cut.ids, cut.recomputed)
        depth = depth_of(lived, joint)
        starts = {"forward": 0, "backward": depth.forward}
        held = [(starts[h.phase] + h.step, h.bytes) for h in depth.changes]

        def saved(one: Capture, sort: str) -> list[Any]:
            cost = sum(joint.work.seconds.get(i, 0.0) for i in one.instead)
            whole = not one.instead or cut.reasons.instead(one.id).whole
            base = owner[one.id]
            return [
                self.number(one.id),
                one.bytes,
                self.reasons.setdefault(one.reason, len(self.reasons)),
                sort,
                self.numbers(one.path),
                self.numbers(one.instead),
                whole,
                cost / cut.forward_seconds if cut.forward_seconds else 0.0,
                lived.begin.get(base, 0),
                lived.end.get(base),
            ]

        return {
            "title": title,
            "bytes": cut.bytes,
            "share": cut.share,
            "peak": max((held for _, held in held), default=0),
            "forward": depth.forward,
            "backward": depth.backward,
            "saved": [saved(c, _sort(cut, c)) for c in cut.captures]
            + [saved(m, "forced") for m in cut.masks],
            "again": self.numbers(cut.recomputed),
            "held": held,
        }

    def number(self, ident: str) -> int:
        return self.ids.setdefault(ident, len(self.ids))

    def numbers(self, idents: Iterable[str]) -> list[int]:
        return [self.number(i) for i in idents]


def _sort(cut: Cut, capture: Capture) -> str:
    if capture.id in cut.wish.save:
        return "by hand"
    return "chosen" if cut.reasons.standing(capture.id).can_recompute else "forced"
