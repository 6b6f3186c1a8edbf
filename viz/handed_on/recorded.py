"""A recording of a compile in one file: its passes, what each changed, and their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from relascope.core.graph import Graph
from relascope.recorder.reading import PassRun, Recording
from relascope.viz.compare.text import ASIDE, DiffEffort, beside, brief, columns
from relascope.viz.drawing.drawing import MOST_NODES, View
from relascope.viz.drawing.union import Union
from relascope.viz.handed_on import sheet
from relascope.viz.handed_on.graphs import PLAIN
from relascope.viz.handed_on.sheet import Section, Sheet
from relascope.viz.handed_on.steps import Seen, drawn, joined, seen_of
from relascope.viz.rows import Row, formats
from relascope.viz.rows import recording as rows_of

_HEIGHT = 570
_STEPS, _STEPS_PER_BYTE = 150_000_000, 100  # of work: for any recording, and by its file's size
_GRAPH_STEPS = 5  # of work, for a character of a graph
_FULL = "This page is full: see the texts of this pass with relascope open."
Pair = tuple[str | None, str | None]
"""Hashes of what a function held before and after a pass."""


def recording_sheet(recording: Recording, view: View = PLAIN) -> Sheet:
    """The file of a recording.

    Raises:
        EngineError: kind "file"; it cannot be read any more.
    """
    rows = rows_of.pass_rows(recording)
    about = recording.about
    arguments = about.get("arguments")
    seconds = rows_of.whole_seconds(recording)
    made = {
        "recording": recording.path.name,
        "command": " ".join(map(str, arguments)) if isinstance(arguments, list) else "",
        "TVM": about.get("tvm"),
        "Python": about.get("python"),
        "level": about.get("level"),
        "passes": f"{formats.number(len(rows))} in {formats.milliseconds(seconds)}",
    }
    title = f"{recording.path.name}, a compile recorded with TVM {about.get('tvm')}"
    file = Sheet(title, made, rows_of.gaps(recording, rows))
    if rows:
        _passes(file, recording, rows, view)
    _times(file, rows, seconds)
    return file


@dataclass
class _Contents:
    """What functions held, each held against what it was: once each, however often it is shown.

    Args:
        graphs: by a content's hash, with the ids that its nodes had before.
        unions: by a function's name the one that its graphs are drawn in.
        seen: by what a function held before and after, with its union.
        work: left for comparing; what comes when it is used up is left out.
    """

    recording: Recording
    view: View
    graphs: dict[str, Graph | None] = field(default_factory=dict)
    unions: dict[str, Union] = field(default_factory=dict)
    seen: dict[Pair, tuple[Seen, Graph | None, Union]] = field(default_factory=dict)
    blocks: dict[tuple[str, Pair], int] = field(default_factory=dict)
    work: DiffEffort = field(default_factory=DiffEffort)

    def __post_init__(self) -> None:
        self.work.left = _STEPS + _STEPS_PER_BYTE * self.recording.path.stat().st_size

    def graph(self, name: str | None) -> Graph | None:
        if name is None:
            return None
        if name not in self.graphs:
            size = self.recording.graph_size(name) if self.work.left > 0 else 0
            self.work.left -= _GRAPH_STEPS * size
            found = self.recording.graph(name) if self.work.left > 0 else None
            self.graphs[name] = found if found and len(found) <= MOST_NODES else None
        return self.graphs[name]

    def see(self, function: str, pair: Pair) -> None:
        """Give what a pass made of a function its places, before anything is drawn."""
        old, new = pair
        graph = self.graph(new or old)
        if graph is None or pair in self.seen:
            return
        before = self.graph(old) if new is not None and old != new else None
        seen = seen_of(before, graph)
        if new is not None:
            self.graphs[new] = seen.after  # what comes next is held against these ids
        union = joined(self.unions.get(function, Union()), seen, self.view)
        self.unions[function] = union
        self.seen[pair] = seen, before, union

    def picture(self, file: Sheet, pair: Pair) -> int | None:
        """The block of a pair's graph."""
        if pair not in self.seen:
            return None
        key = "graph", pair
        if key not in self.blocks:
            self.blocks[key] = file.block(drawn(*self.seen[pair], self.view))
        return self.blocks[key]

    def text(self, file: Sheet, pair: Pair) -> int:
        """The block of a pair's texts side by side."""
        key = "text", pair
        if key not in self.blocks:
            old, new = pair
            if self.work.left > 0:
                texts = [self.recording.text(n) if n is not None else "" for n in pair]
                self.work.left -= sum(map(len, texts))
                rows = columns(brief(texts[0]), brief(texts[1]), self.work)
                same = "The text is the same." if old == new else ASIDE
            else:
                rows, same = [], _FULL
            self.blocks[key] = file.block(beside(rows, ("before", "after"), same))
        return self.blocks[key]


def _passes(file: Sheet, recording: Recording, rows: list[Row], view: View) -> None:
    contents = _Contents(recording, view)
    for run, row in zip(recording.passes, rows, strict=True):
        for name, pair, _ in _functions(run, row, contents):
            contents.see(name, pair)
    around = rows_of.insides(rows)
    details = [
        _details(file, run, row, rows_of.facts(rows, row["number"], around), contents)
        for run, row in zip(recording.passes, rows, strict=True)
    ]
    changes = rows_of.own_changes(rows)
    section = {
        "kind": "recording",
        "rows": rows_of.as_columns(rows),
        "changes": changes,
        "block": file.block(details),
        "chosen": rows_of.first(rows, changes),
        "height": _HEIGHT,
    }
    file.tab("passes", "Passes", [section])


def _functions(run: PassRun, row: Row, contents: _Contents) -> Iterator[tuple[str, Pair, str]]:
    """The functions that a pass changed, each with what it held and what became of it; of a pass
    that changed none, the first one that has a graph, or the first."""
    before, after = run.before, run.after
    if before is None:
        return
    known = before if after is None else after
    touched = row["touched"] or ()
    names = list(touched)
    if not names and known:
        drawable = (n for n, content in known.items() if contents.graph(content) is not None)
        names = ["main"] if "main" in known else [next(drawable, next(iter(known)))]
    for name in names:
        pair = before.get(name), known.get(name)
        yield name, pair, rows_of.became(name, *pair, {"touched": ()}, after is not None)


def _details(
    file: Sheet, run: PassRun, row: Row, facts: str, contents: _Contents
) -> dict[str, Any]:
    said: list[Section] = []
    if run.failure is not None:
        said.append(sheet.sentence(f"The pass failed.\n{run.failure}", True))
    elif run.seconds is None:
        said.append(sheet.sentence(rows_of.UNDER_WAY, True))
    if run.before is None:
        said.append(sheet.sentence(rows_of.NAMES_ALONE))
    functions = []
    for name, pair, words in _functions(run, row, contents):
        shown = pair[1] or pair[0]
        why = "" if shown is None else contents.recording.no_graph(shown)
        more = f". It has no graph: {why[:500]}" if why else ""
        blocks = contents.picture(file, pair), contents.text(file, pair)
        functions.append([name, words + more, *blocks])
    return {"title": row["pass"], "facts": facts, "said": said, "functions": functions}


def _times(file: Sheet, rows: list[Row], seconds: float) -> None:
    totals = rows_of.total_rows(rows)
    note = "Own time is without the passes that ran inside, so that all of them add up."
    figures = [
        (formats.milliseconds(seconds), "in passes"),
        (formats.number(len(rows)), "runs"),
        (formats.number(len(totals)), "different passes"),
    ]
    sections = [sheet.figures(*figures), sheet.table("", rows_of.shown_totals(totals), note=note)]
    file.tab("times", "Times", sections)
