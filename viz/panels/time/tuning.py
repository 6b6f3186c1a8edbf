"""Tuning, below the timings: the kernels, live measurements, and results.

The section reads measurements from the records on disk, so it shows the same after a reload, Cancel
or a kill. While the engine tunes, only a small part of the page runs again, once a second.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import streamlit as st

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.protocol import records
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.protocol.tuning import RECORDS, TuneResult, TuneTask
from relascope.viz.charts.charts import best_so_far
from relascope.viz.panels.shell import frame
from relascope.viz.panels.shell.holding import ask, by_the_clock, pressed, put, rerun
from relascope.viz.panels.shell.request_cache import Request, RequestCache, Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import grid, show_sections
from relascope.viz.rows import formats, tuning

_RUNNING = "tuning"  # the present run, or the last
_LISTED = "tasks_of"  # the request for which kernels were listed
_TABLE = "tune_table"


@dataclass(frozen=True)
class _TuningRun:
    """A tuning run: the arguments of `tune`, and the records before it."""

    arguments: tuple[BuildRequest, tuple[str, ...], int]
    place: Path
    before: int
    names: tuple[tuple[str, str], ...]


def show(screen: Screen, request: BuildRequest) -> None:
    """Draw the section, for a target that runs here."""
    frame.heading("Tune the kernels")
    engine: EngineInfo = screen.cache.ask("describe")
    asked = replace(request, repeats=0)
    place = records.folder(screen.ir, engine.version, request.target, request.threads)
    run: _TuningRun | None = st.session_state.get(_RUNNING)
    ours = run is not None and run.place == place
    with frame.boundary(screen.cache, "_tuning"):
        book = records.read(place)
        listed = _tasks(screen.cache, asked, book)
        if run is not None and _under_way(screen.cache, run):
            if ours:
                _table(screen, listed, book, chooses=False)
            else:
                st.caption("Another target is being tuned.")
            if frame.first_of(screen.cache):
                _live(screen.cache, run)
            return
        if run is not None and ours:
            _outcome(screen.cache, run)
        if listed:
            keys = _table(screen, listed, book, chooses=True)
            _start(screen.cache, asked, place, book, listed, keys)
        _found(book, listed, request.target)


def _tasks(cache: RequestCache, asked: BuildRequest, book: records.Book) -> tuple[TuneTask, ...]:
    """The kernels, updated from the records; empty before they are requested."""
    state = st.session_state
    if state.get(_LISTED) != asked:
        listed = pressed("List kernels", "list_tasks")
        st.caption(_records_text(book))
        if not listed:
            return ()
        cache.forget("tasks", asked)
        state[_LISTED] = asked
    known = cache.peek("tasks", asked)
    return tuning.refreshed(known if known is not None else cache.ask("tasks", asked), book)


def _records_text(book: records.Book) -> str:
    if not book.trials:
        return (
            "Lists the kernels that can be tuned, and tries schedules of them on this machine. "
            "Every measurement is kept, and later builds use the best."
        )
    kernels = formats.counted(len({t.task for t in book.trials}), "kernel")
    held = f"{len(book.trials)} measurements of {kernels}, from this model or others"
    return f"The records of this target hold {held}."


def _table(
    screen: Screen, listed: tuple[TuneTask, ...], book: records.Book, chooses: bool
) -> tuple[str, ...]:
    """Draw the kernels; the keys of the chosen rows."""
    if not listed:
        return ()
    at = screen.upto(screen.built)
    graph: Graph | None = screen.cache.peek("graph_after", at.source, at.pipeline, at.last)
    chosen = grid(
        tuning.tasks_table(tuning.task_rows(listed, graph))["rows"],
        key=_TABLE if chooses else f"{_TABLE}_running",
        on_select="rerun" if chooses else "ignore",
        selection_mode="multi-row",
        bars=["share"],
        help={
            "share": "Share of the time of all kernels, measured when they were listed.",
            "without": "Time when built without records.",
            "gain": "How much faster the best record is; below 1, slower.",
            "trials": "Measurements on disk.",
            "built with": "A build with records uses the best one if nothing is faster.",
        },
    )
    for note in book.notes:
        st.warning(frame.plain_text(note))
    return tuple(listed[k].key for k in chosen)


def _start(
    cache: RequestCache,
    asked: BuildRequest,
    place: Path,
    book: records.Book,
    listed: tuple[TuneTask, ...],
    chosen: tuple[str, ...],
) -> None:
    words, trials, start = st.columns([4.3, 1.3, 1.1], vertical_alignment="bottom")
    each = int(ask(trials.number_input, "Trials of each", 1, 100_000, value=32, key="keep_trials"))
    keys = chosen or tuple(t.key for t in listed)
    share = sum(t.share or 0.0 for t in listed if t.key in keys)
    which = f"{'The chosen' if chosen else 'All'} {len(keys)} kernel{'s' * (len(keys) > 1)}"
    which += f", {share:.0%} of the kernels' time" if share else ""
    words.caption(f"{which}: {len(keys) * each} trials. Choose rows to tune only those.")
    if pressed("Tune", "tune", start, type="primary", width="stretch"):
        arguments = (asked, keys, each)
        cache.forget("tune", *arguments)
        names = tuple(tuning.labels(listed).items())
        st.session_state[_RUNNING] = _TuningRun(arguments, place, len(book.trials), names)
        st.rerun()


def _under_way(cache: RequestCache, run: _TuningRun) -> bool:
    """Whether a run has no answer yet; starts it if the engine is free."""
    try:
        cache.ask("tune", *run.arguments, patience=0.0)
    except Waiting:
        return True
    except EngineError:
        pass  # `_outcome` shows it
    return False


@st.fragment(run_every=1.0)  # s, between reads of the records
def _live(cache: RequestCache, run: _TuningRun) -> None:
    by_the_clock()
    running = cache.running
    if running is None or cache.collect():
        rerun()
    mine = running.request == Request("tune", run.arguments)
    try:
        made = records.read(run.place).trials[run.before :]
    except EngineError as error:
        frame.show_error(error)
        return
    fraction, text = running.job.progress if mine else (0.0, "waiting for other work to end")
    seconds = time.monotonic() - running.began
    frame.progress_bar(cache, fraction, text, "cancel_tuning", help="Keeps the results so far.")
    left = seconds * (1 - fraction) / fraction if mine and fraction else None
    failed = sum(t.ms is None for t in made)
    _, keys, each = run.arguments
    frame.strip(
        (f"{len(made)} of {len(keys) * each}", "trials"),  # fewer if a kernel has fewer schedules
        (formats.duration(seconds), "so far"),
        *([(formats.duration(left), "left")] if left is not None else []),
        *([(str(failed), "that did not build or run")] if failed else []),
    )
    chart = best_so_far(made, dict(run.names))
    if chart is not None:
        st.altair_chart(chart, key="tune_curve")
    else:
        st.caption("The first measurements take a moment to start, in their own process.")


def _outcome(cache: RequestCache, run: _TuningRun) -> None:
    made = records.read(run.place).trials[run.before :]
    try:
        result: TuneResult | None = cache.peek("tune", *run.arguments)
    except EngineError as error:
        if error.kind != "cancelled":
            frame.show_error(error)
        kept = f"after {len(made)} trials; the results so far are kept."
        st.info(f"Tuning was stopped {kept if made else 'before its first trial.'}")
        return
    if result is not None:
        show_sections(tuning.tuned_sections(plain(result))[:-1], "tuned")


def _found(book: records.Book, listed: tuple[TuneTask, ...], target: str) -> None:
    """The curve of the latest run, and a button to build with the records."""
    names = tuning.labels(listed)
    latest = book.in_run(book.trials[-1].run) if book.trials else ()
    mine = [t for t in latest if t.task in names]
    chart = best_so_far(mine, names) if mine else None
    if chart is not None:
        st.caption("The latest run: each kernel's best so far.")
        st.altair_chart(chart, key="tune_curve")
    if not any(book.takes(k) for k in {t.task for t in book.trials}):
        return
    if RECORDS in target.split():
        st.caption("Builds for this target use the records: time it to see their gain.")
        return
    words, button = st.columns([5, 1.8], vertical_alignment="center")
    words.caption(f"Builds for the target `{target} {RECORDS}` use the best records.")
    take = partial(put, "keep_target", f"{target} {RECORDS}")
    button.button("Build with them", key="use_records", width="stretch", on_click=take)
