"""In the tab "Passes": each node of a step coloured by its error against PyTorch's own tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.engine.jobs import node_accuracy as nodewise
from relascope.engine.jobs.node_accuracy import Inside
from relascope.viz.component import View, graph_view
from relascope.viz.drawing import palette
from relascope.viz.panels.shell.desk import Desk
from relascope.viz.panels.shell.frame import boundary, heading
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows import tables

CHANGES, ERRORS = "What changed", "Error against PyTorch"
_COLOURS = "keep_step_colours"
_DTYPE = "keep_error_dtype"
_CHOSEN = "error_chosen"  # (what was compared, id of the node that was clicked in the table)


def wanted() -> bool:
    """Whether the graph of a step shows errors, and not what changed."""
    return bool(st.session_state.get(_COLOURS) == ERRORS)


def choose(screen: Screen) -> DeltaGenerator:
    """What the colours of the graph say; returns the row that it stands in."""
    row = st.container(horizontal=True, vertical_alignment="center")
    row.segmented_control(
        "Colours",
        (CHANGES, ERRORS),
        default=CHANGES,
        key=_COLOURS,
        required=True,
        label_visibility="collapsed",
    )
    if wanted() and screen.source.dtype == nodewise.SINGLE:
        row.segmented_control(
            "Precision",
            nodewise.DTYPES,
            default=nodewise.SINGLE,
            key=_DTYPE,
            required=True,
            label_visibility="collapsed",
        )
    return row


def show(
    desk: Desk,
    screen: Screen,
    index: int,
    *,
    key: str,
    height: int,
    keep_places: Mapping[str, str] | None,
) -> None:
    """Draw the graph of a step with each node's error.

    Args:
        index: of the step; -1 is the import.
        key, height, keep_places: of the view.
    """
    inside = _inside(desk, screen, index, _dtype(screen))
    at, ident = st.session_state.get(_CHOSEN, ("", None))
    compared = nodewise.compared_step(screen.ir, screen.pipeline, index)
    graph_view(
        inside.graph,
        View(
            height,
            screen.fewer_than,
            highlight={n.id: palette.error(inside.ratio(n.id)) for n in inside.graph},
            notes=desk.derive(
                lambda: {i: tables.error_text(inside, i) for i in inside.errors},
                "error notes",
                *_place(screen, index, inside.dtype),
            ),
            shines_through=palette.ERRORS,
            keep_places=keep_places,
            focus=ident if at == _place(screen, index, inside.dtype) else None,
        ),
        key=key,
    )
    if compared != index:
        st.caption(
            "This step is only for looking, and building starts from before it: what is compared "
            "and drawn is the program after "
            + (f"step {compared + 1}." if compared >= 0 else "the import.")
        )


def table(desk: Desk, screen: Screen, index: int) -> None:
    """The verdict, and one row a node, the farthest over its limit first."""
    heading("How far each node is from PyTorch")
    dtype = _dtype(screen)
    inside = _inside(desk, screen, index, dtype)
    with boundary(desk, "verdict"):
        _verdict(desk, screen, index)
    rows = desk.derive(
        lambda: tables.node_error_rows(inside), "error rows", *_place(screen, index, dtype)
    )
    missing = len(inside.without)
    if missing:
        st.caption(
            f"{missing} of the nodes that compute something have no tensor in PyTorch to be held "
            "against, and stay plain: what a pass made of several operators, or on the way "
            "between two."
        )
    if not rows:
        return
    key = f"errors_{hash(_place(screen, index, dtype))}"

    def select() -> None:
        picked = st.session_state[key].selection.rows
        st.session_state.pop(_CHOSEN, None)
        if picked and picked[0] < len(rows):
            st.session_state[_CHOSEN] = _place(screen, index, dtype), rows[picked[0]]["id"]

    number = st.column_config.NumberColumn(format="%.1e")
    st.dataframe(
        [
            {
                "node": r["op"],
                "error / limit": r["ratio"],
                "max abs": r["max_abs"],
                "mean abs": r["mean_abs"],
                "median abs": r["median_abs"],
                "max rel": r["max_rel"],
                "mean rel": r["mean_rel"],
                "median rel": r["median_rel"],
                "NaN": r["nans"],
                "Inf": r["infinities"],
                "held against": r["counterpart"],
                "module": r["scope"],
                "id": r["id"],
            }
            for r in rows
        ],
        hide_index=True,
        key=key,
        on_select=select,
        selection_mode="single-row",
        height=min(36 * (len(rows) + 1), 380),
        column_config=dict.fromkeys(
            ("max abs", "mean abs", "median abs", "max rel", "mean rel", "median rel"), number
        )
        | {"error / limit": st.column_config.NumberColumn(format="%.2g", pinned=True)},
    )
    st.caption(
        "Relative errors are relative to the largest magnitude in PyTorch's tensor. NaN and Inf "
        "count elements that are so here and not in PyTorch. Click a row's box to go to the node."
    )


def _verdict(desk: Desk, screen: Screen, index: int) -> None:
    """Is it rounding, or is it wrong: where float32 is over its limit, float64 tells."""
    first = _inside(desk, screen, index, screen.source.dtype)
    second = None
    if first.over and first.dtype == nodewise.SINGLE:
        second = _inside(desk, screen, index, nodewise.DOUBLE)
    said = nodewise.verdict(first, second)
    wrong = first if second is None else second
    (st.error if wrong.over else st.warning if first.over else st.success)(said)


def _dtype(screen: Screen) -> str:
    if screen.source.dtype != nodewise.SINGLE:
        return screen.source.dtype
    chosen: str = st.session_state.get(_DTYPE) or nodewise.SINGLE
    return chosen


def _place(screen: Screen, index: int, dtype: str) -> tuple[object, ...]:
    return screen.ir, screen.source, str(screen.pipeline.upto(index)), dtype


def _inside(desk: Desk, screen: Screen, index: int, dtype: str) -> Inside:
    here = [t.name for t in desk.ask("describe").targets if t.runs_here]
    if not here:
        raise EngineError("target", "This machine can run none of the engine's targets.")
    source = replace(screen.source, dtype=dtype)
    return desk.derive(
        lambda: nodewise.look(desk.ask, screen.ir, source, screen.pipeline, index, here[0]),
        "inside",
        *_place(screen, index, dtype),
    )
