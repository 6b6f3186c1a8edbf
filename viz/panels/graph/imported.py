"""In the tab of the graph: what the import changed, left out and moved out, with its nodes."""

from typing import Any

import streamlit as st

from relascope.core.graph import Graph
from relascope.engine.protocol.results import ImportChange, ModelInfo
from relascope.viz.drawing.drawing import focus_on
from relascope.viz.panels.shell.frame import heading, plain_text
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import picked, table
from relascope.viz.rows import Row


def show(screen: Screen, info: ModelInfo, rows: list[Row]) -> None:
    """Draw the table, and the sentences that a person should read."""
    heading("What the import did")
    if info.changes:
        table(rows, key=_key(screen), on_select="rerun", wide={"what": "large"})
        st.caption("A row shows its nodes in the graph; of what was dropped, what stands for it.")
    else:
        st.caption("It wrote each operator as TVM's, and nothing else.")
    for note in info.notes:
        st.info(plain_text(note))


def marked(screen: Screen, info: ModelInfo) -> dict[str, Any]:
    """How the graph shows the row that is chosen, as arguments of its view."""
    row = picked(_key(screen), len(info.changes))
    if row is None:
        return {}
    chosen = info.changes[row]
    return {
        "highlight": dict.fromkeys(chosen.nodes, "changed"),
        "shines_through": ("changed",),
        "notes": dict.fromkeys(chosen.nodes, chosen.what),
        "focus": _focus(info.graph, chosen),
    }


def _key(screen: Screen) -> str:
    return f"import_{screen.ir}_{screen.label}_{screen.source.module}_{screen.training}"


def _focus(graph: Graph, chosen: ImportChange) -> str | None:
    """The first of its nodes; without any, the innermost module around it that has some."""
    if chosen.nodes:
        return chosen.nodes[0]
    scopes = {n.scope for n in graph}
    around = {".".join(s.split(".")[:n]) for s in scopes for n in range(1, s.count(".") + 2)}
    for module in filter(None, chosen.modules):
        while module and module not in around:
            module = module.rpartition(".")[0]
        if module:
            return focus_on(module)
    return None
