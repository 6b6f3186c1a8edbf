"""The steps of a pipeline, or the passes of a recording, in a file: their list, and their changes.

A step changes functions; a pipeline has one. A function before and after a step has a key, for
which an engine or a recording gives the graph and text.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from relascope.core.graph import Graph
from relascope.engine.jobs.step import Stepped
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.viz.compare.changes import coloured, start_of
from relascope.viz.compare.text import DiffEffort, diff_data, stretches_of
from relascope.viz.drawing.drawing import View, family_of
from relascope.viz.drawing.modules import fold_constants
from relascope.viz.drawing.union import Union
from relascope.viz.handed_on import sheet
from relascope.viz.handed_on.graphs import drawing
from relascope.viz.handed_on.sheet import Section, Sheet
from relascope.viz.rows import Row
from relascope.viz.rows.memory import memory_sections
from relascope.viz.rows.sections import table
from relascope.viz.rows.step_list import CHANGED, StepChange, rows

_EFFORT = 200_000_000  # of comparing texts, per step
_FULL = "This page is full: `relascope open` shows the texts of this step."
Pair = tuple[Any, Any]
"""The keys of a function before and after a step; None if it did not exist."""


@dataclass(frozen=True)
class StepSheet:
    """A step: each function's name, keys, and change in words; and further sentences."""

    functions: Sequence[tuple[str, Pair, str]]
    sentences: Sequence[Section] = ()


@dataclass(frozen=True)
class StepsSheet:
    """Steps in order."""

    steps: Sequence[StepSheet]
    rows: Sequence[Row]  # of their list
    chosen: int  # at first
    graph: Callable[[Any], Graph | None]  # by key
    text: Callable[[Any], str]
    effort: DiffEffort  # once it is used up, the rest is left out
    same: str = "The text did not change."  # of equal texts


def steps_tab(file: Sheet, of: StepsSheet, view: View, chosen: int | None = None) -> Sheet:
    """Add the tab of steps and their changes; `chosen` is shown at first, if not that of `of`."""
    drawings = _Drawings(file, of, view)
    for step in of.steps:  # before drawing the first, so that nothing moves between steps
        for name, pair, _ in step.functions:
            drawings.see(name, pair)
    details = [
        {
            "said": list(step.sentences),
            "functions": [
                [name, words, drawings.picture(pair), drawings.text(pair)]
                for name, pair, words in step.functions
            ],
        }
        for step in of.steps
    ]
    section = {
        "kind": "steps",
        "rows": of.rows,
        "block": file.block(details),
        "chosen": of.chosen if chosen is None else min(chosen, len(of.steps) - 1),
        "height": 570,
    }
    return file.tab("passes", "Passes", [section])


@dataclass
class _Drawings:
    """The changes of functions, each drawn once: `graphs` by key, under the ids from before, and
    the union in which they are drawn, by a function's name or the family of a pipeline's graphs."""

    file: Sheet
    of: StepsSheet
    view: View
    graphs: dict[Hashable, Graph | None] = field(default_factory=dict)
    unions: dict[str, Union] = field(default_factory=dict)
    seen: dict[Pair, tuple[StepChange, Union]] = field(default_factory=dict)
    blocks: dict[tuple[str, Pair], int] = field(default_factory=dict)

    def _graph(self, key: Hashable) -> Graph | None:
        if key not in self.graphs:
            self.graphs[key] = None if key is None else self.of.graph(key)
        return self.graphs[key]

    def see(self, function: str, pair: Pair) -> None:
        """Add a step's change of a function to its union."""
        old, new = pair
        graph = self._graph(old if new is None else new)
        if graph is None or pair in self.seen:
            return
        change = StepChange.between(self._graph(old) if new not in (None, old) else None, graph)
        if new is not None:
            self.graphs[new] = change.matched.graph  # the next step is compared by these ids
        folded = fold_constants(change.with_removed, self.view.fewer_than)
        # As on the page, a pipeline's joint graphs have a union of their own, begun by the import.
        family = function or family_of(folded)
        union = self.unions.get(family, Union())
        if family not in self.unions and not function and (first := self.graphs[-1]):
            union.add(fold_constants(first, self.view.fewer_than))
        union = union if union.knows(folded) else Union()
        union.add(folded, change.successors)
        self.unions[family] = union
        self.seen[pair] = change, union

    def picture(self, pair: Pair) -> int | None:
        if pair not in self.seen:
            return None
        key = "graph", pair
        if key not in self.blocks:
            change, union = self.seen[pair]
            looks = coloured(change.matched) if pair[0] != pair[1] else {}
            picture = drawing(change.with_removed, replace(self.view, **looks), union)
            ids, often = [r["id"] for r in change.rows], change.operators
            often = [r for r in often if r["difference"]]
            tables = (
                table("What this step changed", change.rows, CHANGED, ids),
                table("Operators whose number of calls changed", often),
            )
            about = {
                "picture": picture,
                "figures": sheet.figures(*change.figures),
                "memory": [*map(sheet.drawn, memory_sections(change.memory))],
                "tables": [sheet.drawn(t) for t in tables if t["rows"]],
            }
            self.blocks[key] = self.file.block(about)
        return self.blocks[key]

    def text(self, pair: Pair) -> int:
        key = "text", pair
        if key not in self.blocks:
            found, same = [], _FULL
            if self.of.effort.left > 0:
                before, after = ("" if k is None else self.of.text(k) for k in pair)
                found = stretches_of(before, after, self.of.effort)
                same = self.of.same if pair[0] != pair[1] else "The text is the same."
            self.blocks[key] = self.file.block(diff_data(found, same))
        return self.blocks[key]


def steps_of(
    ask: Ask,
    ir: str,
    source: ModelSource,
    stepped: Stepped,
    errors: Mapping[int, Row] | None = None,
) -> StepsSheet:
    """An engine's steps of a pipeline by index (-1: the import); `errors` are of `step --check`."""
    pipeline = stepped.pipeline
    listed = rows(ir, pipeline, stepped.records, len(ask("load", source).graph))
    steps = [StepSheet([("", (-1, -1), "")])]
    for index, record in enumerate(stepped.records):
        said, row, error = list[Section](), listed[index + 1], (errors or {}).get(index, {})
        if record.error:
            where = f" ({record.error.where})" if record.error.where else ""
            words = f"{record.error.message}{where} {record.error.hint}".strip()
            said.append(sheet.sentence(words, True))
        if record.printed:
            said.append(sheet.sentence(record.printed))
        if error.get("error"):
            listed[index + 1] = replace(row, error=error_text(error["error"]))
        if error.get("check_failure"):
            why = error["check_failure"]["message"]
            said.append(sheet.sentence(f"It cannot be compared with PyTorch: {why}", True))
        steps.append(StepSheet([("", (start_of(ir, pipeline, index), index), "")], said))
    shown = [row.data | {"fixed": True} for row in listed]
    graph, text = (partial(ask, what, source, pipeline) for what in ("graph_after", "text"))
    effort = DiffEffort(_EFFORT * (1 + len(pipeline)))
    return StepsSheet(steps, shown, len(pipeline), graph, text, effort)


def error_text(row: Row) -> str:
    """An error of `step --check` in a few words."""
    return f"{row['verdict']}: error {float(row['max_rel']):.1e} of the scale"
