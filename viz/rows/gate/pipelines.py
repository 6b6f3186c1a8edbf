"""A model through each of TVM's pipelines: which match, and which passes are to blame."""

from collections.abc import Collection, Sequence

from relascope.viz.rows import Row
from relascope.viz.rows.sections import Section, sentence, table

ROUNDING = ("ToMixedPrecision", "FastMath", "FastMathTransform")
"""Passes of TVM's that are meant to change numbers."""


def document(rows: Sequence[Row], whole: Collection[str], failing: bool) -> Row:
    """The document of `pipelines` from rows of `engine.jobs.bulk`. `whole` are keys of rows of
    whole pipelines; with `failing`, one of them that is not right fails the command."""
    official = [r for r in rows if r["key"] in whole]
    return {
        "rows": [{**r, "result": result(r)} for r in rows],
        "culprits": culprits(official, [r for r in rows if r["key"] not in whole]),
        "also": list(dict.fromkeys(said for r in official for said in r.get("also", ()))),
        "fails": failing and any(r["outcome"] != "right" for r in official),
    }


def sections(document: Row, complete: bool = True) -> list[Section]:
    """A line for each pipeline, and the culprits. Only a `complete` run says that all match."""
    said = document["culprits"] or ["Every pipeline matches."] * complete
    rows = table("", document["rows"], "pipeline; result; seconds")
    return [rows, *map(sentence, [*said, *document["also"]])]


def result(row: Row) -> str:
    """A pipeline's outcome in a few words."""
    if row["outcome"] == "right":
        return "match"
    if row["outcome"] in ("wrong", "rounding") and row.get("max_rel") is not None:
        return f"differs by {row['max_rel']:.1e} of the scale"
    return str(row.get("failure") or row["outcome"])


def culprits(official: Sequence[Row], others: Sequence[Row]) -> list[str]:
    """The passes to blame, in sentences; `others` lack a pass, or have one in front."""
    right = {r["pipeline"] for r in official if r["outcome"] == "right"}
    lines = []
    for row in official:
        if row["outcome"] != "right":
            named = ", ".join(row["culprits"]) or "not found"
            lines.append(f"{row['pipeline']}: first bad pass: {named}. {row['verdict']}")
    lines += filter(None, (_moved(row, right) for row in others))
    return [line.strip() for line in lines]


def _moved(row: Row, right: Collection[str]) -> str:
    """The effect of leaving a pass out, or putting it in front, on a pipeline's outcome, or ""."""
    name, _, rest = row["pipeline"].partition("|")
    fits = row["outcome"] == "right"
    if rest.startswith("-"):
        if fits == (name in right):
            return ""
        without = f"without {rest[1:]}"
        return f"{name} matches {without}." if fits else _differs(name, without, row)
    return "" if fits or rest not in right else _differs(name, f"in front of {rest}", row)


def _differs(name: str, where: str, row: Row) -> str:
    meant = where.startswith("in front") and name in ROUNDING and row["outcome"] == "wrong"
    about = "It lowers the precision on purpose." if meant else row["verdict"]
    return f"{name} {where}: {result(row)}. {about}"
