"""The steps of a pipeline for a file: the list, the graph after each, what differs, the text.

Where nothing but a graph, a text or a time is known of a step, that is what is shown of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.core.identity import carry_identity
from relascope.engine.jobs.step import Stepped
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.viz.compare import changes
from relascope.viz.drawing.drawing import View
from relascope.viz.drawing.modules import fold_constants
from relascope.viz.drawing.union import Union
from relascope.viz.handed_on import sheet
from relascope.viz.handed_on.graphs import drawing
from relascope.viz.handed_on.sheet import Section, Sheet
from relascope.viz.rows import Row as Cells
from relascope.viz.rows import formats
from relascope.viz.rows.step_list import StepListRow, rows

_HEIGHT = 570


@dataclass(frozen=True)
class StepSheet:
    """What is known of one step.

    Args:
        row: its line in the list.
        graph: after it; None where there is none.
        before: that it started from; None for the first, and where it is not known.
        text: the IR's text after it; None where it is not known.
        text_before: that it started from.
        said: sentences of it: why it failed, what it printed.
        notes: by a node's id a line that is told with it.
    """

    row: StepListRow
    graph: Graph | None = None
    before: Graph | None = None
    text: str | None = None
    text_before: str | None = None
    said: Sequence[Section] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


def steps_tab(
    file: Sheet, steps: Iterable[StepSheet], view: View, chosen: int | None = None
) -> None:
    """Add the tab of a pipeline's steps.

    Args:
        steps: the imported program first.
        view: how graphs are drawn; what a step touched is coloured on top.
        chosen: the step that is shown at first; None for the last one.
    """
    union, listed, blocks = Union(), [], []
    known: list[tuple[StepSheet, Seen | None, Union]] = []
    for step in steps:  # all before the first is drawn, so that nothing moves between steps
        seen = None if step.graph is None else seen_of(step.before, step.graph)
        if seen is not None:
            union = joined(union, seen, view)
        known.append((step, seen, union))
    for step, seen, union in known:
        listed.append(asdict(step.row) | {"idle": step.row.idle, "fixed": True})
        blocks.append(file.block(_details(step, seen, union, view)))
    last = len(listed) - 1
    section = {
        "kind": "steps",
        "rows": listed,
        "blocks": blocks,
        "chosen": last if chosen is None else min(chosen, last),
        "height": _HEIGHT,
    }
    file.tab("passes", "Passes", [section])


def joined(union: Union, seen: Seen, view: View) -> Union:
    """The union in whose places a step is drawn: the one so far, or another that begins with it."""
    graph = fold_constants(seen.shown, view.fewer_than)
    union = union if union.knows(graph) else Union()
    union.add(graph, seen.beside)
    return union


@dataclass(frozen=True)
class Seen:
    """What is drawn of a step: the graph with what went, its looks, and what came of what.

    Args:
        touched: rows of what the step added, removed and changed.
        after: the graph after it, under the ids of the one before.
    """

    shown: Graph
    after: Graph
    looks: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    touched: Sequence[Cells] = ()


def seen_of(before: Graph | None, after: Graph) -> Seen:
    """What is to be drawn of a graph, held against the one before."""
    if before is None:
        return Seen(after, after)
    matched = carry_identity(before, after)
    touched = changes.change_rows(before, matched)
    shown = changes.with_removed(before, matched) if matched.removed else matched.graph
    beside = {r["id"]: r["from"][-1] for r in touched if r["what"] == "added" and r["from"]}
    return Seen(shown, matched.graph, changes.coloured(matched), beside, touched)


def drawn(
    seen: Seen | None,
    before: Graph | None,
    union: Union,
    view: View,
    notes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The graph after a step, what changed as tables, and figures of both."""
    if seen is None:
        return {"picture": None, "tables": [], "figures": None}
    marked = replace(view, **seen.looks, notes=notes or {})
    picture = drawing(seen.shown, marked, union)
    if before is None:
        return {"picture": picture, "tables": [], "figures": None}
    tables = [_nodes(seen.touched), _operators(before, seen.after)]
    shown = [t for t in tables if t["rows"]]
    return {"picture": picture, "tables": shown, "figures": _figures(before, seen.after)}


def _details(step: StepSheet, seen: Seen | None, union: Union, view: View) -> dict[str, Any]:
    texts: list[Section] = []
    if step.text is not None and step.text_before is not None:
        diff = changes.text_diff(step.text_before, step.text)
        if diff:
            texts.append(sheet.code("The difference of the text", diff, "diff"))
    elif step.text is not None:
        texts.append(sheet.code("The text", step.text))
    about = drawn(seen, step.before, union, view, step.notes)
    return {**about, "said": list(step.said), "texts": texts}


def _nodes(touched: Sequence[Cells]) -> Section:
    columns = "what; node: op; where it came from, or went: text; module: scope; id"
    return sheet.table("What this step changed", touched, columns, [r["id"] for r in touched])


def _operators(before: Graph, after: Graph) -> Section:
    rows = changes.operator_rows(before, after)
    differs = [
        {**r, "difference": r["after"] - r["before"]} for r in rows if r["after"] != r["before"]
    ]
    return sheet.table("Operators that are called more or less often", differs)


def _figures(before: Graph, after: Graph) -> Section:
    was, now = changes.figures(before), changes.figures(after)

    def both(key: str, write: Any) -> str:
        a, b = write(was[key]), write(now[key])
        return a if a == b else f"{a} → {b}"

    return sheet.figures(
        (both("nodes", formats.number), "nodes"),
        (both("parameter_bytes", formats.size), "parameters"),
        (both("constant_bytes", formats.size), "constants"),
        (both("flops", formats.flops), "FLOPs, estimated"),
    )


def steps_of(
    ask: Ask,
    ir: str,
    source: ModelSource,
    stepped: Stepped,
    errors: Mapping[int, Cells] | None = None,
) -> Iterator[StepSheet]:
    """The steps of a pipeline, asked of an engine.

    Args:
        errors: by a step's index, its row of `step --check`, where that was done.
    """
    pipeline = stepped.pipeline
    imported: Graph = ask("load", source).graph
    listed = rows(ir, pipeline, stepped.records, len(imported))
    text: str = ask("text", source, pipeline, -1)
    yield StepSheet(listed[0], imported, text=text)
    for index, record in enumerate(stepped.records):
        start = changes.start_of(ir, pipeline, index)
        before: Graph = imported if start < 0 else ask("graph_after", source, pipeline, start)
        said = [_failure(record.error)] if record.error else []
        if record.printed:
            said.append(sheet.sentence(record.printed))
        row = listed[index + 1]
        error = (errors or {}).get(index, {})
        if error.get("error"):
            row = replace(row, error=error_text(error["error"]))
        if error.get("check_failure"):
            why = error["check_failure"]["message"]
            said.append(sheet.sentence(f"It cannot be compared with PyTorch: {why}", True))
        yield StepSheet(
            row,
            ask("graph_after", source, pipeline, index),
            before,
            ask("text", source, pipeline, index),
            ask("text", source, pipeline, start),
            said,
        )


def _failure(error: EngineError) -> Section:
    where = f" ({error.where})" if error.where else ""
    return sheet.sentence(f"{error.message}{where} {error.hint}".strip(), True)


def error_text(row: Cells) -> str:
    """An error of `step --check` in a few words."""
    return f"{row['verdict']}: error {float(row['max_rel']):.1e} of the scale"
