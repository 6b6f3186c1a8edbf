"""The page on a recording of a compile: its passes, their times, and their numbers.

No engine is needed for it, so none is started; only what runs a recorded module asks one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import streamlit as st

from relascope.core.errors import EngineError
from relascope.viz.panels.shell import keeping, session_list, sidebar
from relascope.viz.panels.shell.frame import looked_at, plain_text, show_error, strip
from relascope.viz.panels.steps.recorded import board, numbers, times
from relascope.viz.panels.steps.recorded.opened import Opened, opened
from relascope.viz.rows import formats
from relascope.viz.sessions.state import RECORDED_TABS

_SHOWN: tuple[Callable[[Opened], None], ...] = (board.show, times.show, numbers.show)
_MOST = 120  # characters of the recorded program's arguments


def show(path: str, unread: Sequence[str]) -> None:
    """Draw the page.

    Args:
        path: of the recording.
        unread: what the address says and cannot be shown, a sentence each.
    """
    with st.sidebar:
        sidebar.head()
        sidebar.of_recording()
        session_list.button()
    for sentence in unread:
        st.warning(plain_text(sentence))
    try:
        recording = opened(path)
    except EngineError as error:
        show_error(error)
        return
    looked_at(Path(path).name)
    _head(recording)
    tabs = st.tabs(list(RECORDED_TABS), key=keeping.RECORDED_TAB, on_change="rerun")
    for tab, draw in zip(tabs, _SHOWN, strict=True):
        if tab.open:
            with tab:
                draw(recording)
    keeping.keep_recorded(path, recording.digest)


def _head(opened: Opened) -> None:
    """Above the tabs: which compile this was."""
    recording = opened.recording
    about = {name: str(value) for name, value in recording.about.items()}
    failed = sum(r["failure"] is not None for r in opened.rows)
    arguments = recording.about.get("arguments")
    command = " ".join(map(str, arguments)) if isinstance(arguments, list) else ""
    facts = [
        (Path(opened.path).name, ""),
        (about.get("tvm", "?"), "TVM"),
        (formats.number(len(opened.rows)), "passes"),
        (formats.milliseconds(opened.seconds), "in them"),
        (about.get("level", "?"), "level"),
    ]
    if failed:
        facts.append((str(failed), "failed"))
    strip(*facts)
    if command:
        st.html(f"<div class='rs-status'>{escape(command[:_MOST])}</div>")
    if not recording.whole:
        st.info("The recording ends in the middle of a line: the compile was ended as it wrote it.")
    if not opened.rows:
        st.info("No pass was run while this was recorded.")
