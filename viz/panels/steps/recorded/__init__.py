"""The page on a recording of a compile: its passes and their times; it needs no engine."""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import streamlit as st

from relascope.core.errors import EngineError
from relascope.viz.panels.compared import against
from relascope.viz.panels.shell import keeping, opening, session_list, sidebar
from relascope.viz.panels.shell.frame import looked_at, plain_text, show_error
from relascope.viz.panels.steps.recorded import board, times
from relascope.viz.panels.steps.recorded.opened import OpenedRecording, opened
from relascope.viz.rows import formats
from relascope.viz.rows.recording import gaps
from relascope.viz.sessions.state import RECORDED_TABS


def _against(opened: OpenedRecording) -> None:
    against.of_recording_at(opened.path, opened.digest, opened.derive)


_SHOWN: tuple[Callable[[OpenedRecording], None], ...] = (board.show, times.show, _against)
_MOST = 200  # characters of a line of the sidebar


def show(path: str, unread: Sequence[str]) -> None:
    """Draw the page on a file; `unread` is what the address says and cannot be shown."""
    with st.sidebar:
        sidebar.head()
        sidebar.of_recording()
        facts = st.container()
        session_list.button()
        opening.recent()
    for sentence in unread:
        st.warning(plain_text(sentence))
    try:
        recording = opened(path)
    except EngineError as error:
        show_error(error)
        return
    looked_at(f"{Path(path).name} · TVM {str(recording.recording.about.get('tvm'))[:40]}")
    with facts:
        _facts(recording)
    tabs = st.tabs(list(RECORDED_TABS), key=keeping.RECORDED_TAB, on_change="rerun")
    for tab, draw in zip(tabs, _SHOWN, strict=True):
        if tab.open:
            with tab:
                for said in gaps(recording.document):
                    st.warning(plain_text(said))
                draw(recording)
    keeping.keep_recorded(path, recording.digest)


def _facts(opened: OpenedRecording) -> None:
    about = opened.recording.about
    arguments = about.get("arguments")
    seconds = formats.milliseconds(opened.document["seconds"])
    lines = [
        Path(opened.path).name,
        f"TVM {about.get('tvm')}, Python {about.get('python')}",
        f"{formats.number(len(opened.rows))} passes in {seconds}",
        f"recorded at the level {about.get('level')}",
        " ".join(map(str, arguments)) if isinstance(arguments, list) else "",
    ]
    said = "<br>".join(escape(line[:_MOST]) for line in lines if line)
    st.html(f"<div class='rs-status'>{said}</div>")
