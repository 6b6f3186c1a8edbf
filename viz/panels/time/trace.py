"""A button that downloads a profile as a trace, beside the kernels' table."""

from __future__ import annotations

import streamlit as st

from relascope.viz.rows import Row
from relascope.viz.rows.chrome_trace import trace_json


def trace_button(document: Row, model: str, ir: str) -> None:
    """Draw the button.

    Args:
        document: what `profile MODEL` prints.
    """
    st.download_button(
        "As a trace (.json)",
        trace_json({**document, "model": model, "engine": ir}),
        "trace.json",
        "application/json",
        key="trace",
        help="One run's kernels on a line of time, for chrome://tracing or ui.perfetto.dev.",
    )
