"""In the tab "Passes" of a recording with modules: their numbers, by an engine of the same TVM,
which a button starts."""

from collections.abc import Callable

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.jobs.accuracy import OURS
from relascope.viz.panels.shell import sidebar
from relascope.viz.panels.shell.frame import boundary, heading, plain_text, show_error
from relascope.viz.panels.shell.request_cache import RequestCache
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.tab_engines import cache_of_session
from relascope.viz.panels.shell.table import grid
from relascope.viz.panels.steps import bisect
from relascope.viz.panels.steps.recorded.opened import OpenedRecording
from relascope.viz.rows import Row
from relascope.viz.rows.recorded_numbers import (
    Part,
    PartSearch,
    RecordedNumbers,
    first_words,
    ir_of,
    numbers_table,
    part_verdict,
    parts,
    same_tvm,
    why_none,
)

_ASKED = "recorded_numbers"  # the digest of the recording whose modules are run


def show(opened: OpenedRecording, index: int, choose: Callable[[int], None]) -> None:
    """Draw the button; once pressed, the errors of the chosen pass's part, and the search."""
    kernels = st.toggle(
        "Run the kernels of its modules",
        key=f"recorded_kernels_{opened.digest}",
        help="Kernels are code that came with the recording; they run in the sandboxed engine. "
        "Without them, numbers stop where TVM lowers operators to kernels.",
    )
    try:
        found: tuple[Part, ...] = opened.derive(
            lambda: parts(opened.recording, kernels), f"parts {kernels}"
        )
    except EngineError as error:
        show_error(error)
        return
    if not found:
        why = opened.derive(lambda: why_none(opened.recording), "why_none")
        st.caption(plain_text(f"No two of its modules can be run and compared. {why}"))
        return
    if st.session_state.get(_ASKED) != opened.digest:
        st.button(
            "Compare the numbers",
            key="recorded_compare",
            width="stretch",
            on_click=st.session_state.update,
            args=({_ASKED: opened.digest},),
            help="Compiles the module after each pass from there on, runs all on the same inputs, "
            "and compares their results with the first one's. This starts an engine.",
        )
        return
    part = _part(found, index)
    ir: str = opened.derive(lambda: ir_of(opened.recording), "ir")
    held: RecordedNumbers = opened.derive(
        lambda: RecordedNumbers(
            opened.recording, sidebar.session_folder(opened.digest), kernels=kernels
        ),
        f"numbers {kernels}",
    )
    source = held.source(part)
    cache = cache_of_session(ir, source)
    heading("How far each module is from the first")
    with boundary(cache, "numbers"):
        info = cache.ask("describe")
        same_tvm(opened.recording, info.version)
        rows: list[Row] = []
        try:
            held.errors(cache.ask, part, info.best, OURS, rows.append)
        finally:
            _table(opened, part, rows, choose)
        _search(opened, held, cache, ir, found, part)


def _search(
    opened: OpenedRecording,
    held: RecordedNumbers,
    cache: RequestCache,
    ir: str,
    found: tuple[Part, ...],
    chosen: Part,
) -> None:
    """The button and, once pressed, the search of all parts; shows the first with a fault."""
    asked: bisect.BisectQuestion | None = st.session_state.get("bisect")
    searching = asked is not None and asked.source in [held.source(p) for p in found]
    done: list[PartSearch] = []
    shown: tuple[Screen, bisect.BisectSearch | None] | None = None
    for part in found if searching else (chosen,):
        try:
            pipeline, left_out = held.readable(cache.ask, part)
        except EngineError as error:
            done.append(PartSearch(part, failure=error.as_finding()))
            continue
        screen = Screen(ir, held.source(part), opened.recording.path.name, pipeline, 0, cache)
        search = bisect.searched(screen, asked) if searching and asked is not None else None
        if shown is None or part == chosen:
            shown = screen, search
        if search is None:
            continue
        failure = search.problem if isinstance(search.problem, EngineError) else None
        if search.problem and (failure is None or failure.kind == "cancelled"):
            shown = screen, search
            break
        done.append(PartSearch(part, search.result, failure, left_out))
        if search.result is not None and search.result.kind:
            shown = screen, search
            break
    if searching or shown is None:
        for line in part_verdict(ir, opened.recording, done).splitlines():
            st.caption(plain_text(line))
    if shown is not None:
        bisect.show(*shown)


def _part(found: tuple[Part, ...], index: int) -> Part:
    """The part that contains a pass, or the last one that begins before it."""
    before = [p for p in found if p.modules[0].by <= index]
    return before[-1] if before else found[0]


def _table(
    opened: OpenedRecording, part: Part, rows: list[Row], choose: Callable[[int], None]
) -> None:
    st.caption(plain_text(f"Compared with {first_words(opened.recording, part)}. {part.end}"))
    if not rows:
        return

    def pick(row: int | None) -> None:
        if row is not None:
            choose(rows[row]["number"] - 1)

    key = f"recorded_errors_{opened.digest}_{part.first}"
    grid(numbers_table(rows)["rows"], key=key, on_pick=pick)
