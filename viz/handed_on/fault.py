"""Adds a page to a fault's report: its sections, and the module as a graph."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from relascope.engine.protocol.fault import Report
from relascope.viz.compare.text import DiffEffort
from relascope.viz.handed_on.graphs import PLAIN
from relascope.viz.handed_on.sheet import Section, Sheet
from relascope.viz.handed_on.steps import StepSheet, StepsSheet, steps_tab
from relascope.viz.rows.sections import table
from relascope.viz.rows.step_list import StepChange, StepListRow

PAGE = "report.html"
_SIDES = ("Before the pass", "After the pass")


def with_page(report: Report) -> Report:
    """A report with `report.html` among its files."""
    return replace(report, files={**report.files, PAGE: _sheet(report).html().encode()})


def _sheet(report: Report) -> Sheet:
    file = Sheet(report.title, {"IR": report.graph_before.ir.capitalize()})
    file.tab("report", "Report", _sections(report))
    before, after = report.graph_before, report.graph_after
    rows = [StepListRow(_SIDES[0], "", nodes=len(before))]
    if after is not None:
        met = StepChange.between(before, after).matched
        counts: dict[str, Any] = {n: len(getattr(met, n)) for n in ("added", "removed", "changed")}
        rows.append(StepListRow(_SIDES[1], "", nodes=len(after), **counts))
    steps = [StepSheet([("main", (0, at), "")]) for at in range(len(rows))]
    graphs, texts = (before, after), (report.before, report.after)
    of = graphs.__getitem__, texts.__getitem__, DiffEffort()
    steps_tab(file, StepsSheet(steps, [row.data for row in rows], len(steps) - 1, *of), PLAIN)
    return file


def _sections(report: Report) -> Iterator[Section]:
    for one in report.passages:
        words = one.words.replace("`", "")
        yield {"kind": "passage", "title": one.title, "words": words, "code": one.code}
        if one.rows:
            rows = [{n: cell.replace("`", "") for n, cell in row.items()} for row in one.rows]
            yield table("", rows)
