"""Tab "Numbers" of a recording: what the modules after each pass compute."""

from __future__ import annotations

import streamlit as st

from relascope.viz.panels.steps.recorded.opened import Opened


def show(opened: Opened) -> None:
    """Draw the tab."""
    st.caption(
        "Numbers need the modules themselves: record the compile with `--level modules`, and each "
        "step's result is held against the first one's."
    )
