"""The list of a pipeline's steps: one compact row each, with a switch, counts and time.

Python side of a small component, whose other half is `viz/component/step_list.js`. The page
keeps the pipeline and the selection, the component draws them and tells what was done: chosen,
switched, moved by mouse or keys, taken out. It tells again, with its number, what Python has not
said to have done: Streamlit makes one run of what is done while another runs, and would keep the
last of it alone.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import streamlit as st

from relascope.viz import component
from relascope.viz.rows.step_list import StepListRow

_HTML = (
    "<div class='walk'><button>Previous</button><button>Next</button>"
    "<span aria-live='polite'></span></div>"
    "<div class='list' role='listbox' aria-label='Passes' tabindex='0'></div>"
    "<input class='add' list='passes' aria-label='Add a pass' autocomplete='off' "
    "placeholder='Add a pass behind this step'><datalist id='passes'></datalist>"
    "<div class='keys'>Drag a row to move it. <b>↑ ↓</b> choose, <b>Alt ↑ ↓</b> move, "
    "<b>space</b> switches, <b>Delete</b> takes out.</div>"
)
_KEY = "step_list"
_DEEDS = ("select", "switch", "add", "move", "remove")
_DONE = "step_list_done"  # (whose deeds are counted, number of the last one)


class StepList(Protocol):
    """What the rows stand for. A row's index is given; 0 is the imported program."""

    def select(self, row: int) -> None:
        """Choose it."""

    def switch(self, row: int, enabled: bool) -> None:
        """Switch it on or off."""

    def add(self, row: int, name: str) -> None:
        """Put a pass of this name at this place, and choose it."""

    def move(self, row: int, to: int) -> None:
        """Give it another place, and choose it."""

    def remove(self, row: int) -> None:
        """Take it out."""


def step_list(
    rows: Sequence[StepListRow],
    selected: int,
    passes: Sequence[tuple[str, str]],
    pipeline: StepList,
) -> None:
    """Draw the rows, and the buttons that walk them.

    Args:
        selected: index of the chosen row.
        passes: name and title of each that can be added.
    """
    session, done = _counted()
    listed = [asdict(r) | {"idle": r.idle} for r in rows]
    component.small("step_list", _HTML)(
        key=_KEY,
        data={
            "selected": selected,
            "rows": listed,
            "passes": passes,
            "session": session,
            "done": done,
        },
        on_log_change=lambda: catch_up(pipeline),
    )


def catch_up(pipeline: StepList) -> None:
    """Do what the list told and is not yet done; before anything that means the chosen step."""
    session, done = _counted()
    log: Mapping[str, Any] = (st.session_state.get(_KEY) or {}).get("log") or {}
    if log.get("session") != session:  # of an app that has ended: done there, or lost with it
        return
    for deed in log["deeds"]:
        if deed["number"] > done and deed["what"] in _DEEDS:
            done = deed["number"]
            st.session_state[_DONE] = session, done
            given = {k: v for k, v in deed.items() if k not in ("number", "what")}
            getattr(pipeline, deed["what"])(**given)


def _counted() -> tuple[str, int]:
    counted: tuple[str, int] = st.session_state.setdefault(_DONE, (uuid.uuid4().hex, 0))
    return counted
