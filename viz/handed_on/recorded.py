"""A recording of a compile in one file: its passes, their changes and their times."""

from collections.abc import Iterator

from relascope.core.graph import Graph
from relascope.recorder.reading import PassRun, Recording
from relascope.viz.compare.text import ASIDE, DiffEffort, brief
from relascope.viz.drawing.drawing import MOST_NODES
from relascope.viz.handed_on.graphs import PLAIN
from relascope.viz.handed_on.sheet import Section, Sheet, sentence
from relascope.viz.handed_on.steps import Pair, StepSheet, StepsSheet, steps_tab
from relascope.viz.rows import Row
from relascope.viz.rows import recording as rows_of

LARGEST = 8 << 20
"""The largest recording, in bytes, whose page is made at once; larger ones take too long."""
_STEPS, _STEPS_PER_BYTE = 150_000_000, 100  # of work, for any recording and by file size
_GRAPH_STEPS = 5  # of work, per character of a graph


def recording_sheet(recording: Recording) -> Sheet:
    """The file of a recording. Raises EngineError of kind "file" if it can no longer be read."""
    rows = rows_of.pass_rows(recording)
    document = rows_of.recording_document(recording, rows)
    file = head_of(recording, document)
    if rows:
        steps_tab(file, _passes(recording, rows), PLAIN)
    return file.tab("times", "Times", rows_of.times_sections(document))


def head_of(recording: Recording, document: Row | None = None) -> Sheet:
    """An empty page on a recording, as `parts.sheet_of`; `document` is the recording's, if made."""
    document = document or rows_of.recording_document(recording, rows_of.pass_rows(recording))
    title = f"{recording.path.name}, a compile recorded with TVM {recording.about.get('tvm')}"
    return Sheet(title, rows_of.about(recording, document), rows_of.gaps(document))


def _passes(recording: Recording, rows: list[Row]) -> StepsSheet:
    """The passes; keys of functions are hashes of their content."""
    effort = DiffEffort(_STEPS + _STEPS_PER_BYTE * recording.path.stat().st_size)

    def graph(key: str) -> Graph | None:
        effort.left -= _GRAPH_STEPS * recording.graph_size(key) if effort.left > 0 else 0
        found = recording.graph(key) if effort.left > 0 else None
        return found if found and len(found) <= MOST_NODES else None

    def text(key: str) -> str:
        text = recording.text(key)
        effort.left -= len(text)
        return brief(text)

    steps = [
        StepSheet(list(_functions(recording, run, row)), list(_said(run)))
        for run, row in zip(recording.passes, rows, strict=True)
    ]
    listed, first = rows_of.list_rows(rows), rows_of.first(rows)
    return StepsSheet(steps, listed, first, graph, text, effort, ASIDE)


def _said(run: PassRun) -> Iterator[Section]:
    if run.failure is not None or run.seconds is None:
        yield sentence(f"{rows_of.no_module(run)}\n{run.failure or ''}".strip(), True)
    if run.before is None:
        yield sentence(rows_of.NAMES_ALONE)


def _functions(recording: Recording, run: PassRun, row: Row) -> Iterator[tuple[str, Pair, str]]:
    """The functions that a pass changed, each before and after and in words; if it changed none,
    main, the first function with a graph, or the first."""
    before, after = run.before, run.after
    if before is None:
        return
    known = before if after is None else after
    names = list(row["touched"] or ())
    if not names and known:
        drawable = (name for name, content in known.items() if recording.has_graph(content))
        names = ["main"] if "main" in known else [next(drawable, next(iter(known)))]
    for name in names:
        old, new = pair = before.get(name), known.get(name)
        why = recording.no_graph(new or old or "")
        more = f". It has no graph: {why[:500]}" if why else ""
        yield name, pair, rows_of.became(name, old, new, {"touched": ()}, after is not None) + more
