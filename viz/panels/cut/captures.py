"""In the tab of the gradient: every captured tensor and why, and every one that is not and why."""

from typing import Any

import streamlit as st

from relascope.passes.cuts.cut import Cut
from relascope.viz.panels.shell.cut_choice import force
from relascope.viz.panels.shell.frame import heading, side_by_side
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import picked, show_sections, table
from relascope.viz.rows import Row, tables


def show(document: Row) -> None:
    """Draw both tables, the bytes of each capture, and what is held over the step."""
    sections = tables.cut_sections(document)
    listed = [s for s in sections if s["kind"] == "table"]
    words, pictures = side_by_side("captures", [5, 3])
    with words:
        for key, section in zip(("captures_table", "spared_table"), listed, strict=True):
            if section["rows"] or section is listed[0]:
                heading(section["title"])
                more: dict[str, Any] = {"signs": "what", "wide": {"why": "large"}}
                table(section["rows"], key=key, on_select="rerun", **more)
    with pictures:
        show_sections((s for s in sections if s["kind"] == "chart"), "cut_chart")


def follow(cut: Cut, selected: str | None) -> None:
    """Choose the row of the node that was selected in the graph since the last run of the page."""
    state = st.session_state
    before, state.captures_selected = state.get("captures_selected"), selected
    if selected == before or selected == _focus(cut):
        return
    for key, ids in _listed(cut).items():
        rows = [ids.index(selected)] if selected in ids else []
        if rows or picked(key, len(ids)) is not None:
            state[key] = {"selection": {"rows": rows, "columns": [], "cells": []}}
    state.captures_followed = selected


def chosen(cut: Cut) -> str | None:
    """The node of the row that was chosen since the last run of the page."""
    state, now = st.session_state, focus(cut)
    before, state.captures_focus = state.get("captures_focus"), now
    return None if now == before else now


def focus(cut: Cut) -> str | None:
    """The node of the row that is chosen, unless the row followed the graph, which is there."""
    now = _focus(cut)
    if st.session_state.pop("captures_stay", False):
        st.session_state.captures_followed = now
    return None if now == st.session_state.get("captures_followed") else now


def force_in_graph(screen: Screen, node_id: str, way: str | None) -> None:
    """Force a tensor in the graph, which stays there: the browser may still name an older row."""
    st.session_state.captures_stay = True
    force(screen, node_id, way)


def _listed(cut: Cut) -> dict[str, tuple[str, ...]]:
    saved = set(cut.ids)
    return {
        "captures_table": (*cut.ids, *(m.id for m in cut.masks)),
        "spared_table": tuple(i for i in cut.joint.crossings if i not in saved),
    }


def _focus(cut: Cut) -> str | None:
    """The node of the row that is chosen: of two tables, in the one where it was chosen last."""
    state = st.session_state
    rows = {}
    for key, ids in _listed(cut).items():
        row = picked(key, len(ids))
        if row is not None:
            rows[key] = ids[row]
    before: dict[str, str] = state.get("captures_rows") or {}
    changed = [key for key in rows if rows[key] != before.get(key)]
    state.captures_rows = rows
    last = changed[0] if changed else state.get("captures_last")
    state.captures_last = last if last in rows else next(iter(rows), None)
    return rows.get(state.captures_last)
