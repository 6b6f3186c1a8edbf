"""What the commands for one's own compiles say, in words."""

from __future__ import annotations

from typing import Any

from relascope.viz.rows.formats import counts_text, flops, number, size, text_table

Document = dict[str, Any]

_DIFFERENT = 20  # nodes, and steps, that `diff` prints before it counts the rest


def diff(document: Document) -> str:
    """What `diff` says: what matters most, then steps, programs and times."""
    lines = [document["verdict"]]
    for side in ("a", "b"):
        one = document[side]
        took = (
            "" if one["seconds"] is None else f", {one['steps']} passes in {one['seconds']:.2f} s"
        )
        passes = f": {one['pipeline']}" if one.get("pipeline") else ""
        lines.append(f"{side.upper()}: {one['label']} ({one['engine']}){passes}{took}")
    parts = ["\n".join(lines)]
    told = [r for r in document["steps"] if r["only"] or r["slower"]]
    if told:
        rows = [
            {
                **r,
                "in": f"only {r['only'].upper()}" if r["only"] else "both",
                "A ms": _ms(r["a_seconds"]),
                "B ms": _ms(r["b_seconds"]),
                "slower": (r["slower"] or "").upper(),
            }
            for r in told
        ]
        rows.sort(key=lambda r: -abs((r["a_seconds"] or 0.0) - (r["b_seconds"] or 0.0)))
        parts.append(_first_of(rows, ["pass", "in", "A ms", "B ms", "slower"]))
    first, end = document["first_difference"], document["end"]
    if first is not None:
        at = first["pass"] or "the beginning"
        parts.append(f"The first difference is at {at}. {first['why']}")
        if "counts" in first and (end is None or first["counts"] != end["counts"]):
            parts.append(f"There: {_beside(first)}")
    if end is None:
        parts.append("One of them has no graph: nodes are not compared.")
    else:
        parts.append(f"At the end: {_beside(end)}")
    if "groups" in document:
        parts += _operators_beside(document)
    if document["times"]:
        parts.append(_times_beside(document["times"]))
    return "\n\n".join(parts)


def _first_of(rows: list[Document], columns: list[str]) -> str:
    """A table of the first rows, and how many more there are."""
    more = len(rows) - _DIFFERENT
    table = text_table(rows[:_DIFFERENT], columns)
    return f"{table}\n\n{more} more; --json has all." if more > 0 else table


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.1f}"


def _beside(program: Document) -> str:
    """Two programs beside each other."""
    counts, figures = program["counts"], program["figures"]
    head = ", ".join(f"{n} {k}" for k, n in counts.items() if k != "unsure")
    if counts["unsure"]:
        head += f" ({counts['unsure']} pairs are unsure)"
    shown = {"nodes": number, "kernels": number, "parameter_bytes": size, "constant_bytes": size}
    rows = [
        {"": key.replace("_", " "), "A": show(figures["a"][key]), "B": show(figures["b"][key])}
        for key, show in {**shown, "flops": flops}.items()
    ]
    parts = [f"{head}.", text_table(rows, ["", "A", "B"])]
    if program["operators"]:
        parts.append(text_table(program["operators"], ["operator", "before", "after"]))
    if program["kernels"]:
        parts.append(text_table(program["kernels"], ["kernel", "a", "b"]))
    if nodes := program["nodes"]:
        parts.append(_first_of(nodes, ["what", "op", "scope", "sure", "text"]))
    return "\n\n".join(parts)


def _operators_beside(document: Document) -> list[str]:
    """What each PyTorch operator became in two IRs."""
    engines = list(document["engines"])
    lost = [f"{ir}: {len(m)} nodes name no origin" for ir, m in document["unmatched"].items() if m]
    parts = ["\n".join(lost)] if lost else []
    for kind, columns in (("operators", ("source", "modules")), ("groups", ("scope", "source"))):
        rows = [{**r, **{ir: counts_text(r[ir]) for ir in engines}} for r in document[kind]]
        parts.append(text_table(rows, [*columns, *engines, "only"]))
    return [*parts, text_table(document["calls"], ["operator", *engines, "only"])]


def _times_beside(times: Document) -> str:
    columns = ["side", "target", "phase", "median_ms", "ratio_to_eager", "max_abs_error"]
    parts = [text_table(times["rows"], columns), *times["notes"]]
    if times["b_over_a"] is not None:
        parts.insert(0, f"B takes {times['b_over_a']:.2f} times as long as A.")
    return "\n".join(parts)
