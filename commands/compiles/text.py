"""What the commands for one's own compiles say, in words."""

from typing import Any

from relascope.viz.rows import sections, tables
from relascope.viz.rows.sections import text_table
from relascope.viz.rows.step_list import programs_beside, side_text, step_differs, steps_beside

Document = dict[str, Any]


def diff(document: Document) -> str:
    """What `diff` says: what matters most, then steps, programs and times."""
    sides = (side_text(side, document[side]) for side in ("a", "b"))
    parts = ["\n".join([document["verdict"], *sides])]
    first, end = document["first_difference"], document["end"]
    told = [r for r in document["steps"] if step_differs(r, first)]
    told.sort(key=lambda r: -abs((r["a_seconds"] or 0.0) - (r["b_seconds"] or 0.0)))
    parts.append(sections.text([steps_beside(told, first)]))
    if first is not None:
        at = first["pass"] or "the beginning"
        parts.append(f"The first difference is at {at}. {first['why']}")
        if "counts" in first and (end is None or first["counts"] != end["counts"]):
            parts.append(f"There: {sections.text(programs_beside(first))}")
    if end is None:
        parts.append("One of them has no graph: nodes are not compared.")
    else:
        parts.append(f"At the end: {sections.text(programs_beside(end))}")
    if "groups" in document:
        parts.append(sections.text(tables.alignment_sections(document)))
    if document["times"]:
        parts.append(_times_beside(document["times"]))
    return "\n\n".join(filter(None, parts))


def _times_beside(times: Document) -> str:
    shown = "side; target; phase; median: median_ms; ratio: ratio_to_eager; max abs: max_abs_error"
    parts = [text_table(times["rows"], shown), *times["notes"]]
    if times["b_over_a"] is not None:
        parts.insert(0, f"B takes {times['b_over_a']:.2f} times as long as A.")
    return "\n".join(parts)
