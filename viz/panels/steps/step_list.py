"""The list of a pipeline's steps, with a switch, counts and time each, or of a recording's passes.

The Python side of a small component, whose other half is `viz/component/step_list.js`. The page
keeps the pipeline and the selection; the component draws them and reports numbered actions: select,
switch, add, move, remove. It repeats actions until Python has confirmed them, because Streamlit
combines several during a run, and would keep only the last.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from relascope.passes.catalogue import names
from relascope.passes.pipeline import Pipeline, Step
from relascope.viz.component import views as component
from relascope.viz.panels.shell import keeping, sidebar
from relascope.viz.panels.shell.screen import Screen

_KEY = "step_list"
_LISTS = "step_lists"  # by name, what does the actions of each list that was drawn
_DONE = "step_list_done"  # (the session of the numbers, the last number done)


def current(screen: Screen) -> Screen:
    """The screen with its mode's pipeline as it is now."""
    pipeline = sidebar.pipeline_of(screen.ir, screen.training, screen.source.gradient)
    return replace(screen, pipeline=pipeline)


def chosen(screen: Screen) -> int:
    """The chosen step; -1 is the imported program. In a shorter pipeline, its last step."""
    return min(st.session_state.get(keeping.step_key(screen.source), screen.last), screen.last)


def _choose(screen: Screen, index: int) -> None:
    st.session_state[keeping.step_key(screen.source)] = max(-1, min(index, screen.last))


def take(screen: Screen, pipeline: Pipeline | None, index: int | None) -> None:
    """Set another pipeline, None for the default, and choose a step if one is given."""
    sidebar.set_pipeline(screen, pipeline)
    if index is not None and pipeline is not None:
        _choose(replace(screen, pipeline=pipeline), index)


def now(screen: Screen) -> Pipeline:
    """The present pipeline, after all actions of the list since the page was drawn."""
    catch_up(partial(act, screen))
    return current(screen).pipeline


def act(screen: Screen, what: str, row: int, **more: Any) -> None:
    """Do an action on a row (0: the import), on the pipeline as the same run may have left it."""
    here, index = current(screen), row - 1
    pipeline = here.pipeline
    if what != "add" and index >= len(pipeline):
        return  # a pipeline pasted meanwhile may have fewer rows
    if what == "add" and more["name"] in names(screen.ir):  # a pass of this name as this row
        take(screen, pipeline.inserted(index, Step(more["name"])), index)
    elif what == "select":
        _choose(here, index)
    elif what == "switch":
        take(screen, pipeline.switched(index, more["enabled"]), None)
    elif what == "move":
        take(screen, pipeline.moved(index, more["to"] - 1), more["to"] - 1)
    elif what == "remove":
        take(screen, pipeline.without(index), chosen(here) - (index <= chosen(here)))


def step_list(do: Callable[..., None], rows: Any, selected: int, keep: str, **more: Any) -> None:
    """Draw rows, as `StepListRow.data` or packed, with the index of the chosen one, and buttons to
    walk them. By the name `keep`, the browser keeps filter and folds; `more` may have `passes`, the
    name and title of each pass that can be added, and the name `of` one of several such lists."""
    session, done = _counted()
    st.session_state.setdefault(_LISTS, {})[more.setdefault("of", keep)] = do
    shown = {"selected": selected, "rows": rows, "keep": keep, "session": session, "done": done}
    component.small("step_list")(
        key=_KEY, data={**shown, **more}, on_log_change=lambda: catch_up(do)
    )


def catch_up(do: Callable[..., None]) -> None:
    """Do the list's outstanding actions, before anything that uses the chosen step; `do` gets each
    by name, with its row and more, unless the user saw another list and its actions are meant."""
    session, done = _counted()
    log: Mapping[str, Any] = (st.session_state.get(_KEY) or {}).get("log") or {}
    if log.get("session") != session:  # from an app that has ended
        return
    for deed in log["deeds"]:
        if deed["number"] > done and deed["what"] in ("select", "switch", "add", "move", "remove"):
            done = deed["number"]
            st.session_state[_DONE] = session, done
            meant = st.session_state.get(_LISTS, {}).get(deed.get("of"), do)
            meant(**{k: v for k, v in deed.items() if k not in ("number", "of")})


def _counted() -> tuple[str, int]:
    return st.session_state.setdefault(_DONE, (uuid.uuid4().hex, 0))
