"""Tab "Passes": the pipeline on the left, the graph after the chosen step on the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from engine import stepping
from engine.session import EngineError, ModelInfo, StepRecord
from passes.catalogue import read_pipeline
from viz.changes import start_of
from viz.component import graph_view
from viz.diff import Matched, carry_identity
from viz.graph import Graph
from viz.panels import bisect, changes, example, sidebar
from viz.panels.desk import Desk, Waiting
from viz.panels.frame import boundary, show_error, side_by_side
from viz.panels.screen import Screen
from viz.panels.step_list import Row, rows, step_list

HEIGHT = 620
_HIDE = "keep_hide_idle"


def show(desk: Desk, screen: Screen) -> None:
    """Draw the tab."""
    model: ModelInfo = desk.ask("load", screen.source)
    stepped, wait = _stepped(desk, screen)
    left, right = side_by_side("passes", [0.40, 0.60])
    found = bisect.search(desk, screen)
    with left:
        records = None if stepped is None else stepped.records
        _list(screen, records, model, {} if found is None else found.blamed)
        bisect.show(desk, screen, found)
        example.show(desk, screen, _chosen(screen))
        _text(screen)
    with right, boundary(desk):
        if stepped is None:
            assert wait is not None
            raise wait
        _after(desk, replace(screen, pipeline=stepped.pipeline), model, stepped.records)
    if stepped is not None:
        with boundary(desk, "changes"):
            _changes(desk, replace(screen, pipeline=stepped.pipeline), model)


def _stepped(desk: Desk, screen: Screen) -> tuple[stepping.Stepped | None, Exception | None]:
    """What each step did; or None with what to raise where the graph would stand."""
    try:
        return stepping.step(desk.ask, screen.source, screen.pipeline), None
    except (Waiting, EngineError) as problem:
        return None, problem


def _chosen(screen: Screen) -> int:
    """The chosen step: -1 is the imported program. A pipeline that got shorter keeps its end."""
    key = _chosen_key(screen)
    return min(st.session_state.get(key, screen.last), screen.last)


def _choose(screen: Screen, index: int) -> None:
    st.session_state[_chosen_key(screen)] = max(-1, min(index, screen.last))


def _chosen_key(screen: Screen) -> str:
    return f"step_{screen.source.gradient if screen.training else 'inference'}"


def _list(
    screen: Screen,
    records: Sequence[StepRecord] | None,
    model: ModelInfo,
    blamed: Mapping[int, str],
) -> None:
    def on_switch(row: int, enabled: bool) -> None:
        pipeline = screen.pipeline.switched(row - 1, enabled)
        sidebar.set_pipeline(screen, pipeline)

    listed = rows(screen.ir, screen.pipeline, records, len(model.graph), blamed)
    chosen, idle = _chosen(screen) + 1, sum(_idle(r) for r in listed)
    if st.session_state.get(_HIDE):
        listed = [replace(r, hidden=_idle(r) and i != chosen) for i, r in enumerate(listed)]
    step_list(
        listed,
        chosen,
        key="step_list",
        on_select=lambda row: _choose(screen, row - 1),
        on_switch=on_switch,
    )
    if idle:
        steps = "the step" if idle == 1 else f"the {idle} steps"
        st.toggle(f"Hide {steps} that changed nothing", key=_HIDE)


def _idle(row: Row) -> bool:
    return row.enabled and row.idle and not row.failure


def _after(desk: Desk, screen: Screen, model: ModelInfo, records: Sequence[StepRecord]) -> None:
    """The graph after the chosen step, with what the step added and changed in colour."""
    index = _chosen(screen)
    failure = records[index].error if index >= 0 else None
    before, matched = _difference(desk, screen, model, index)
    touched = matched.added | matched.changed
    marked = [n.id for n in matched.graph if n.id in touched]
    place = f"{screen.source} {screen.pipeline.upto(index)}"
    focus = _walk(screen, index, marked, place) or changes.chosen(place)
    if failure is not None:
        show_error(failure)
    graph_view(
        changes.picture(desk, place, before, matched),
        key="step_view",
        height=HEIGHT,
        fewer_than=screen.fewer_than,
        highlight={
            **dict.fromkeys(matched.changed, "changed"),
            **dict.fromkeys(matched.added, "added"),
            **dict.fromkeys(matched.removed, "removed"),
        },
        focus=focus,
    )


def _difference(desk: Desk, screen: Screen, model: ModelInfo, index: int) -> tuple[Graph, Matched]:
    """The graph that a step started from, and how the one after it differs."""
    graph = _graph(desk, screen, model, index)
    before = _graph(desk, screen, model, start_of(screen.ir, screen.pipeline, index))
    matched = desk.derive(
        lambda: carry_identity(before, graph),
        "diff", screen.source, str(screen.pipeline.upto(index)),
    )  # fmt: skip
    return before, matched


def _changes(desk: Desk, screen: Screen, model: ModelInfo) -> None:
    """What the chosen step changed, below list and graph."""
    index = _chosen(screen)
    if index >= 0:
        place = f"{screen.source} {screen.pipeline.upto(index)}"
        changes.show(desk, screen, index, place, *_difference(desk, screen, model, index))


def _graph(desk: Desk, screen: Screen, model: ModelInfo, index: int) -> Graph:
    """The graph after a step; asked for by the steps up to it alone, so that a switch further
    down does not ask again."""
    if index < 0:
        return model.graph
    return desk.ask("graph_after", screen.source, screen.pipeline.upto(index), index)


def _walk(screen: Screen, index: int, marked: Sequence[str], place: str) -> str | None:
    """Previous and next step, and a walk over what this one touched; the node to look at."""
    title = "Imported program" if index < 0 else f"Step {index + 1} of {len(screen.pipeline)}"
    state = st.session_state
    if state.get("change_place") != place:
        state.change_place, state.change = place, -1

    def next_change() -> None:
        changes.forget()
        state.change = (state.change + 1) % len(marked)

    back, on, words, change = st.columns([1.1, 0.8, 2, 1.5], vertical_alignment="center")
    back.button(
        "Previous", key="previous", disabled=index < 0, width="stretch",
        on_click=_choose, args=(screen, index - 1),
    )  # fmt: skip
    on.button(
        "Next", key="next", disabled=index >= screen.last, width="stretch",
        on_click=_choose, args=(screen, index + 1),
    )  # fmt: skip
    words.markdown(title)
    here = f" {state.change + 1} of {len(marked)}" if state.change >= 0 else ""
    change.button(
        f"Next change{here}", key="next_change", disabled=not marked, width="stretch",
        on_click=next_change, help="Go to the next node that this step added or changed.",
    )  # fmt: skip
    return marked[state.change] if 0 <= state.change < len(marked) else None


def _text(screen: Screen) -> None:
    """The pipeline as text: to copy, and to paste another."""
    with st.expander("Pipeline as text"):
        st.code(str(screen.pipeline), language=None, wrap_lines=True)
        with st.form("pipeline_form", border=False):
            text = st.text_input(
                "Paste a pipeline", key="keep_pipeline_text", placeholder="cse|bind|-fold",
                help="Names joined by |, a minus before a pass that is switched off.",
            )  # fmt: skip
            use, reset = st.columns(2)
            used = use.form_submit_button("Use it", width="stretch")
            if reset.form_submit_button("Back to the default", width="stretch"):
                sidebar.set_pipeline(screen, None)
                st.rerun()
        if used:
            try:
                pipeline = read_pipeline(screen.ir, text)
            except ValueError as wrong:
                show_error(EngineError("usage", str(wrong)))
                return
            sidebar.set_pipeline(screen, pipeline)
            st.rerun()
