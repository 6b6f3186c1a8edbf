"""In the tab of the gradient: every captured tensor and why, and every one that is not and why."""

from __future__ import annotations

import streamlit as st

from relascope.passes.cuts.cut import Cut
from relascope.viz import charts
from relascope.viz.panels.shell.frame import heading, side_by_side
from relascope.viz.panels.shell.table import picked, table
from relascope.viz.rows import Row, tables


def show(document: Row) -> None:
    """Draw both tables, the bytes of each capture, and what is held over the step."""
    kept = tables.saved_rows(document)
    words, pictures = side_by_side("captures", [5, 3])
    with words:
        heading("Saved for the backward, and why")
        _table("captures_table", kept, tables.SAVED)
        if document["spared"]:
            heading("Read by the backward and not saved, and why")
            _table("spared_table", tables.spared_rows(document), tables.SPARED)
    with pictures:
        heading("Bytes held over one step")
        st.altair_chart(charts.live_bytes_chart(document["held"]), key="held_chart")
        st.caption(
            "Each storage from where it is made to its last reader in the backward: captures, "
            "dropout masks, and what is computed again, which comes right before it is read."
        )
        heading("Bytes of each")
        st.altair_chart(charts.capture_bytes(kept), key="capture_chart")


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
    return None if now == st.session_state.get("captures_followed") else now


def _listed(cut: Cut) -> dict[str, tuple[str, ...]]:
    """The nodes of each table's rows."""
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


def _table(key: str, rows: list[Row], columns: str) -> None:
    table(rows, columns, key=key, on_select="rerun", signs="what", wide={"why": "large"})
