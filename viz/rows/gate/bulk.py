"""Many models through many pipelines: which passes break or slow how many."""

from collections import Counter
from collections.abc import Iterable, Sequence

from relascope.engine.jobs.bulk import OUTCOMES
from relascope.engine.protocol.fault import OF_TEST
from relascope.viz.rows import Row

BAD = {
    **dict.fromkeys(("wrong", "crash", OF_TEST), "breaks"),
    "rounding": "rounds",
    "slow": "slows",
}
"""What a pass does to a model of this outcome."""


def culprits(rows: Iterable[Row]) -> list[Row]:
    """One row a pass, what breaks most models first; `models` are named once each.

    Of several suspects none is sure, so each of them counts as `suspected`.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        if row["outcome"] not in BAD:
            continue
        sure = len(row["culprits"]) == 1
        for name in row["culprits"] or ["(not found)"]:
            does = BAD[row["outcome"]] if sure or not row["culprits"] else "suspected"
            found.setdefault(name, {}).setdefault(does, set()).add(row["model"])
    words = ("breaks", "slows", "rounds", "suspected")
    lines = [
        {
            "pass": name,
            **{w: len(by.get(w, ())) for w in words},
            "models": sorted(set().union(*by.values())),
        }
        for name, by in found.items()
    ]
    return sorted(lines, key=lambda r: (*(-int(r[w]) for w in words), str(r["pass"])))


def document(rows: Sequence[Row], fail_on: Sequence[str]) -> Row:
    """The document of `bulk`."""
    counts = Counter(r["outcome"] for r in rows)
    return {
        "rows": list(rows),
        "outcomes": {o: counts[o] for o in OUTCOMES if counts[o]},
        "culprits": culprits(rows),
        "fails": any(r["outcome"] in fail_on for r in rows),
    }
