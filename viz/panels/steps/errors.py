"""In the tab "Passes": each node of a step coloured by its error against PyTorch's own tensors."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.engine.jobs import accuracy, node_accuracy
from relascope.engine.protocol.results import PYTORCH
from relascope.viz.component.views import graph_view, picking
from relascope.viz.drawing.drawing import Overlay
from relascope.viz.panels.shell.frame import boundary, heading, one_of
from relascope.viz.panels.shell.request_cache import Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import grid
from relascope.viz.panels.steps.changes import CHANGES, TEXT
from relascope.viz.rows import tables

ERRORS = "Errors"
COLOURS = "keep_step_colours"
_DTYPE = "keep_error_dtype"
_LABELS = (
    "error under a tenth of the limit",
    "within the limit",
    "up to 100 times the limit",
    "beyond, or no number",
)
_VIEW = "error_view"


def shown() -> str:
    """What is shown of a step: the graph with changes or errors, or the text."""
    return str(st.session_state.get(COLOURS) or CHANGES)


def choose(screen: Screen) -> DeltaGenerator:
    """Draw the choice of the graph's colours, or the text; returns its row."""
    row = st.container(horizontal=True, vertical_alignment="center")
    one_of("Show", (CHANGES, ERRORS, TEXT), COLOURS, row, hidden=True)
    if shown() == ERRORS and _choice(screen):
        one_of("Precision", accuracy.DTYPES, _DTYPE, row, hidden=True)
    return row


def show(screen: Screen, index: int, keep_places: Mapping[str, str] | None) -> None:
    """Draw the graph after a step, -1 for the import, with each node's error."""
    inside = _inside(screen, index, _dtype(screen))
    compared = screen.upto(index).built

    def notes() -> dict[str, str]:
        return {i: tables.error_text(inside, i) for i in inside.errors}

    ratios = ((n.id, inside.ratio(n.id)) for n in inside.graph)
    overlay = Overlay(
        "error",
        "Error over its limit",
        {ident: ratio for ident, ratio in ratios if ratio is not None},
        limits=(0.1, 1.0, 100.0),
        labels=_LABELS,
        none="not compared: no counterpart",
    )
    told = _at(screen, index, inside.dtype).derive(notes, "error notes")
    look = screen.view(overlays=[overlay], overlay="error", notes=told, keep_places=keep_places)
    graph_view(inside.graph, look, key=_VIEW)
    if compared != index:
        st.caption(
            "This step is for inspection, and building ignores it: the program compared and "
            "drawn is the one after "
            + (f"step {compared + 1}." if compared >= 0 else "the import.")
        )


def nodes(screen: Screen, index: int) -> None:
    """The verdict, and one row for each node, the farthest over its limit first."""
    dtype = _dtype(screen)
    inside = _inside(screen, index, dtype)
    heading(f"How far each node is from {inside.against}")
    with boundary(screen.cache, "verdict"):
        _verdict(screen, index)
    at = _at(screen, index, dtype)
    rows = at.derive(lambda: tables.node_error_rows(inside), "error rows")
    if missing := len(inside.without):
        st.caption(
            f"{missing} of the nodes that compute something have no counterpart in "
            f"{inside.against}, and stay plain: a pass made them from several operators, or "
            "between two."
        )
    if rows:
        pick = picking(_VIEW, [r["id"] for r in rows])
        grid(rows, tables.INSIDE, key=f"errors_{hash(at.place)}", on_pick=pick)


def _verdict(screen: Screen, index: int) -> None:
    """Whether errors are rounding: if float32 exceeds its limit, float64 decides."""
    first = _inside(screen, index, screen.source.dtype)
    second = _inside(screen, index, node_accuracy.DOUBLE) if first.in_doubt else None
    say = st.error if (second or first).bad else st.warning if first.bad else st.success
    say(node_accuracy.verdict(first, second))


def _dtype(screen: Screen) -> str:
    if not _choice(screen):
        return screen.source.dtype
    return st.session_state.get(_DTYPE) or node_accuracy.SINGLE


def _choice(screen: Screen) -> bool:
    """Whether the precision can be chosen: in float32 against PyTorch, or before that is known."""
    if screen.source.dtype != node_accuracy.SINGLE:
        return False
    try:
        ask = partial(screen.cache.ask, patience=0.0)
        return node_accuracy.nodes_against(ask, screen.source) == PYTORCH
    except (Waiting, EngineError):
        return True


def _at(screen: Screen, index: int, dtype: str) -> Screen:
    return replace(screen.upto(index), source=replace(screen.source, dtype=dtype))


def _inside(screen: Screen, index: int, dtype: str) -> node_accuracy.Inside:
    ask, best = screen.cache.ask, screen.cache.ask("describe").best
    at = _at(screen, index, dtype)
    return at.derive(
        lambda: node_accuracy.look(ask, at.ir, at.source, screen.pipeline, index, best), "inside"
    )
