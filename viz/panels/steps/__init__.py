"""Tab "Passes": the pipeline on the left, the graph after the chosen step on the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.core.identity import Matched, carry_identity
from relascope.engine.jobs import step
from relascope.engine.protocol.results import ModelInfo, StepRecord
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare.changes import start_of
from relascope.viz.component import graph_view
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.handed_on.steps import steps_of, steps_tab
from relascope.viz.panels import handing_on
from relascope.viz.panels.shell import keeping, sidebar
from relascope.viz.panels.shell.frame import boundary, show_error
from relascope.viz.panels.shell.pane import beside
from relascope.viz.panels.shell.request_cache import Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.steps import bisect, changes, editing, errors, example
from relascope.viz.panels.steps.step_list import step_list
from relascope.viz.rows.step_list import Row, rows

_HIDE = "keep_hide_idle"
_ONLY_TO = "keep_only_to_chosen"
_KEEP = "keep_layout"


def show(screen: Screen) -> None:
    """Draw the tab."""
    _board(screen, screen.cache.ask("load", screen.source))


@st.fragment
def _board(screen: Screen, model: ModelInfo) -> None:
    """The tab without the page around it, which a click on a step leaves as it is."""
    st.session_state.progress_shown = []
    pipeline = sidebar.pipeline_of(screen.ir, screen.training, screen.source.gradient)
    screen = replace(screen, pipeline=pipeline)
    with boundary(screen.cache, "steps"):
        _draw(screen, model)
    keeping.keep(screen)


def _draw(screen: Screen, model: ModelInfo) -> None:
    stepped, wait = _stepped(screen)
    left, right = beside("steps", "Steps")
    head = left.container(key="steps_head")
    # The graph first: what is sent first is drawn first, and that is what a click waits for.
    with right, boundary(screen.cache, picture=True):
        if stepped is None:
            assert wait is not None
            raise wait
        _after(screen, stepped, model, head)
    found = bisect.search(screen)
    with left:
        editing.parameters(screen, _chosen(screen), partial(_change, screen))
        records = None if stepped is None else stepped.records
        _list(screen, records, model, {} if found is None else found.blamed)
        bisect.show(screen, found)
        example.show(screen, _chosen(screen))
    if stepped is not None:
        after = screen.cache.known(
            "graph_after", screen.source, stepped.pipeline.upto(_chosen(screen)), _chosen(screen)
        )
        with left:
            handing_on.button(
                replace(screen, pipeline=stepped.pipeline),
                "steps",
                {} if after is None else {"chosen step's": after},
                partial(_page, screen, stepped),
                "all steps",
            )
        with boundary(screen.cache, "changes"):
            _changes(replace(screen, pipeline=stepped.pipeline), model)


def _page(screen: Screen, stepped: step.Stepped, file: Sheet) -> None:
    """All steps, for a page that is handed on."""
    steps = steps_of(screen.cache.ask, screen.ir, screen.source, stepped)
    view = replace(screen.view(), open_alone=None)
    steps_tab(file, steps, view, _chosen(screen) + 1)


def _stepped(screen: Screen) -> tuple[step.Stepped | None, Exception | None]:
    """What each step did, or each up to the chosen one, where no more is wished for; or None with
    what to raise where the graph would stand."""
    pipeline = screen.pipeline
    if st.session_state.get(_ONLY_TO):
        pipeline = pipeline.upto(_chosen(screen))
    try:
        return step.step(screen.cache.ask, screen.source, pipeline), None
    except (Waiting, EngineError) as problem:
        return None, problem


def _chosen(screen: Screen) -> int:
    """The chosen step: -1 is the imported program. A pipeline that got shorter keeps its end."""
    key = keeping.step_key(screen.source)
    return min(st.session_state.get(key, screen.last), screen.last)


def _choose(screen: Screen, index: int) -> None:
    st.session_state[keeping.step_key(screen.source)] = max(-1, min(index, screen.last))


def _change(screen: Screen, pipeline: Pipeline | None, index: int | None) -> None:
    """Take another pipeline, None for the default one, and choose a step where one is given."""
    sidebar.set_pipeline(screen, pipeline)
    if index is not None and pipeline is not None:
        _choose(replace(screen, pipeline=pipeline), index)


def _list(
    screen: Screen,
    records: Sequence[StepRecord] | None,
    model: ModelInfo,
    blamed: Mapping[int, str],
) -> None:
    """The list, and below it what else can be done to the pipeline."""
    change = partial(_change, screen)

    def move(row: int, to: int) -> None:
        change(screen.pipeline.moved(row - 1, to - 1), to - 1)

    def remove(row: int) -> None:
        index = _chosen(screen)
        change(screen.pipeline.without(row - 1), index - (row - 1 <= index))

    listed = rows(screen.ir, screen.pipeline, records, len(model.graph), blamed)
    chosen, idle = _chosen(screen) + 1, sum(_idle(r) for r in listed)
    if st.session_state.get(_HIDE):
        listed = [replace(r, hidden=_idle(r) and i != chosen) for i, r in enumerate(listed)]
    step_list(
        listed,
        chosen,
        key="step_list",
        on_select=lambda row: _choose(screen, row - 1),
        on_switch=lambda row, enabled: change(screen.pipeline.switched(row - 1, enabled), None),
        on_move=move,
        on_remove=remove,
    )
    below = st.container(horizontal=True)
    if idle:
        steps = "the step" if idle == 1 else f"the {idle} steps"
        below.toggle(f"Hide {steps} that changed nothing", key=_HIDE)
    below.toggle(
        "Run only up to the chosen step",
        key=_ONLY_TO,
        help="What stands behind the chosen step is not run on this tab, for passes that take "
        "long or crash.",
    )
    editing.show(screen, chosen - 1, change)


def _idle(row: Row) -> bool:
    return row.enabled and row.idle and not row.failure


def _after(screen: Screen, stepped: step.Stepped, model: ModelInfo, head: DeltaGenerator) -> None:
    """The graph after the chosen step, with what the step added and changed in colour.

    Args:
        head: where the walk over steps and changes stands, and what the colours say.
    """
    index = _chosen(screen)
    record = stepped.records[index] if index >= 0 else None
    alive = replace(screen, pipeline=stepped.pipeline)  # without what ends the engine's process
    before, matched = _difference(alive, model, index)
    touched = matched.added | matched.changed
    marked = [n.id for n in matched.graph if n.id in touched]
    place = f"{screen.source} {alive.pipeline.upto(index)}"
    with head:
        focus = _walk(screen, index, marked, place) or changes.chosen(place)
        keep = errors.choose(screen).toggle(
            "Keep the layout",
            True,
            key=_KEEP,
            help="What is there before and after a step stays where it stands. Without it each "
            "graph is laid out by itself: tidier, but it jumps.",
        )
    if record is not None and record.printed:
        st.code(record.printed, language=None)
    if record is not None and record.error is not None:
        show_error(record.error)
    places = changes.successors(screen.cache.derive, place, before, matched) if keep else None
    if errors.wanted():
        errors.show(alive, index, key="error_view", keep_places=places)
        return
    graph_view(
        changes.picture(screen.cache.derive, place, before, matched),
        screen.view(
            highlight={
                **dict.fromkeys(matched.changed, "changed"),
                **dict.fromkeys(matched.added, "added"),
                **dict.fromkeys(matched.removed, "removed"),
            },
            shines_through=("changed", "removed", "added"),
            colours="What changed",
            focus=focus,
            keep_places=places,
            among=(model.graph,),
        ),
        key="step_view",
    )


def _difference(screen: Screen, model: ModelInfo, index: int) -> tuple[Graph, Matched]:
    """The graph that a step started from, and how the one after it differs."""
    start = start_of(screen.ir, screen.pipeline, index)
    before, graph = (
        model.graph if step < 0 else screen.graph_after(step) for step in (start, index)
    )
    matched = screen.upto(index).derive(lambda: carry_identity(before, graph), "diff")
    return before, matched


def _changes(screen: Screen, model: ModelInfo) -> None:
    """What the chosen step changed, below list and graph."""
    index = _chosen(screen)
    if errors.wanted():
        errors.nodes(screen, index)
    elif index >= 0:
        place = f"{screen.source} {screen.pipeline.upto(index)}"
        changes.show(
            screen.cache.derive,
            place,
            *_difference(screen, model, index),
            "What this step changed",
            partial(changes.show_text, screen, index),
        )


def _walk(screen: Screen, index: int, marked: Sequence[str], place: str) -> str | None:
    """Previous and next step, and a walk over what this one touched; the node to look at."""
    title = "Imported program" if index < 0 else f"Step {index + 1} of {len(screen.pipeline)}"
    state = st.session_state
    if state.get("change_place") != place:
        state.change_place, state.change = place, -1

    def next_change() -> None:
        changes.forget()
        state.change = (state.change + 1) % len(marked)

    row = st.container(horizontal=True, vertical_alignment="center")
    row.button(
        "Previous", key="previous", disabled=index < 0, on_click=_choose, args=(screen, index - 1)
    )
    row.button(
        "Next",
        key="next",
        disabled=index >= screen.last,
        on_click=_choose,
        args=(screen, index + 1),
    )
    row.markdown(title)
    here = f" {state.change + 1} of {len(marked)}" if state.change >= 0 else ""
    row.button(
        f"Next change{here}",
        key="next_change",
        disabled=not marked,
        on_click=next_change,
        help="Go to the next node that this step added or changed.",
    )
    return marked[state.change] if 0 <= state.change < len(marked) else None
