"""The tabs of a file: a graph, a cut with its frontier, a run's times, what a session found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relascope.core.graph import Graph
from relascope.engine.protocol.results import ModelInfo
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import TorchSaved
from relascope.passes.cuts import cut as cuts
from relascope.passes.cuts.frontier import frontier
from relascope.viz.drawing.drawing import View
from relascope.viz.drawing.modules import module_groups
from relascope.viz.drawing.show import show_document
from relascope.viz.handed_on import sheet
from relascope.viz.handed_on.graphs import PLAIN, drawing
from relascope.viz.handed_on.sheet import Section, Sheet
from relascope.viz.rows import Row, formats, sections, tables, timings


def made_from(
    source: ModelSource, label: str, ir: str, version: str = "", pipeline: str = "", **more: Any
) -> dict[str, Any]:
    """What a file was made from, as it says it at its top.

    Args:
        label: what people call the model.
        version: of TVM.
    """
    sizes = {"batch": source.batch, "tokens": source.tokens}
    inputs = [f"{name} {kind}".strip() for name, kind in source.inputs]
    engine = f"{ir.capitalize()}, TVM {version}" if version else ir.capitalize()
    return {
        "model": label,
        "engine": engine,
        "mode": "training" if source.training else "inference",
        **{name: size for name, size in sizes.items() if size is not None},
        "inputs": "; ".join(inputs),
        "module": source.module,
        "dtype": source.dtype,
        "seed": source.seed,
        "gradient": "PyTorch's" if source.gradient != "tvm" else "",
        "pipeline": pipeline,
        **more,
    }


def graph_tab(
    file: Sheet,
    graph: Graph,
    view: View = PLAIN,
    info: ModelInfo | None = None,
    title: str = "Graph",
) -> None:
    """Add the tab of a graph.

    Args:
        info: of the model whose graph it is, where that is known.
    """
    facts = tables.facts(graph)
    figures = [
        (formats.number(facts["nodes"]), "nodes"),
        (formats.number(facts["edges"]), "edges"),
        (formats.number(len(facts["operators"])), "operators"),
        (formats.size(facts["parameter_bytes"]), "of weights"),
    ]
    shown = [
        sheet.figures(*figures),
        sheet.graph(file.block(drawing(graph, view))),
        sheet.table(
            "Operators", [{"operator": op, "calls": n} for op, n in facts["operators"].items()]
        ),
    ]
    if info is not None:
        kinds = {True: "input", False: "parameter"}
        rows = [{**a, "kind": kinds[a["input"]]} for a in tables.argument_rows(info)]
        shown.append(sheet.table("Arguments", rows, "name; kind; shape; dtype; bytes"))
        changed = tables.import_rows(info)
        shown.append(
            sheet.table("What the import changed", changed, "kind; what; operator; count; modules")
        )
    file.tab("graph", title, [s for s in shown if s["kind"] != "table" or s["rows"]])


def cut_tab(
    file: Sheet, cut: cuts.Cut, view: View = PLAIN, saved: TorchSaved | None = None
) -> None:
    """Add the tab of a cut: the joint graph in its colours, the frontier, each capture and why.

    Args:
        saved: what PyTorch keeps, where that is known.
    """
    joint = cut.joint
    coloured = joint.graph.with_roles(cuts.roles(joint, cut.ids))
    document = tables.cut_document(cut)
    line = tables.frontier_document(joint)
    rivals = tables.torch_saved_document(saved) if saved else None
    title = cuts.STRATEGIES[cut.strategy].title
    cuts_of_show = show_document(frontier(joint, cut.wish), cut)
    drawn = replace(view, open_groups=overview(coloured), show=cuts_of_show)
    kept = tables.saved_rows(document)
    shown: list[Section] = [
        sheet.figures((title, ""), *tables.cut_figures(document)),
        *([sheet.sentence(document["cap"])] if document["cap"] else []),
        sheet.graph(file.block(drawing(coloured, drawn))),
        sheet.table("Saved for the backward, and why", kept, tables.SAVED, [r["id"] for r in kept]),
        _spared(tables.spared_rows(document)),
        sections.chart(
            "Bytes kept against work done again",
            "frontier",
            line,
            rivals,
            (title, cut.bytes, cut.share),
            note=tables.PROVEN if line["proven"] else tables.STOPPED,
        ),
        *([sheet.sentence(saved.note)] if saved and saved.note else []),
        sections.chart("Bytes held over one step", "live_bytes_chart", document["held"]),
        *([sections.chart("Bytes of each", "capture_bytes", kept)] if kept else []),
    ]
    file.tab("cut", "Gradient & cut", shown)


def _spared(rows: Sequence[Row]) -> Section:
    title = "Read by the backward and not saved, and why"
    return sheet.table(title, rows, tables.SPARED, [r["id"] for r in rows])


def overview(joint: Graph) -> tuple[str, ...]:
    """Groups to open so that forward, backward and what crosses fit into one look."""
    tree = module_groups(joint)
    for boxes in (60, 120, 240):
        if opened := tree.open_at_first(everything_up_to=60, else_up_to=boxes):
            return opened
    return ()


def times_tab(file: Sheet, runs: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Add the tab of timings, the newest first, each with its errors beside it.

    Args:
        runs: of each its title, and the document as of `timings.run_document`.
    """
    shown = [section for title, run in runs for section in timings.run_sections(dict(run), title)]
    file.tab("time", "Times", shown)
