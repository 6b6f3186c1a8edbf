"""Tab "Times" of a recording: which pass took how long, how often, and in which functions."""

import streamlit as st

from relascope.viz.panels.shell import keeping
from relascope.viz.panels.shell.frame import heading, plain_text
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.table import show_sections, table
from relascope.viz.panels.steps.recorded import board
from relascope.viz.panels.steps.recorded.opened import OpenedRecording
from relascope.viz.rows.recording import runs_table, times_sections

_OF = "recorded_times_of"  # digest of a recording, and the pass whose runs are shown


def show(opened: OpenedRecording) -> None:
    if not opened.rows:
        return
    inside = opened.derive(lambda: sum(r["own_seconds"] or 0.0 for r in opened.rows), "own")
    facts, totals = times_sections(opened.document)
    show_sections([facts], "recorded_times")
    if not inside:
        st.caption("No time was recorded.")
        return

    def choose(row: int | None) -> None:
        name = None if row is None else opened.document["totals"][row]["pass"]
        st.session_state[_OF] = opened.digest, name

    table(
        totals["rows"],
        key=f"recorded_totals_{opened.digest}",
        bars=("share",),
        help={
            "own ms": "Without the passes that ran inside it, so that all of them add up.",
            "longest ms": "The longest of its runs.",
        },
        wide={"pass": "medium", "in which functions": "large"},
        on_pick=choose,
        height=380,
    )
    digest, name = st.session_state.get(_OF, ("", None))
    runs = [r for r in opened.rows if r["pass"] == name and digest == opened.digest]
    if not runs:
        st.caption("Click a row's box to see the runs of a pass.")
        return
    runs.sort(key=lambda r: -(r["own_seconds"] or 0.0))
    heading(f"Runs of {name}, the longest first")

    def go(row: int | None) -> None:
        if row is not None:
            board.choose(runs[row]["number"])
            put(keeping.RECORDED_TAB, "Passes")

    table(
        runs_table(runs)["rows"],
        key=f"recorded_runs_{digest}_{name}",
        wide={"in which functions": "large"},
        on_pick=go,
        height="auto" if len(runs) < 9 else 320,
    )
    st.caption(plain_text("Click a row's box to go to that run."))
