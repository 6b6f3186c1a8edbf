"""Tab "Passes" of a recording: its passes on the left, the chosen one's changes on the right."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.viz.compare.changes import coloured
from relascope.viz.component.views import View, graph_view
from relascope.viz.drawing.drawing import MOST_NODES
from relascope.viz.panels import handing_on
from relascope.viz.panels.shell import keeping, sidebar
from relascope.viz.panels.shell.frame import begin, one_of, plain_text, show_error, side_by_side
from relascope.viz.panels.shell.holding import rerun
from relascope.viz.panels.steps import changes, errors
from relascope.viz.panels.steps.recorded import numbers
from relascope.viz.panels.steps.recorded.opened import OpenedRecording
from relascope.viz.panels.steps.step_list import catch_up, step_list
from relascope.viz.rows import Row, formats
from relascope.viz.rows.recording import NAMES_ALONE, became, first, module_text, no_module

HEIGHT = 570
_MOST_NAMES, _LONGEST = 2_000, 200  # functions that can be chosen, characters of a name
_FUNCTION = "keep_recorded_function"
_REFUSED, _OPENED = "recorded_refused", "recorded_as_model"


@st.fragment
def show(opened: OpenedRecording) -> None:
    """The tab alone: a click on a pass leaves the page around it unchanged."""
    if not opened.rows:
        return
    begin()
    if st.session_state.pop(_OPENED, False):
        rerun()
    catch_up(_do)
    last, chosen = len(opened.rows) - 1, st.session_state.get(keeping.RECORDED_PASS)
    index = first(opened.rows) if chosen is None else max(0, min(int(chosen), last))
    row = opened.rows[index]
    left, right = side_by_side("recorded", [0.38, 0.62])
    below = st.container()
    # A click waits for this, so it is sent first.
    graph = None
    with right:
        try:
            graph = _after(opened, row, below)
        except EngineError as error:
            show_error(error)
        if opened.recording.about.get("level") == "modules":
            _as_model(opened, row)
    with left:
        step_list(_do, opened.packed, index, opened.screen.source.digest)
        if opened.recording.about.get("level") == "modules":
            numbers.show(opened, index)
        handing_on.button(opened.screen, "recorded", {} if graph is None else {graph.name: graph})
    keeping.keep_recorded(opened.screen)


def _do(what: str, row: int, **more: object) -> None:
    """Select the pass that the list reports; other actions are on a pipeline of before."""
    if what == "select":
        keeping.choose_pass(row)


def _after(opened: OpenedRecording, row: Row, below: DeltaGenerator) -> Graph | None:
    """Draw what the pass did to a function; its graph, if it has one."""
    run = opened.recording.passes[row["number"] - 1]
    st.markdown(f"**{plain_text(row['pass'])}**")
    if run.failure is not None or run.seconds is None:
        st.error(plain_text(no_module(run)))
    if run.failure:
        with st.expander("The whole message"):
            st.code(run.failure, language=None)
    before, after = run.before, run.after
    if before is None:
        st.caption(NAMES_ALONE)
        return None
    touched = row["touched"] or ()
    known = before if after is None else after
    names = [n for n in dict.fromkeys((*touched, *before, *known)) if n]
    if not names:
        st.caption("The module has no function here.")
        return None
    controls = st.container(horizontal=True, vertical_alignment="center")
    function = _function(names, controls)
    old, new = before.get(function), known.get(function)
    shown = new or old
    if shown is None:
        st.caption(plain_text(f"There is no {function} in the module here."))
        return None
    of, sides = opened.around(run, function)
    graph, view = changes.graph_of(of, sides[1]) or changes.graph_of(of, sides[0]), changes.TEXT
    if graph is not None:
        options = changes.CHANGES, changes.TEXT
        view = one_of("Show", options, errors.COLOURS, controls, hidden=True)
    st.caption(plain_text(became(function, old, new, row, after is not None)))
    if graph is None and (why := opened.recording.no_graph(shown)):
        st.caption(plain_text(f"It has no graph: {why[:500]}"))
    if graph is None or view == changes.TEXT:
        relay = opened.recording.text(shown).startswith("#[version")
        changes.show_text(relay, partial(changes.texts, of, sides), controls)
    elif len(graph) > MOST_NODES:
        count = formats.number(len(graph))
        st.caption(f"{count} nodes are too many to be drawn. The text shows them.")
    elif (change := changes.change_of(of, sides)) is not None:
        key, family = keeping.RECORDED_VIEW, f"{of.source.digest}:{function}"
        places = change.successors if changes.keeps_layout(controls) else None
        look = View(HEIGHT, **coloured(change.matched), family=family, keep_places=places)
        graph_view(changes.picture(change, key), look, key=key)
        with below:
            changes.show(change, key, "What this pass changed")
    return graph


def _as_model(opened: OpenedRecording, row: Row) -> None:
    place = st.container(horizontal=True, vertical_alignment="center")
    about = "Opens the module as a model in all of the page's tabs: graph, passes, times."
    how: dict[str, Any] = {"icon": ":material/open_in_new:", "help": about}
    for label, after in (("Open its input", False), ("Open its result", True)):
        none = after and (row["failure"] is not None or not row["ended"])
        go = partial(_open_model, opened, row["number"] - 1, after)
        place.button(label, key=f"recorded_model_{after}", disabled=none, on_click=go, **how)
    error = st.session_state.pop(_REFUSED, None)
    if error is not None:
        show_error(error)


def _open_model(opened: OpenedRecording, index: int, after: bool) -> None:
    run = opened.recording.passes[index]
    try:
        text = module_text(opened.recording, run, after)
    except EngineError as error:
        st.session_state[_REFUSED] = error
        return
    name = re.sub(r"\W+", "_", run.name)[:60]
    sidebar.open_text(text, f"{'after' if after else 'before'}_{run.number}_{name}.json")
    st.session_state[_OPENED] = True


def _function(names: Sequence[str], place: DeltaGenerator) -> str:
    """The function to show: one by name, or the first that the pass changed."""
    pinned = st.session_state.get(_FUNCTION) or ""
    options = ["", *names[:_MOST_NAMES]]
    st.session_state[_FUNCTION] = pinned
    # The browser identifies choices by name, so names must not change from pass to pass.
    found = place.selectbox(
        "Function",
        options if pinned in options else ["", pinned, *options[1:]],
        key=_FUNCTION,
        format_func=lambda name: name[:_LONGEST] or "What it changed first",
        label_visibility="collapsed",
        width=320,
        help="Functions that the pass changed come first, and the first of them is preselected.",
    )
    return found or names[0]
