"""The list of a pipeline's steps: one compact row each, with a switch, counts and time.

The Python side of a small component, whose other half is `viz/component/step_list.js`. The page
keeps the pipeline and the selection; the component draws them and reports numbered actions: select,
switch, add, move, remove. It repeats actions until Python has confirmed them, because Streamlit
combines several during a run, and would keep only the last.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from relascope.passes.catalogue import names
from relascope.passes.pipeline import Pipeline, Step
from relascope.viz.component import views as component
from relascope.viz.panels.shell import keeping, sidebar
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows.step_list import StepListRow

_HTML = (
    "<div class='walk'><button>Previous</button><button>Next</button>"
    "<span aria-live='polite'></span></div>"
    "<div class='list' role='listbox' aria-label='Passes' tabindex='0'></div>"
    "<input class='add' list='passes' aria-label='Add a pass' autocomplete='off' "
    "placeholder='Add a pass after this step'><datalist id='passes'></datalist>"
    "<div class='keys'>Drag a row to move it. <b>↑ ↓</b> choose, <b>Alt ↑ ↓</b> move, "
    "<b>space</b> switches, <b>Delete</b> removes.</div>"
)
_KEY = "step_list"
_DEEDS = ("select", "switch", "add", "move", "remove")
_DONE = "step_list_done"  # (the session of the numbers, the last number done)


def current(screen: Screen) -> Screen:
    """The screen with its mode's pipeline as it is now."""
    pipeline = sidebar.pipeline_of(screen.ir, screen.training, screen.source.gradient)
    return replace(screen, pipeline=pipeline)


def chosen(screen: Screen) -> int:
    """The chosen step; -1 is the imported program. In a shorter pipeline, its last step."""
    key = keeping.step_key(screen.source)
    return min(st.session_state.get(key, screen.last), screen.last)


def _choose(screen: Screen, index: int) -> None:
    st.session_state[keeping.step_key(screen.source)] = max(-1, min(index, screen.last))


def take(screen: Screen, pipeline: Pipeline | None, index: int | None) -> None:
    """Set another pipeline, None for the default, and choose a step if one is given."""
    sidebar.set_pipeline(screen, pipeline)
    if index is not None and pipeline is not None:
        _choose(replace(screen, pipeline=pipeline), index)


def now(screen: Screen) -> tuple[Pipeline, int]:
    """The present pipeline and chosen step, after all actions of the list."""
    catch_up(StepList(screen))
    screen = current(screen)
    return screen.pipeline, chosen(screen)


@dataclass(frozen=True)
class StepList:
    """The actions on the rows; row 0 is the imported program. They read the pipeline when called,
    because the same run may have changed it before."""

    screen: Screen

    def select(self, row: int) -> None:
        _choose(current(self.screen), row - 1)

    def switch(self, row: int, enabled: bool) -> None:
        take(self.screen, current(self.screen).pipeline.switched(row - 1, enabled), None)

    def add(self, row: int, name: str) -> None:
        """Insert a pass of this name as this row, and choose it."""
        if name in names(self.screen.ir):
            pipeline = current(self.screen).pipeline.inserted(row - 1, Step(name))
            take(self.screen, pipeline, row - 1)

    def move(self, row: int, to: int) -> None:
        pipeline = current(self.screen).pipeline.moved(row - 1, to - 1)
        take(self.screen, pipeline, to - 1)

    def remove(self, row: int) -> None:
        screen = current(self.screen)
        index = chosen(screen)
        take(self.screen, screen.pipeline.without(row - 1), index - (row - 1 <= index))


def step_list(
    rows: Sequence[StepListRow],
    selected: int,
    passes: Sequence[tuple[str, str]],
    pipeline: StepList,
) -> None:
    """Draw the rows, with the index of the chosen one, and buttons to walk them; `passes` has the
    name and title of each pass that can be added."""
    session, done = _counted()
    shown = {"selected": selected, "rows": [r.data for r in rows], "passes": passes}
    component.small("step_list", _HTML)(
        key=_KEY,
        data={**shown, "session": session, "done": done},
        on_log_change=lambda: catch_up(pipeline),
    )


def catch_up(pipeline: StepList) -> None:
    """Do the list's outstanding actions, before anything that uses the chosen step."""
    session, done = _counted()
    log: Mapping[str, Any] = (st.session_state.get(_KEY) or {}).get("log") or {}
    if log.get("session") != session:  # from an app that has ended
        return
    for deed in log["deeds"]:
        if deed["number"] > done and deed["what"] in _DEEDS:
            done = deed["number"]
            st.session_state[_DONE] = session, done
            given = {k: v for k, v in deed.items() if k not in ("number", "what")}
            # A pipeline pasted meanwhile may have fewer rows.
            if deed["what"] == "add" or deed["row"] <= len(current(pipeline.screen).pipeline):
                getattr(pipeline, deed["what"])(**given)


def _counted() -> tuple[str, int]:
    return st.session_state.setdefault(_DONE, (uuid.uuid4().hex, 0))
