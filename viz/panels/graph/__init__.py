"""Tab "Graph": the model's program as it was imported."""

from __future__ import annotations

from relascope.engine.protocol.results import ModelInfo
from relascope.viz.component import drawn, graph_view
from relascope.viz.panels import handing_on
from relascope.viz.panels.graph import imported, modules
from relascope.viz.panels.shell.frame import heading, side_by_side, strip
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import table
from relascope.viz.rows import formats, tables


def show(screen: Screen) -> None:
    """Draw the tab."""
    info: ModelInfo = screen.cache.ask("load", screen.source)
    graph = info.graph
    facts = tables.facts(graph)
    in_labels = len(graph) - len(drawn(graph, screen.fewer_than))
    strip(
        (formats.number(facts["nodes"]), "nodes"),
        (formats.number(in_labels), "small constants in labels"),
        (formats.number(facts["edges"]), "edges"),
        (formats.number(len(facts["operators"])), "operators"),
        (formats.number(info.parameters), "parameters"),
        (formats.size(facts["parameter_bytes"]), "of weights"),
        (formats.milliseconds(info.seconds), "to import"),
        quiet=True,
    )
    graph_view(graph, screen.view(**imported.marked(screen, info)), key="graph_view")
    handing_on.button(screen, "graph", {"imported": graph})
    left, right = side_by_side("tables", [2, 3])
    with left:
        heading("Operators")
        table([{"operator": op, "calls": n} for op, n in facts["operators"].items()])
    with right:
        heading("Arguments")
        kinds = {True: "input", False: "parameter"}
        rows = [{**a, "kind": kinds[a["input"]]} for a in tables.argument_rows(info)]
        table(rows, "name; kind; shape; dtype; bytes")
    imported.show(screen, info)
    modules.show(screen)
