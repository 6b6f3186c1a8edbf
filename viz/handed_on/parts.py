"""The tabs of a file: a graph, a cut with its frontier, timings."""

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
from relascope.viz.rows import fields, tables, timings
from relascope.viz.rows.memory import cut_peak_words


def sheet_of(
    source: ModelSource,
    label: str,
    ir: str,
    version: str = "",
    pipeline: str = "",
    caveats: Iterable[str] = (),
    **more: Any,
) -> Sheet:
    """An empty page on a model: its choices, and caveats; `version` is TVM's."""
    mode = "training" if source.training else "inference"
    about = {
        "model": label,
        "engine": ir.capitalize() + (f", TVM {version}" if version else ""),
        "mode": mode,
        **fields(source, "batch tokens"),
        "inputs": "; ".join(f"{name} {kind}".strip() for name, kind in source.inputs),
        **fields(source, "module dtype seed"),
        "gradient": "PyTorch's" if source.gradient != "tvm" else "",
        "pipeline": pipeline,
        **more,
    }
    return Sheet(f"{label}, {mode}, {ir.capitalize()}", about, caveats)


def graph_tab(
    file: Sheet, graph: Graph, view: View = PLAIN, info: ModelInfo | None = None
) -> Sheet:
    """Add the tab of a graph to the file, which is returned; `info` is its model's, if known."""
    shown = tables.graph_sections(tables.graph_facts(graph, info))
    return _graph_tab(file, ("graph", "Graph"), graph, view, shown)


def _graph_tab(
    file: Sheet, name: tuple[str, str], graph: Graph, view: View, shown: Sequence[Section]
) -> Sheet:
    """Add a tab of sections, with the graph before the first table."""
    at = next(i for i, s in enumerate(shown) if s["kind"] == "table")
    drawn = sheet.graph(file.block(drawing(graph, view)))
    return file.tab(*name, [*shown[:at], drawn, *shown[at:]])


def cut_tab(
    file: Sheet, cut: cuts.Cut, view: View = PLAIN, saved: TorchSaved | None = None
) -> Sheet:
    """Add the tab of a cut: joint graph, frontier, captures; `saved` is what PyTorch keeps."""
    joint = cut.joint
    coloured = joint.graph.with_roles(cuts.roles(joint, cut.ids))
    rivals = tables.torch_saved_document(saved) if saved else None
    document = tables.cut_document(cut) | tables.frontier_document(joint) | {"rivals": rivals}
    cuts_of_show = show_document(frontier(joint, cut.wish), cut, cut_peak_words)
    drawn = replace(view, open_groups=overview(coloured), show=cuts_of_show)
    shown = tables.cut_sections(document)
    return _graph_tab(file, ("cut", "Gradient & cut"), coloured, drawn, shown)


def overview(joint: Graph) -> tuple[str, ...]:
    """Groups to open so that forward, backward and the crossing tensors fit into one view."""
    tree = module_groups(joint)
    for boxes in (60, 120, 240):
        if opened := tree.open_at_first(everything_up_to=60, else_up_to=boxes):
            return opened
    return ()


def times_tab(file: Sheet, runs: Iterable[tuple[str, Mapping[str, Any]]]) -> Sheet:
    """Add the tab of timings, from titles and documents of `timings.run_document`."""
    shown = [section for title, run in runs for section in timings.run_sections(dict(run), title)]
    return file.tab("time", "Times", shown)
