"""Tab "Passes" of a recording: its passes on the left, the chosen one's changes on the right."""

import re
import secrets
import struct
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.viz.compare.changes import coloured
from relascope.viz.component.views import View, graph_view, small
from relascope.viz.drawing.drawing import MOST_NODES
from relascope.viz.panels import handing_on
from relascope.viz.panels.shell import keeping, sidebar
from relascope.viz.panels.shell.frame import begin, one_of, plain_text, show_error, side_by_side
from relascope.viz.panels.shell.holding import rerun
from relascope.viz.panels.steps import changes
from relascope.viz.panels.steps.recorded import numbers
from relascope.viz.panels.steps.recorded.opened import OpenedRecording
from relascope.viz.rows import Row, formats
from relascope.viz.rows.memory import memory_document
from relascope.viz.rows.recording import NAMES_ALONE, UNDER_WAY, became, facts, first, no_module

HEIGHT = 570
_MOST_NAMES, _LONGEST = 2_000, 200  # functions that can be chosen, characters of a name
_FUNCTION = "keep_recorded_function"
_VIEW, _VIEWS = "keep_recorded_view", ("Graph", "Text")
_REFUSED, _OPENED = "recorded_refused", "recorded_as_model"
_WHOLE, _SENT = "keep_recorded_types", "recorded_text_sent"
_DONE = "run_list_done"  # (whose choices are counted, number of the last that was followed)


def show(opened: OpenedRecording) -> None:
    if opened.rows:
        _board(opened)


@st.fragment
def _board(opened: OpenedRecording) -> None:
    """The tab alone: a click on a pass leaves the page around it unchanged."""
    begin()
    if st.session_state.pop(_OPENED, False):
        rerun()
    number = chosen_pass(opened)
    row = opened.rows[number]
    left, right = side_by_side("recorded", [0.38, 0.62])
    below = st.container()
    # A click waits for this, so it is sent first.
    with right:
        try:
            _after(opened, row, below)
        except EngineError as error:
            show_error(error)
        if opened.recording.about.get("level") == "modules":
            _as_model(opened, row)
    with left:
        _run_list(opened, number)
        if opened.recording.about.get("level") == "modules":
            numbers.show(opened, number, choose)
        handing_on.of_recording(opened.recording)
    keeping.keep_recorded(opened.path, opened.digest)
    opened.ahead(number, st.session_state.get(_FUNCTION) or "")


def chosen_pass(opened: OpenedRecording) -> int:
    """The number of the chosen pass."""
    number = st.session_state.get(keeping.RECORDED_PASS)
    if number is None:
        return first(opened.rows, opened.changes)
    return max(0, min(int(number), len(opened.rows) - 1))


def choose(number: int) -> None:
    """Show a pass from the next run of the page on."""
    st.session_state[keeping.RECORDED_PASS] = number


def _after(opened: OpenedRecording, row: Row, below: DeltaGenerator) -> None:
    run = opened.recording.passes[row["number"]]
    _walk(opened, row)
    if run.failure is not None:
        _failure(run.failure)
    elif run.seconds is None:
        st.warning(UNDER_WAY)
    before, after = run.before, run.after
    if before is None:
        st.caption(NAMES_ALONE)
        return
    touched = row["touched"] or ()
    known = before if after is None else after
    names = [n for n in dict.fromkeys((*touched, *before, *known)) if n]
    if not names:
        st.caption("The module has no function here.")
        return
    controls = st.container(horizontal=True, vertical_alignment="center")
    function = _function(names, controls)
    old, new = before.get(function), known.get(function)
    shown = new or old
    if shown is None:
        st.caption(plain_text(f"There is no {function} in the module here."))
        return
    graph = opened.graph(shown)
    view = one_of("Show", _VIEWS, _VIEW, controls, hidden=True) if graph is not None else "Text"
    st.caption(plain_text(became(function, old, new, row, after is not None)))
    if graph is None and (why := opened.recording.no_graph(shown)):
        st.caption(plain_text(f"It has no graph: {why[:500]}"))
    if graph is None or view == "Text":
        relay = opened.recording.text(shown).startswith("#[version")
        whole = relay and controls.toggle("Types and places", key=_WHOLE, help=_WHOLE_HELP)
        _text_diff(opened.sides(old, new, bool(whole)))
    elif len(graph) > MOST_NODES:
        st.caption(
            f"{formats.number(len(graph))} nodes are too many to be drawn. The text shows them."
        )
    else:
        keep = changes.keeps_layout(controls)
        _graph(opened, graph, function, old, new, keep, below, known)


_WHOLE_HELP = "What Relay's text adds to the program: each value's type, its source and its device."


def _graph(
    opened: OpenedRecording,
    graph: Graph,
    function: str,
    old: str | None,
    new: str | None,
    keep: bool,
    below: DeltaGenerator,
    functions: Mapping[str, str],
) -> None:
    key, family = keeping.RECORDED_VIEW, f"{opened.digest}:{function}"
    change = opened.change(old, new) if old and new and old != new else None
    here = change.matched.graph if change else graph  # with the ids of the drawing
    _, plan = opened.derive(lambda: (here, memory_document(here)), "memory", id(here))
    if plan is not None:
        with below:
            changes.memory(plan, change.place if change else "", key)
    looks = coloured(change.matched) if change else {}
    places = change.successors if change else {}
    view = View(HEIGHT, **looks, family=family, keep_places=places if keep else None)
    picture = changes.picture(change, key) if change else graph
    graph_view(opened.with_kernels(picture, functions), view, key=key)
    if change:
        with below:
            changes.show(change, key, "What this pass changed")


def _walk(opened: OpenedRecording, row: Row) -> None:
    head = st.container(horizontal=True, vertical_alignment="center")
    words = head.container(width="stretch")
    for label, key, way in (
        ("Previous change", "recorded_back", -1),
        ("Next change", "recorded_on", 1),
    ):
        head.button(
            label,
            key=key,
            disabled=_change(opened, way) is None,
            on_click=_go,
            args=(opened, way),
            help="The nearest pass that changed something itself.",
        )
    about = facts(opened.rows, row["number"])
    words.markdown(f"**{plain_text(row['pass'])}**  \n{plain_text(about)}")


def _change(opened: OpenedRecording, way: int) -> int | None:
    """The nearest pass before (-1) or after (1) the chosen one that changed something."""
    number = chosen_pass(opened)
    at = (bisect_left if way < 0 else bisect_right)(opened.changes, number) - (way < 0)
    return opened.changes[at] if 0 <= at < len(opened.changes) else None


def _go(opened: OpenedRecording, way: int) -> None:
    """Go from the pass chosen now, so that the second of two quick clicks goes further."""
    if (to := _change(opened, way)) is not None:
        choose(to)


def _as_model(opened: OpenedRecording, row: Row) -> None:
    place = st.container(horizontal=True, vertical_alignment="center")
    for label, after in (("Open its input", False), ("Open its result", True)):
        place.button(
            label,
            key=f"recorded_model_{after}",
            icon=":material/open_in_new:",
            disabled=after and (row["failure"] is not None or not row["ended"]),
            on_click=_open_model,
            args=(opened, row["number"], after),
            help="Opens the module as a model in all of the page's tabs: graph, passes, times.",
        )
    error = st.session_state.pop(_REFUSED, None)
    if error is not None:
        show_error(error)


def _open_model(opened: OpenedRecording, number: int, after: bool) -> None:
    try:
        text = opened.recording.module(number, after)
        if text is None:
            run = opened.recording.passes[number]
            said = f"The recording has no module here. {no_module(run)}"
            raise EngineError("file", said, run.name)
    except EngineError as error:
        st.session_state[_REFUSED] = error
        return
    name = re.sub(r"\W+", "_", opened.rows[number]["pass"])[:60]
    where = "after" if after else "before"
    ir = "relax" if '"root_index"' in text else "relay"
    sidebar.open_text(text, f"{where}_{number}_{name}.json", ir)
    st.session_state[_OPENED] = True


def _failure(message: str) -> None:
    lines = [line for line in message.splitlines() if line.strip()]
    st.error(f"**The pass failed.** {plain_text(lines[-1][:1000]) if lines else ''}")
    if len(lines) > 1:
        with st.expander("The whole message"):
            st.code(message, language=None)


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


def _run_list(opened: OpenedRecording, selected: int) -> None:
    """Draw the list of passes, with the number of the selected one. A compile runs thousands of
    passes, so the browser draws only visible rows, and folds, filters and searches by itself. It
    counts its choices, and gets the number of those done."""
    session, done = st.session_state.setdefault(_DONE, (secrets.randbits(32), 0))

    def chosen() -> None:
        told = (st.session_state.get("run_list") or {}).get("choice")
        of, count, number = told or (0, 0, -1)
        if of == session and count > st.session_state[_DONE][1]:
            st.session_state[_DONE] = session, count
            if 0 <= number < len(opened.rows):
                choose(number)

    data = struct.pack("<iII", selected, session, done) + opened.packed
    small("run_list")(key="run_list", data=data, on_choice_change=chosen)


def _text_diff(data: bytes) -> None:
    """Draw the data of `OpenedRecording.sides`."""
    sent: tuple[bytes, float] | None = st.session_state.get(_SENT)
    if sent is None or sent[0] != data:
        sent = st.session_state[_SENT] = data, time.time()
    # While a component loads, messages may arrive out of order.
    small("text_diff")(key="recorded_text", data=struct.pack("<d", sent[1]) + data)
