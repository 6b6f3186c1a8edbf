"""The page for a recording of a compile: its passes and their times, without an engine."""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import streamlit as st

from relascope.core.errors import EngineError
from relascope.viz.panels.compared import against
from relascope.viz.panels.shell import keeping, session_list, sidebar
from relascope.viz.panels.shell.frame import heading, looked_at, plain_text, show_error
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.opening import zone as opening
from relascope.viz.panels.shell.table import grid, show_sections
from relascope.viz.panels.steps.recorded import board
from relascope.viz.panels.steps.recorded.opened import OpenedRecording, read_once
from relascope.viz.rows import recording as passes_of
from relascope.viz.sessions.state import RECORDED_TABS

_OF = "recorded_times_of"  # digest of a recording, and the pass whose runs are shown


def show(path: str, unread: Sequence[str]) -> None:
    """Draw the page for a file; `unread` are sentences on parts of the address not shown."""
    with st.sidebar:
        sidebar.head()
        sidebar.of_recording()
        facts = st.container()
        session_list.button()
        opening.recent()
    for sentence in unread:
        st.warning(plain_text(sentence))
    try:
        recording = read_once(path)
    except EngineError as error:
        show_error(error)
        return
    looked_at(f"{Path(path).name} · TVM {str(recording.recording.about.get('tvm'))[:40]}")
    about = passes_of.about(recording.recording, recording.document).items()
    lines = [f"{name}: {value}" for name, value in about if value]
    said = "<br>".join(escape(line[:200]) for line in lines)
    facts.html(f"<div class='rs-status'>{said}</div>")
    tabs = st.tabs(list(RECORDED_TABS), key=keeping.RECORDED_TAB, on_change="rerun")
    for tab, draw in zip(tabs, _SHOWN, strict=True):
        if tab.open:
            with tab:
                for said in passes_of.gaps(recording.document):
                    st.warning(plain_text(said))
                draw(recording)
    keeping.keep_recorded(recording.screen)


def _times(opened: OpenedRecording) -> None:
    """How long each pass took, how often it ran, and in which functions."""
    if not opened.rows:
        return
    facts, totals = passes_of.times_sections(opened.document)
    show_sections([facts], "recorded_times")
    if not any(r["own_seconds"] for r in opened.rows):
        st.caption("No time was recorded.")
        return

    def choose(row: int | None) -> None:
        name = None if row is None else opened.document["totals"][row]["pass"]
        st.session_state[_OF] = opened.screen.source.digest, name

    grid(
        totals["rows"],
        key=f"recorded_totals_{opened.screen.source.digest}",
        bars=("share",),
        help={
            "own ms": "Without the passes that ran inside it, so that the times add up.",
            "longest ms": "The longest of its runs.",
        },
        wide={"pass": "medium", "in which functions": "large"},
        on_pick=choose,
        height=380,
    )
    digest, name = st.session_state.get(_OF, ("", None))
    runs = [r for r in opened.rows if r["pass"] == name and digest == opened.screen.source.digest]
    if not runs:
        st.caption("Click a row's box to see the runs of a pass.")
        return
    runs.sort(key=lambda r: -(r["own_seconds"] or 0.0))
    heading(f"Runs of {name}, the longest first")

    def go(row: int | None) -> None:
        if row is not None:
            keeping.choose_pass(runs[row]["number"] - 1)
            put(keeping.RECORDED_TAB, "Passes")

    grid(
        passes_of.runs_table(runs)["rows"],
        key=f"recorded_runs_{digest}_{name}",
        wide={"in which functions": "large"},
        on_pick=go,
        height="auto" if len(runs) < 9 else 320,
    )
    st.caption(plain_text("Click a row's box to go to that run."))


_SHOWN: tuple[Callable[[OpenedRecording], None], ...] = (
    board.show,
    _times,
    lambda opened: against.show(opened.screen),
)
