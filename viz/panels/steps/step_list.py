"""The list of a pipeline's steps: one compact row each, with a switch, counts and time.

Python side of a small component, whose other half is `viz/component/step_list.js`. The page
keeps the pipeline and the selection, the component draws them and tells what was done: chosen,
switched, moved by mouse or keys, taken out. It tells again, with its number, what Python has not
said to have done: Streamlit makes one run of what is done while another runs, and would keep the
last of it alone.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from relascope.passes.catalogue import names
from relascope.passes.pipeline import Pipeline, Step
from relascope.viz import component
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
_DONE = "step_list_done"  # (whose deeds are counted, number of the last one)


def current(screen: Screen) -> Screen:
    """The screen with its mode's pipeline as it is now."""
    pipeline = sidebar.pipeline_of(screen.ir, screen.training, screen.source.gradient)
    return replace(screen, pipeline=pipeline)


def chosen(screen: Screen) -> int:
    """The chosen step: -1 is the imported program. A pipeline that got shorter keeps its end."""
    key = keeping.step_key(screen.source)
    return min(st.session_state.get(key, screen.last), screen.last)


def _choose(screen: Screen, index: int) -> None:
    st.session_state[keeping.step_key(screen.source)] = max(-1, min(index, screen.last))


def take(screen: Screen, pipeline: Pipeline | None, index: int | None) -> None:
    """Take another pipeline, None for the default one, and choose a step where one is given."""
    sidebar.set_pipeline(screen, pipeline)
    if index is not None and pipeline is not None:
        _choose(replace(screen, pipeline=pipeline), index)


def now(screen: Screen) -> tuple[Pipeline, int]:
    """The pipeline and the chosen step as they are now, with all that the list told done."""
    catch_up(StepList(screen))
    screen = current(screen)
    return screen.pipeline, chosen(screen)


@dataclass(frozen=True)
class StepList:
    """The pipeline behind the rows, of which row 0 is the imported program. It is asked for when
    something is done: before that in the same run something else may have changed it."""

    screen: Screen

    def select(self, row: int) -> None:
        """Choose it."""
        _choose(current(self.screen), row - 1)

    def switch(self, row: int, enabled: bool) -> None:
        """Switch it on or off."""
        take(self.screen, current(self.screen).pipeline.switched(row - 1, enabled), None)

    def add(self, row: int, name: str) -> None:
        """Put a pass of this name at this place, and choose it."""
        if name in names(self.screen.ir):
            pipeline = current(self.screen).pipeline.inserted(row - 1, Step(name))
            take(self.screen, pipeline, row - 1)

    def move(self, row: int, to: int) -> None:
        """Give it another place, and choose it."""
        pipeline = current(self.screen).pipeline.moved(row - 1, to - 1)
        take(self.screen, pipeline, to - 1)

    def remove(self, row: int) -> None:
        """Take it out."""
        screen = current(self.screen)
        index = chosen(screen)
        take(self.screen, screen.pipeline.without(row - 1), index - (row - 1 <= index))


def step_list(
    rows: Sequence[StepListRow],
    selected: int,
    passes: Sequence[tuple[str, str]],
    pipeline: StepList,
) -> None:
    """Draw the rows, the chosen one by its index, and the buttons that walk them; `passes` has name
    and title of each that can be added."""
    session, done = _counted()
    shown = {"selected": selected, "rows": [r.data for r in rows], "passes": passes}
    component.small("step_list", _HTML)(
        key=_KEY,
        data={**shown, "session": session, "done": done},
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
            # A pipeline that was pasted meanwhile may have fewer rows.
            if deed["what"] == "add" or deed["row"] <= len(current(pipeline.screen).pipeline):
                getattr(pipeline, deed["what"])(**given)


def _counted() -> tuple[str, int]:
    return st.session_state.setdefault(_DONE, (uuid.uuid4().hex, 0))
