"""The list of a pipeline's steps: one compact row each, with a switch, counts and time.

Python side of a small component, whose other half is `viz/component/step_list.js`. The page
keeps the pipeline and the selection, the component draws them and tells what was done: chosen,
switched, moved by mouse or keys, taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import streamlit as st

from relascope.viz import component
from relascope.viz.rows.step_list import Row

_COMPONENT = Path(component.__file__).parent


def step_list(
    rows: Sequence[Row],
    selected: int,
    *,
    key: str,
    on_select: Callable[[int], None],
    on_switch: Callable[[int, bool], None],
    on_move: Callable[[int, int], None],
    on_remove: Callable[[int], None],
) -> None:
    """Draw the rows.

    Args:
        selected: index of the chosen row.
        on_select: called with a row's index when it is chosen, by mouse or arrow keys.
        on_switch: called with a row's index and its new switch.
        on_move: called with a row's index and the one that it shall have.
        on_remove: called with the index of the row to take out.
    """

    def event(name: str) -> Any:
        return (st.session_state.get(key) or {}).get(name)

    def is_row(index: object) -> bool:
        return isinstance(index, int) and 0 <= index < len(rows)

    def selected_changed() -> None:
        if is_row(event("select")):
            on_select(event("select"))

    def switch_changed() -> None:
        switch = event("switch")
        if isinstance(switch, dict):
            on_switch(int(switch["row"]), bool(switch["enabled"]))

    def moved() -> None:
        move = event("move")
        if isinstance(move, dict) and is_row(move["row"]) and is_row(move["to"]):
            on_move(move["row"], move["to"])

    def removed() -> None:
        if is_row(event("remove")):
            on_remove(event("remove"))

    _component()(
        key=key,
        data={"selected": selected, "rows": [asdict(r) | {"idle": r.idle} for r in rows]},
        on_select_change=selected_changed,
        on_switch_change=switch_changed,
        on_move_change=moved,
        on_remove_change=removed,
    )


def _component() -> Any:
    return st.components.v2.component(
        "relascope_step_list",
        html="<div class='list' role='listbox' aria-label='Passes' tabindex='0'></div>"
        "<div class='keys'>Drag a row to move it. <b>↑ ↓</b> choose, <b>Alt ↑ ↓</b> move, "
        "<b>space</b> switches, <b>Delete</b> takes out.</div>",
        css=(_COMPONENT / "step_list.css").read_text(encoding="utf-8"),
        js=(_COMPONENT / "step_list.js").read_text(encoding="utf-8"),
    )
