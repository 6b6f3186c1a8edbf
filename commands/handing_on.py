"""What `-o` writes: one page that needs no server, pictures, and files for other tools."""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from relascope.commands.shared import Command, Document, write
from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.jobs.step import Stepped
from relascope.engine.protocol.results import ModelInfo
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import TimeResult, TorchSaved
from relascope.passes.cuts.cut import Cut
from relascope.passes.pipeline import Pipeline
from relascope.recorder.reading import Recording
from relascope.viz.drawing.modules import fold_constants, module_groups
from relascope.viz.handed_on.formats import FORMATS, Appearance, ending_of, graph_file
from relascope.viz.handed_on.graphs import PLAIN
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.rows import Row, timings

PAGE, TABLE, PLAINLY = LISTS = ".html", ".csv", ".json"


def looks(command: argparse.ArgumentParser) -> None:
    """How a graph is drawn in a file."""
    add = command.add_argument
    about = "theme of the picture: light or dark"
    add("--theme", choices=("light", "dark"), default="light", help=about)
    about = "modules to expand in the picture: all, none, or paths separated by commas, with their "
    about += "parents; default: as on the page"
    add("--open", metavar="MODULES", help=about)
    add("--types", action="store_true", help="label the edges with the types of their values")


def graph(command: Command, info: ModelInfo, after: Graph, pipeline: Pipeline | None) -> None:
    """Write the graph that `graph` is about."""
    args = command.args
    ending = ending_of(args.output.name, FORMATS)
    view = replace(PLAIN, show_shapes=args.types, open_groups=_opened(after, args.open))

    def page() -> Sheet:
        from relascope.viz.handed_on.parts import graph_tab

        file = _sheet(command, info.source, pipeline)
        file.caveats += info.notes
        graph_tab(file, after, view, info)
        return file

    look = Appearance(view, args.theme, page)
    write(args.output, graph_file(ending, after, look))


def _opened(graph: Graph, text: str | None) -> tuple[str, ...] | None:
    """The groups of --open; None where it is not given.

    Raises:
        EngineError: kind "usage"; there is no such module.
    """
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
            said = f"No module of the graph that is drawn is called {path}."
            raise EngineError("usage", said, "--open", f"Modules: {known[:300]}")
        opened += [g for one in found for g in tree.path(one)]
    return tuple(dict.fromkeys(opened))


def steps(
    command: Command,
    source: ModelSource,
    stepped: Stepped,
    errors: Mapping[int, Row],
    rows: Callable[[], list[Row]],
) -> None:
    """Write the steps that `step` is about: a page, all graphs, or a line a step."""
    output = command.args.output
    ending = ending_of(output.name, LISTS)
    pipeline = stepped.pipeline
    if ending == PAGE:
        from relascope.viz.handed_on.steps import steps_of, steps_tab

        file = _sheet(command, source, pipeline)
        file.caveats += command("load", source).notes
        steps_tab(file, steps_of(command, command.engine, source, stepped, errors), PLAIN)
        write(output, file.html())
    elif ending == TABLE:
        columns = ("pass", "enabled", "added", "removed", "changed", "nodes", "seconds")
        write(output, timings.csv_text(rows(), columns))
    else:
        graphs = [command("graph_after", source, pipeline, i) for i in range(-1, len(pipeline))]
        write(output, json.dumps([g.to_json() for g in graphs], ensure_ascii=False))


def captures(
    command: Command,
    source: ModelSource,
    pipeline: Pipeline,
    cut: Cut,
    document: Document,
    saved: TorchSaved | None,
    split: Callable[[], str],
) -> None:
    """Write the cut that `captures` is about: a page, the split, or a line a capture."""
    output = command.args.output
    ending = ending_of(output.name, LISTS)
    if ending == PAGE:
        from relascope.viz.handed_on.parts import cut_tab

        file = _sheet(command, source, pipeline)
        file.caveats += command("load", source).notes
        cut_tab(file, cut, PLAIN, saved)
        write(output, file.html())
    elif ending == TABLE:
        columns = ("id", "op", "name", "shape", "dtype", "bytes", "scope", "source", "reason")
        kept = [*document["captures"], *document["masks"]]
        write(output, timings.csv_text(kept, columns))
    else:
        write(output, split())


def times(
    command: Command,
    source: ModelSource,
    pipeline: Pipeline,
    result: TimeResult,
    document: Document,
) -> None:
    """Write the times that `time` is about: a page, the document, or a line a row."""
    output = command.args.output
    ending = ending_of(output.name, LISTS)
    if ending == PAGE:
        from relascope.viz.handed_on.parts import times_tab

        file = _sheet(command, source, pipeline, strategy=document["strategy"])
        times_tab(file, [(source.model, document)])
        write(output, file.html())
    elif ending == TABLE:
        rows = document["rows"]
        write(output, timings.csv_text(rows, (*timings.COLUMNS, "target")))
    else:
        write(output, json.dumps(document, ensure_ascii=False))


def recorded(args: argparse.Namespace, found: Recording, document: Document) -> None:
    """Write the recording that `open` is about: a page, the document, or a line a pass."""
    ending = ending_of(args.output.name, LISTS)
    if ending == PAGE:
        from relascope.viz.handed_on.recorded import recording_sheet

        write(args.output, recording_sheet(found).html())
    elif ending == TABLE:
        columns = ("number", "depth", "pass", "seconds", "own_seconds", "touched", "failure")
        lines = [{**r, "touched": "; ".join(r["touched"] or ())} for r in document["passes"]]
        write(args.output, timings.csv_text(lines, columns))
    else:
        write(args.output, json.dumps(document, ensure_ascii=False))


def check_ending(args: argparse.Namespace, *endings: str) -> None:
    """Refuse a file that no format is known for, before anything is run for it.

    Raises:
        EngineError: kind "usage".
    """
    if args.output:
        ending_of(args.output.name, endings or FORMATS)


def _sheet(
    command: Command, source: ModelSource, pipeline: Pipeline | None, **more: str | None
) -> Sheet:
    from relascope.viz.handed_on.parts import origin

    mode = "training" if source.training else "inference"
    label = Path(source.model).name if source.digest else source.model
    version = command("describe").version
    about = origin(source, label, command.engine, version, str(pipeline or ""), **more)
    return Sheet(f"{label}, {mode}, {command.engine.capitalize()}", about)
