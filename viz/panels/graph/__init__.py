"""Tab "Graph": the model's program as it was imported."""

from relascope.engine.protocol.results import ModelInfo
from relascope.viz.component import drawn, graph_view
from relascope.viz.panels import handing_on
from relascope.viz.panels.graph import imported, modules
from relascope.viz.panels.shell.frame import side_by_side, strip
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import show_sections
from relascope.viz.rows import formats, tables


def show(screen: Screen) -> None:
    """Draw the tab."""
    info: ModelInfo = screen.cache.ask("load", screen.source)
    graph = info.graph
    counts, operators, arguments, changes = tables.graph_sections(tables.graph_facts(graph, info))
    in_labels = len(graph) - len(drawn(graph, screen.fewer_than))
    strip(*counts["items"], (formats.number(in_labels), "small constants in labels"), quiet=True)
    graph_view(graph, screen.view(**imported.marked(screen, info)), key="graph_view")
    handing_on.button(screen, "graph", {"imported": graph})
    left, right = side_by_side("tables", [2, 3])
    with left:
        show_sections([operators], "operators")
    with right:
        show_sections([arguments], "arguments")
    imported.show(screen, info, changes["rows"])
    modules.show(screen)
