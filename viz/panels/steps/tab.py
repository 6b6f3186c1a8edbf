"""Tab "Passes": the pipeline on the left, the graph after the chosen step on the right."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.engine.jobs import step
from relascope.engine.protocol.results import ModelInfo
from relascope.passes.catalogue import info, names
from relascope.viz.compare.changes import around, coloured
from relascope.viz.component.views import graph_view, panes, select, selected_of
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.handed_on.steps import steps_of, steps_tab
from relascope.viz.panels import handing_on
from relascope.viz.panels.shell import keeping
from relascope.viz.panels.shell.frame import begin, boundary, show_error
from relascope.viz.panels.shell.holding import ask
from relascope.viz.panels.shell.request_cache import Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.steps import bisect, changes, editing, errors, tvm_pipelines
from relascope.viz.panels.steps.step_list import act, chosen, current, step_list
from relascope.viz.rows.step_list import StepChange, rows
from relascope.viz.sessions.state import pipeline_key

_ONLY_TO = "keep_only_to_chosen"
_VIEW = "step_view"


@dataclass
class _StepState:
    """What is known so far of the chosen step."""

    index: int
    alive: Screen  # with a pipeline without steps that end the engine's process
    model: ModelInfo | None = None
    stepped: step.Stepped | None = None
    change: StepChange | None = None
    problem: Exception | None = None  # to show in place of the graph


@st.fragment
def show(screen: Screen) -> None:
    """Draw the tab alone: a click on a step leaves the page around it unchanged."""
    begin()
    screen = current(screen)
    with boundary(screen.cache, "steps"):
        _draw(screen)
    keeping.keep(screen)


def _draw(screen: Screen) -> None:
    """Controls stay while the engine works: a click on one that disappears would be lost."""
    known = _known(screen)
    left, right = panes("steps", "Steps")
    with left.container(key="steps_head"):
        row = errors.choose(screen)
        _walk(known, row)
        keep = changes.keeps_layout(row)
    # The graph first: it is drawn in the order sent, and a click waits for it.
    with right, boundary(screen.cache, picture=True):
        _after(screen, known, keep)
    found = bisect.search(screen)
    with left:
        theirs = editing.chooser(screen)
        editing.parameters(screen)
        _list(screen, known, {} if found is None else found.blamed)
        editing.pipeline_text(screen, theirs)
        bisect.show(screen, found)
        tries = tvm_pipelines.button(screen)
        editing.example(screen)
        if known.stepped is not None:
            graphs = {"chosen step's": known.alive.graph_after(known.index)} if known.change else {}
            page = partial(_page, screen, known.stepped)
            handing_on.button(known.alive, "steps", graphs, page, "all steps")
    if tries is not None:
        tvm_pipelines.show(tries)
    if known.change is not None:
        with boundary(screen.cache, "changes"):
            if errors.shown() == errors.ERRORS:
                errors.nodes(known.alive, known.index)
            else:
                title = "What this step changed" if known.index >= 0 else ""
                changes.show(known.change, _VIEW, title)


def _page(screen: Screen, stepped: step.Stepped, file: Sheet) -> Sheet:
    steps = steps_of(screen.cache.ask, screen.ir, screen.source, stepped)
    return steps_tab(file, steps, screen.view(open_alone=None), chosen(screen) + 1)


def _known(screen: Screen) -> _StepState:
    known = _StepState(chosen(screen), screen)
    pipeline = screen.pipeline
    if st.session_state.get(_ONLY_TO):
        pipeline = pipeline.upto(known.index)
    try:
        known.model = screen.cache.ask("load", screen.source)
        known.stepped = step.step(screen.cache.ask, screen.source, pipeline)
        known.alive = replace(screen, pipeline=known.stepped.pipeline)
        sides = around(screen.ir, known.alive.pipeline, known.index)
        known.change = changes.change_of(known.alive, sides)
    except (Waiting, EngineError) as problem:
        known.problem = problem
    return known


def _list(screen: Screen, known: _StepState, blamed: Mapping[int, str]) -> None:
    records = known.stepped.records if known.stepped else None
    imported = len(known.model.graph) if known.model else None
    listed = rows(screen.ir, screen.pipeline, records, imported, blamed)
    passes = [(name, info(screen.ir, name).title) for name in names(screen.ir)]
    data = [r.data for r in listed]
    of = pipeline_key(screen.ir, screen.training, screen.source.gradient)
    step_list(partial(act, screen), data, chosen(screen) + 1, "pipeline", passes=passes, of=of)
    about = "Passes after the chosen step are not run on this tab, in case they take long or crash."
    ask(st.toggle, "Run only up to the chosen step", key=_ONLY_TO, help=about)


def _after(screen: Screen, known: _StepState, keep: bool) -> None:
    """The chosen step's graph, or its texts; with `keep`, nodes drawn before stay in place."""
    if known.problem is not None:
        raise known.problem
    index, alive, change = known.index, known.alive, known.change
    assert known.model
    assert known.stepped
    assert change
    matched = change.matched
    for record in known.stepped.records[index : index + 1] if index >= 0 else ():
        if record.printed:
            st.code(record.printed, language=None)
        if record.error is not None:
            show_error(record.error)
    places = change.successors if keep else None
    if errors.shown() == changes.TEXT:
        make = partial(changes.texts, alive, around(screen.ir, alive.pipeline, index))
        changes.show_text(screen.ir == "relay", make, st.container())
        return
    if errors.shown() == errors.ERRORS:
        errors.show(alive, index, places)
        return
    fuses = any(n.body is not None and n.id in matched.added for n in matched.graph)
    fused = matched.graph  # gives the colours of kernels, also right before fusion
    for after in known.stepped.records[index + 1 :][:1]:
        if after.pass_name in ("fuse", "fuse_ops") and after.enabled and after.error is None:
            fused = alive.graph_after(index + 1)
    look = screen.view(
        overlays=changes.kernels(fused),
        overlay="kernel" if fuses else "",
        **coloured(matched),
        keep_places=places,
        among=(known.model.graph,),
    )
    graph_view(changes.picture(change, _VIEW), look, key=_VIEW)


def _walk(known: _StepState, row: DeltaGenerator) -> None:
    """A button that walks over the nodes that the step touched, from the selected one on."""
    marked: list[str] = []
    after, selected = "", selected_of(_VIEW)
    if known.change is not None:
        matched = known.change.matched
        touched = matched.added | matched.changed
        nodes = [n.id for n in matched.graph]
        marked = [i for i in nodes if i in touched]
        behind = nodes[nodes.index(selected) + 1 :] if selected in nodes else ()
        after = next((i for i in behind if i in touched), marked[0] if marked else "")
    here = f" {marked.index(selected) + 1} of {len(marked)}" if selected in marked else ""
    label, go = f"Next change{here}", partial(select, _VIEW, after)
    about = "Go to the next node that this step added or changed."
    row.button(label, key="next_change", disabled=not marked, on_click=go, help=about)
