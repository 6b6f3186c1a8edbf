"""In the tab "Passes" of a recording with modules: their numbers, by an engine of the same TVM."""

from dataclasses import replace
from functools import partial

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.jobs.accuracy import OURS
from relascope.viz.panels.shell import keeping, sidebar
from relascope.viz.panels.shell.frame import boundary, heading, plain_text, show_error
from relascope.viz.panels.shell.tab_engines import cache_of_session
from relascope.viz.panels.shell.table import grid
from relascope.viz.panels.steps import bisect
from relascope.viz.panels.steps.recorded.opened import OpenedRecording
from relascope.viz.rows import Row, recorded_numbers

_ASKED = "recorded_numbers"  # the digest of the recording whose modules are run


def show(opened: OpenedRecording, index: int) -> None:
    """Draw the button; once pressed, the errors of the chosen pass's part, and the search."""
    about = "Kernels are code that came with the recording; they run in the sandboxed engine. "
    about += "Without them, numbers stop where TVM lowers operators to kernels."
    key = f"recorded_kernels_{opened.screen.source.digest}"
    kernels = st.toggle("Run the kernels of its modules", key=key, help=about)
    try:
        parts = partial(recorded_numbers.parts, opened.recording, kernels)
        found = opened.screen.cache.derive(parts, f"parts {kernels}")
    except EngineError as error:
        show_error(error)
        return
    if not found:
        none = partial(recorded_numbers.why_none, opened.recording)
        why = opened.screen.cache.derive(none, "why_none")
        st.caption(plain_text(f"No two of its modules can be run and compared. {why}"))
        return
    if st.session_state.get(_ASKED) != opened.screen.source.digest:
        st.button(
            "Compare the numbers",
            key="recorded_compare",
            width="stretch",
            on_click=st.session_state.update,
            args=({_ASKED: opened.screen.source.digest},),
            help="Compiles the module after each pass from there on, runs all on the same inputs, "
            "and compares their results with the first one's. This starts an engine.",
        )
        return
    begun = [p for p in found if p.runs[0].index <= index]
    part = begun[-1] if begun else found[0]  # with the pass, or the last that begins before it
    folder = sidebar.session_folder(opened.screen.source.digest)
    held = recorded_numbers.RecordedNumbers(opened.recording, folder, kernels=kernels)
    source = held.source(part)
    cache = cache_of_session(opened.screen.ir, source)
    heading("How far each module is from the first")
    with boundary(cache, "numbers"):
        info = cache.ask("describe")
        recorded_numbers.same_tvm(opened.recording, info.version)
        rows: list[Row] = []
        try:
            held.errors(cache.ask, part, info.best, OURS, rows.append)
        finally:
            _table(opened, part, rows)
        pipeline, left_out = held.readable(cache.ask, part)
        if left_out:
            st.caption(plain_text(left_out))
        screen = replace(opened.screen, source=source, pipeline=pipeline, cache=cache)
        bisect.show(screen, bisect.search(screen))


def _table(opened: OpenedRecording, part: recorded_numbers.Part, rows: list[Row]) -> None:
    st.caption(plain_text(f"Compared with {recorded_numbers.first_words(part)}. {part.end}"))
    if not rows:
        return

    def pick(row: int | None) -> None:
        if row is not None:
            keeping.choose_pass(rows[row]["number"] - 1)

    key = f"recorded_errors_{opened.screen.source.digest}_{part.by.number}"
    grid(recorded_numbers.numbers_table(rows)["rows"], key=key, on_pick=pick)
