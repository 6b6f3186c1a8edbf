"""The files of `-o`: one page that needs no server, pictures, and files for other tools."""

import argparse
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from relascope.commands.shared import Command, Document, write, write_files, writing
from relascope.core.errors import EngineError, refusing
from relascope.core.graph import Graph
from relascope.core.own_code import NodeValues, overlays_in, text_of
from relascope.engine.jobs.step import Stepped
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.results import ModelInfo
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import TorchSaved
from relascope.passes.cuts.cut import Cut
from relascope.passes.pipeline import Pipeline
from relascope.recorder.reading import Recording
from relascope.viz.drawing import javascript
from relascope.viz.drawing.drawing import with_overlays
from relascope.viz.drawing.modules import fold_constants, module_groups
from relascope.viz.handed_on.formats import COLOURED, FORMATS, ending_of, graph_file
from relascope.viz.handed_on.graphs import PLAIN
from relascope.viz.handed_on.parts import cut_tab, graph_tab, sheet_of, times_tab
from relascope.viz.handed_on.recorded import head_of, recording_sheet
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.handed_on.sheet import page as page_of
from relascope.viz.handed_on.steps import steps_of, steps_tab
from relascope.viz.rows import Row, tables, timings
from relascope.viz.rows.gate import comment

PAGE, DATA, TABLE, PLAINLY = LISTS = ".html", ".page.json", ".csv", ".json"
RECORDING, SESSION = ".rsc", ".zip"


def looks(command: argparse.ArgumentParser) -> None:
    """Options of a graph's drawing in a file."""
    add = command.add_argument
    about = "theme of the picture: light or dark"
    add("--theme", choices=("light", "dark"), default="light", help=about)
    about = "modules to expand in the picture: all, none, or paths separated by commas, with their "
    about += "parents; default: as on the page"
    add("--open", metavar="MODULES", help=about)
    add("--types", action="store_true", help="label the edges with the types of their values")
    about = "colour the nodes by functions of your own: each def NAME(graph) in this Python file, "
    about += "run in the sandbox, returns numbers or texts by node id"
    add("--overlay", type=Path, metavar="FILE", help=about)


def overlay_text(args: argparse.Namespace) -> str:
    """The text of --overlay, "" without it. Raises EngineError if it lacks the function, or if the
    file of -o has no colours."""
    path = args.overlay
    if path is None:
        return ""
    if args.output and (ending := ending_of(args.output.name, FORMATS)) not in COLOURED:
        said = f"A file that ends in {ending} cannot show an overlay."
        raise EngineError("usage", said, "--overlay", f"Write {', '.join(COLOURED)}, or --json.")
    with refusing("usage", "Cannot read the overlay: {}.", "--overlay", "Give a Python file."):
        text = text_of(str(path))
    overlays_in(str(path), text)
    return text


def graph(
    command: Command,
    info: ModelInfo,
    after: Graph,
    pipeline: Pipeline | None,
    overlays: Mapping[str, NodeValues],
) -> None:
    """Write the graph of `graph`, coloured by the first of the overlays."""
    args = command.args
    ending = ending_of(args.output.name, FORMATS)
    view = replace(PLAIN, show_shapes=args.types, open_groups=_opened(after, args.open))
    view = with_overlays(view, overlays)
    head = partial(_sheet, command, info.source, pipeline, info.notes)
    look = view, args.theme, lambda: graph_tab(head(), after, view, info)
    write(args.output, graph_file(ending, after, *look))


def _opened(graph: Graph, text: str | None) -> tuple[str, ...] | None:
    """The groups of --open, None without it. Raises EngineError if there is no such module."""
    if text is None:
        return None
    tree = module_groups(fold_constants(graph, PLAIN.fewer_than))
    if text in ("all", "none"):
        return tuple(tree.groups) if text == "all" else ()
    opened: list[str] = []
    for path in filter(None, (part.strip() for part in text.split(","))):
        found = [g for g in tree.groups if g.partition(":")[2] == path or g == path]
        if not found:
            known = ", ".join(g for g in tree.groups if not g.endswith(":"))
            said = f"The graph has no module {path}."
            raise EngineError("usage", said, "--open", f"Modules: {known[:300]}")
        opened += [g for one in found for g in tree.path(one)]
    return tuple(dict.fromkeys(opened))


def lists(
    output: Path,
    page: Callable[[], Sheet],
    columns: Iterable[str],
    rows: Callable[[], Sequence[Row]],
    document: Callable[[], Any],
) -> None:
    """Write a command's result by the file's ending: a page, its data, a table of `columns`, or a
    document."""
    ending = ending_of(output.name, LISTS)
    if ending in (PAGE, DATA):
        write_page(output, page())
    elif ending == TABLE:
        write(output, timings.csv_text(rows(), [*columns]))
    else:
        write(output, json.dumps(document(), ensure_ascii=False))


def write_page(output: Path, page: Sheet) -> None:
    """Write a page, or only its data, by the file's ending."""
    alone = ending_of(output.name, (PAGE, DATA)) == DATA
    write(output, json.dumps(page.data()) if alone else page.html())


def viewer_options(command: argparse.ArgumentParser) -> None:
    """The folder of the site."""
    about = "the folder, which is made"
    command.add_argument("-o", dest="output", type=Path, metavar="DIR", required=True, help=about)


def viewer(command: Command) -> Document:
    """Write a static site that shows pages' data and graphs' JSON, and the element that does it."""
    texts = {"index.html": page_of("relascope"), "relascope.js": javascript.element()}
    files = {name: text.encode() for name, text in texts.items()}
    write_files(files, command.args.output, "-o")
    return {"folder": str(command.args.output), "bytes": {n: len(t) for n, t in files.items()}}


def steps(command: Command, source: ModelSource, stepped: Stepped, errors: dict[int, Row]) -> None:
    """Write the steps of `step`: a page, all graphs, or a line for each step."""
    pipeline = stepped.pipeline

    def page() -> Sheet:
        if command.recorded and (command.args.last or source.module):
            said = "The page of a recording has all of its passes and functions."
            raise EngineError("usage", said, "-o", "Leave out --stop-after and --module.")
        if command.recorded:
            return recording_sheet(command.recorded.recording)
        file = _sheet(command, source, pipeline, command("load", source).notes)
        return steps_tab(file, steps_of(command, command.engine, source, stepped, errors), PLAIN)

    def graphs() -> list[Row]:
        indices = range(-1, len(pipeline))
        return [command("graph_after", source, pipeline, i).to_json() for i in indices]

    columns = ("pass", "enabled", "added", "removed", "changed", "nodes", "seconds")
    rows = partial(tables.step_rows, stepped.records, errors)
    lists(command.args.output, page, columns, rows, graphs)


def captures(
    command: Command, source: ModelSource, pipeline: Pipeline, cut: Cut, saved: TorchSaved | None
) -> None:
    """Write the cut of `captures`: a page, the split, or a line for each capture."""

    def page() -> Sheet:
        file = _sheet(command, source, pipeline, command("load", source).notes)
        return cut_tab(file, cut, PLAIN, saved)

    def split() -> Row:
        return plain(command("split", source, pipeline, cut.marked))

    columns = ("id", "op", "name", "shape", "dtype", "bytes", "scope", "source", "line", "reason")
    rows = partial(tables.saved_rows, tables.cut_document(cut))
    lists(command.args.output, page, columns, rows, split)


def times(command: Command, source: ModelSource, pipeline: Pipeline, document: Document) -> None:
    """Write the times of `time`: a page, the document, or a line for each row."""
    head = partial(_sheet, command, source, pipeline, strategy=document["strategy"])
    page = partial(times_tab, runs=[(source.model, document)])
    rest = (*timings.COLUMNS, "target"), lambda: document["rows"], lambda: document
    lists(command.args.output, lambda: page(head()), *rest)


def differences(command: Command, document: Document) -> None:
    """Write the result of `check --baseline`: a page with the present program, the document, or a
    line for each difference."""

    def page() -> Sheet:
        source, pipeline = command.source, command.pipeline
        file = _sheet(command, source, pipeline)
        file.tab("baseline", "Baseline", comment.overview(document))
        if document["now"] is not None:
            after = command("graph_after", source, pipeline, len(pipeline) - 1, True)
            graph_tab(file, after, PLAIN, command("load", source, True))
        return file

    columns = ("kind", "metric", "then", "now", "limit", "verdict", "text")
    lists(command.args.output, page, columns, lambda: document["differences"], lambda: document)


def put_page(recording: Recording, path: Path) -> None:
    """Write a recording with its page's data, for the viewer, to `path`, which may be its own.
    Raises EngineError if it is cut short, or cannot be written."""
    if not recording.whole:
        said, hint = f"{recording.path.name} is cut short.", "Write a page of it: -o FILE.html"
        raise EngineError("usage", said, f"-o {path}", hint)
    page = {} if recording.has_page else recording_sheet(recording).data()
    with writing(path, "-o"):
        if not (path.exists() and path.samefile(recording.path)):
            shutil.copyfile(recording.path, path)
    if page:
        write(path, json.dumps({"blob": "page", **page}) + "\n", mode="a")


def recorded(output: Path, recording: Recording, document: Document) -> None:
    """Write the recording of `open`: a page, the recording with the page's data, the document, or a
    line for each pass."""
    if output.name.lower().endswith(RECORDING):
        put_page(recording, output)
        return
    columns = ("number", "depth", "pass", "seconds", "own_seconds", "touched", "failure")
    lines = [{**r, "touched": "; ".join(r["touched"] or ())} for r in document["passes"]]
    lists(output, partial(recording_sheet, recording), columns, lambda: lines, lambda: document)


def check_ending(args: argparse.Namespace, *endings: str) -> None:
    """Refuse a file of no known format (EngineError, kind "usage") before anything is run."""
    if args.output:
        ending_of(args.output.name, endings or FORMATS)


def _sheet(
    command: Command,
    source: ModelSource,
    pipeline: Pipeline | None,
    caveats: Iterable[str] = (),
    **more: str | None,
) -> Sheet:
    if command.recorded:
        return head_of(command.recorded.recording)
    label = Path(source.model).name if source.digest else source.model
    version = command("describe").version
    return sheet_of(source, label, command.engine, version, str(pipeline or ""), caveats, **more)
