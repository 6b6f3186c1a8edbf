"""Tab "Compile & time": build, compare every output and gradient, time beside PyTorch eager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.session import RIVALS, EngineError, EngineInfo, Target, TimeResult
from passes.catalogue import GRADIENTS
from viz import charts, tables
from viz.panels import hazards, kernels, truth
from viz.panels.choice import cut_of
from viz.panels.desk import Desk, Request
from viz.panels.frame import heading, show_error, strip
from viz.panels.screen import Screen

_HISTORY = 20


@dataclass(frozen=True)
class _Run:
    """A timing under way: what the history will call it, and the arguments of `time`."""

    title: str
    request: tuple[Any, ...]


def show(desk: Desk, screen: Screen) -> None:
    """Draw the tab."""
    engine: EngineInfo = desk.ask("describe")
    request, target = _settings(desk, screen, engine)
    if target is not None and not target.runs_here:
        st.info(f"{target.name} does not run on this machine: {target.missing}")
    running: _Run | None = st.session_state.get("timing")
    if running is not None:
        try:
            _remember(running, desk.ask("time", *running.request))
        except EngineError as error:
            show_error(error)
            if running.request != request:
                st.session_state.timing = None  # the settings have moved on from what failed
    _results(request)
    if target is not None and target.runs_here:
        kernels.show(desk, screen, request[:-1])
        hazards.show(desk, screen, request[:-1])
        truth.show(desk, screen, target.name)


def _settings(
    desk: Desk, screen: Screen, engine: EngineInfo
) -> tuple[tuple[Any, ...], Target | None]:
    """The controls; what Run would ask the engine for, and the chosen target."""
    targets = {t.name: t for t in engine.targets}
    state = st.session_state
    state.setdefault("keep_threads", 0)
    state.setdefault("keep_repeats", 30)
    row, beside = st.container(), st.container()
    where, threads, repeats, run = row.columns([4, 1.3, 1.3, 1.1], vertical_alignment="bottom")
    name = where.selectbox(
        "Target", list(targets), key="keep_target",
        format_func=lambda n: f"{targets[n].device}: {n}",
    )  # fmt: skip
    count = threads.number_input(
        "Threads, 0 for all", 0, 256, key="keep_threads", help="For TVM and PyTorch alike."
    )
    runs = repeats.number_input("Repeats", 3, 1000, key="keep_repeats")
    target = targets.get(name or "")
    request = (
        screen.source, screen.pipeline, _captured(desk, screen), name, int(count), int(runs),
        _rivals(beside, name or ""),
    )  # fmt: skip
    can_run = target is not None and target.runs_here
    if run.button("Run", type="primary", key="run", disabled=not can_run, width="stretch"):
        desk.forget(Request("time", request))
        state.timing = _Run(_title(screen), request)
    return request, target


def _rivals(place: DeltaGenerator, target: str) -> tuple[str, ...]:
    """What else is timed, beside PyTorch eager."""
    offered = RIVALS if target.startswith("cuda") else RIVALS[:1]
    chosen = place.pills(
        "Time beside PyTorch eager, too", offered, selection_mode="multi", key="keep_rivals",
        help="It is compiled first, which takes from seconds to minutes.",
    )  # fmt: skip
    return tuple(chosen)


def _captured(desk: Desk, screen: Screen) -> tuple[str, ...] | None:
    """What the forward saves, by the strategy chosen in the tab before; None in inference."""
    if not screen.training:
        return None
    return cut_of(desk, screen)[0].ids


def _remember(run: _Run, result: TimeResult) -> None:
    history: dict[tuple[Any, ...], tuple[str, TimeResult]] = st.session_state.setdefault(
        "history", {}
    )
    history.pop(run.request, None)
    history[run.request] = (run.title, result)
    while len(history) > _HISTORY:
        history.pop(next(iter(history)))
    st.session_state.timing = None


def _title(screen: Screen) -> str:
    mode = "training" if screen.training else "inference"
    whose = "" if screen.source.gradient == "tvm" else f", {GRADIENTS[screen.source.gradient]}"
    return f"{screen.label}, {mode}{whose} gradient" if whose else f"{screen.label}, {mode}"


def _results(request: tuple[Any, ...]) -> None:
    """The newest timing, or an older one of this session that the user picks."""
    history: dict[tuple[Any, ...], tuple[str, TimeResult]] = st.session_state.get("history", {})
    if not history:
        st.caption(
            "Run builds the program for the target, compares every output and gradient with "
            "PyTorch, and times it beside PyTorch eager, run by run in turns."
        )
        return
    runs = list(reversed(history))
    shown = request if request in history else runs[0]
    if len(runs) > 1:
        shown = st.selectbox(
            "Run", runs, index=runs.index(shown), key="shown_run",
            format_func=lambda r: _run_name(r, *history[r]),
        )  # fmt: skip
    title, result = history[shown]
    strip(
        [
            (title, ""),
            (result.machine, ""),
            (str(result.threads), "threads"),
            (tables.milliseconds(result.build_seconds), "to build"),
        ]
    )
    strip(
        [
            (tables.speed_text(r.ratio_to_eager), charts.PHASES.get(r.phase, r.phase))
            for r in result.rows
            if r.ratio_to_eager is not None
        ],
        large=True,
    )
    for note in result.notes:
        st.warning(note)
    _table(result)
    st.altair_chart(charts.times(result.rows), key="time_chart")
    _comparisons(result)


def _run_name(request: tuple[Any, ...], title: str, result: TimeResult) -> str:
    source, _, captured, _, _, repeats, _ = request
    sizes = [f"batch {source.batch}"] if source.batch else []
    sizes += [f"{source.tokens} tokens"] if source.tokens else []
    kept = [] if captured is None else [f"{len(captured)} captures"]
    return ", ".join([title, *sizes, source.dtype, *kept, f"{result.threads} threads",
                      f"{repeats} repeats"])  # fmt: skip


def _table(result: TimeResult) -> None:
    rows = [
        {
            "what": r.what,
            "phase": charts.PHASES.get(r.phase, r.phase),
            "median": r.median_ms,
            "q1": r.q1_ms,
            "q3": r.q3_ms,
            "against eager": tables.speed_text(r.ratio_to_eager),
            "ratio": r.ratio_to_eager,
            "ours over it": r.ours_over,
            "max abs error": r.max_abs_error,
            "captures held": tables.size(r.peak_bytes) if r.peak_bytes is not None else None,
        }
        for r in result.rows
    ]
    ms = st.column_config.NumberColumn(format="%.3f ms")
    st.dataframe(
        rows,
        hide_index=True,
        placeholder="–",
        column_config={
            "median": ms,
            "q1": ms,
            "q3": ms,
            "ratio": st.column_config.NumberColumn(format="%.2f"),
            "ours over it": st.column_config.NumberColumn(
                format="%.2f",
                help="The median of our time over this compiler's; below 1, ours is faster.",
            ),
            "max abs error": st.column_config.NumberColumn(format="%.1e"),
        },
    )


def _comparisons(result: TimeResult) -> None:
    heading("Against PyTorch, tensor by tensor")
    number = st.column_config.NumberColumn(format="%.1e")
    st.dataframe(
        [
            {
                "tensor": c.name,
                "max abs error": c.max_abs,
                "relative to scale": c.max_rel,
                "scale": c.scale,
                "dtype": c.dtype,
            }
            for c in result.comparisons
        ],
        hide_index=True,
        column_config={
            "max abs error": number,
            "relative to scale": number,
            "scale": st.column_config.NumberColumn(format="%.3g"),
        },
    )
