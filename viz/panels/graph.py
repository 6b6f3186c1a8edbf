"""Tab "Graph": the model's program as it was imported."""

from dataclasses import replace
from typing import Any

import streamlit as st

from relascope.engine.protocol.results import ModelInfo
from relascope.viz.component.views import graph_view
from relascope.viz.drawing.drawing import focus_on
from relascope.viz.drawing.modules import fold_constants, module_in
from relascope.viz.panels import handing_on
from relascope.viz.panels.shell import frame
from relascope.viz.panels.shell.screen import Screen, look_at
from relascope.viz.panels.shell.table import grid, picked, show_sections
from relascope.viz.rows import formats, tables

_ABOUT = (
    "The tree of modules: class, parameters, shapes and time of each, from one run of the whole "
    "model in PyTorch. A row opens its module alone, on the inputs it gets in the model; so does "
    "the arrow at a module's frame in the graph."
)


def show(screen: Screen) -> None:
    info: ModelInfo = screen.cache.ask("load", screen.source)
    graph = info.graph
    counts, operators, arguments, changes = tables.graph_sections(tables.graph_facts(graph, info))
    in_labels = len(graph) - len(fold_constants(graph, screen.fewer_than))
    frame.strip(
        *counts["items"], (formats.number(in_labels), "small constants in labels"), quiet=True
    )
    graph_view(graph, screen.view(**marked(screen, info)), key="graph_view")
    handing_on.button(screen, "graph", {"imported": graph})
    left, right = frame.side_by_side("tables", [2, 3])
    with left:
        show_sections([operators], "operators")
    with right:
        show_sections([arguments], "arguments")
    frame.heading("What the import did")
    if info.changes:
        grid(changes["rows"], key=_key(screen), on_select="rerun", wide={"what": "large"})
        st.caption("A row shows its nodes in the graph, or what stands for a dropped one.")
    else:
        st.caption("It converted each operator to TVM's, and changed nothing else.")
    for note in info.notes:
        st.info(frame.plain_text(note))
    _modules(screen)


def marked(screen: Screen, info: ModelInfo) -> dict[str, Any]:
    """Arguments of the graph's view that show the chosen row."""
    row = picked(_key(screen), len(info.changes))
    if row is None:
        return {}
    chosen = info.changes[row]
    modules = filter(None, (module_in(info.graph, path) for path in chosen.modules))
    return {
        "highlight": dict.fromkeys(chosen.nodes, "changed"),
        "shines_through": ("changed",),
        "notes": dict.fromkeys(chosen.nodes, chosen.what),
        # For a dropped operator, the innermost module around it that has nodes.
        "focus": chosen.nodes[0] if chosen.nodes else next(map(focus_on, modules), None),
    }


def _key(screen: Screen) -> str:
    return f"import_{screen.ir}_{screen.label}_{screen.source.module}_{screen.training}"


def _modules(screen: Screen) -> None:
    """Every module of the whole model, to open alone, after a click on the section's button."""
    whole = replace(screen.source, module="", call=1)
    if not frame.section("Modules", "List the modules", "modules", _ABOUT, (screen.ir, whole)):
        return
    with frame.boundary(screen.cache):
        found = tables.module_rows(screen.cache.ask("modules", whole))

        def pick(row: int | None) -> None:
            if row is not None:
                look_at(found[row]["path"])

        grid(tables.modules_table(found)["rows"], key=f"modules_{screen.label}", on_pick=pick)
