"""A model through each of TVM's pipelines: which match, and which passes are to blame."""

from collections.abc import Collection, Sequence

from relascope.viz.rows import Row
from relascope.viz.rows.sections import Section, sentence, table

ROUNDING = ("ToMixedPrecision", "FastMath", "FastMathTransform")
"""Passes of TVM's that are meant to change numbers."""


def document(rows: Sequence[Row], whole: Collection[str], failing: bool) -> Row:
    """The document of `pipelines`.

    Args:
        rows: of `engine.jobs.bulk`.
        whole: keys of those of whole pipelines, which were bisected.
        failing: whether one of these fails the command where it is not right.
    """
    official = [r for r in rows if r["key"] in whole]
    return {
        "rows": [{**r, "result": result(r)} for r in rows],
        "culprits": culprits(official, [r for r in rows if r["key"] not in whole]),
        "fails": failing and any(r["outcome"] != "right" for r in official),
    }


def sections(document: Row, complete: bool = True) -> list[Section]:
    """A line a pipeline, then the culprits; while not `complete`, silence is no verdict."""
    said = document["culprits"] or ["Every pipeline matches."] * complete
    rows = table("", document["rows"], "pipeline; result; seconds")
    return [rows, *map(sentence, said)]


def result(row: Row) -> str:
    """What a pipeline does to a model, in a few words."""
    if row["outcome"] == "right":
        return "match"
    if row["outcome"] in ("wrong", "rounding") and row.get("max_rel") is not None:
        return f"differs by {row['max_rel']:.1e} of the scale"
    return str(row.get("failure") or row["outcome"])


def culprits(official: Sequence[Row], others: Sequence[Row]) -> list[str]:
    """The passes to blame, in sentences; `others` lack a pass, or have one in front."""
    lines = []
    meant = "It computes in less precision, on purpose."
    right = {r["pipeline"] for r in official if r["outcome"] == "right"}
    for row in official:
        if row["outcome"] != "right":
            named = ", ".join(row["culprits"]) or "not found"
            said = f"{row['pipeline']}: first bad pass: {named}. {row['verdict']}"
            lines.append(said.strip())
    for row in others:
        name, _, rest = row["pipeline"].partition("|")
        if rest.startswith("-"):
            if row["outcome"] == "right" and name not in right:
                lines.append(f"{name} matches without {rest[1:]}.")
            elif row["outcome"] != "right" and name in right:
                lines.append(f"{name} without {rest[1:]}: {result(row)}. {row['verdict']}".strip())
        elif row["outcome"] != "right" and rest in right:
            about = meant if name in ROUNDING and row["outcome"] == "wrong" else row["verdict"]
            lines.append(f"{name} in front of {rest}: {result(row)}. {about}".strip())
    return lines
