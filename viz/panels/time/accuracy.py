"""The accuracy report below the timings: every stage against PyTorch, in both precisions."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.jobs import accuracy
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.source import INPUTS
from relascope.passes.catalogue import default_pipeline
from relascope.samples import SAMPLES
from relascope.viz.component import View, graph_view
from relascope.viz.panels.shell.frame import boundary, plain_text, section, show_error, waiting
from relascope.viz.panels.shell.request_cache import RequestCache, Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import table

_HEIGHT = 480


def show(screen: Screen, target: str) -> None:
    """Draw the section: a button, then a row a stage as they come.

    Args:
        target: of TVM, which runs on this machine.
    """
    kinds = st.session_state.get("keep_check_inputs") or INPUTS[:1]
    stages = accuracy.with_inputs(_stages(screen), kinds)
    about = (
        "Compares the forward, the gradient, and the cut and split of each strategy with PyTorch, "
        "in float32 and float64, and names the node where an error first jumps."
    )
    title, label, of = "Is it right?", "Check every stage", (stages, target)
    pressed = section(title, label, "check_all", about, of, screen.cache.forget_errors)
    st.multiselect(
        "Inputs",
        INPUTS,
        key="keep_check_inputs",
        placeholder=INPUTS[0],
        help="The sample's own values, or others of its types: normal, large and tiny ones, "
        "neighbours that cancel, and values at which operators change their mind.",
    )
    if not pressed:
        return
    rows: list[accuracy.Row] = []
    shown: list[accuracy.Stage] = []
    complete = False
    try:
        for stage in stages:
            found = _run(screen.cache, stage, target)
            rows += found
            shown += [stage] * len(found)
        complete = True
    except Waiting:
        waiting(screen.cache)
    except EngineError as error:  # cancelled
        show_error(error)
        st.session_state.check_all_of = None
    if complete:
        say = st.success if all(r.passed for r in rows) else st.error
        say(plain_text(accuracy.verdict(rows)))
    at = _table(rows)
    if at is not None and rows[at].first_bad is not None:
        _node(screen, shown[at], rows[at].first_bad)


def _stages(screen: Screen) -> tuple[accuracy.Stage, ...]:
    """The mode on the screen with its pipeline, and the other mode with the default one."""
    sample = SAMPLES.get(screen.source.model)
    trains = sample is None or sample.training
    inference, training = screen.pipeline, default_pipeline(screen.ir, True) if trains else None
    if screen.training:
        inference, training = default_pipeline(screen.ir, False), screen.pipeline
    return accuracy.plan(screen.ir, screen.source, inference, training)


def _run(cache: RequestCache, stage: accuracy.Stage, target: str) -> tuple[accuracy.Row, ...]:
    return cache.derive(lambda: accuracy.run(cache.ask, stage, target), "accuracy", stage, target)


def _table(rows: list[accuracy.Row]) -> int | None:
    """The rows; the index of the chosen one."""
    if not rows:
        return None
    chosen = table(
        plain(rows),
        "inputs; stage; strategy; dtype; passed; max abs error: max_abs; relative to "
        "scale: max_rel; limit; worst tensor: worst; first bad node: first_bad.title; "
        "in: first_bad.scope; failure: failure.message",
        key="accuracy_table",
        on_select="rerun",
    )
    return chosen[0] if chosen else None


def _node(screen: Screen, stage: accuracy.Stage, bad: accuracy.BadNode | None) -> None:
    """The graph of a stage at its first bad node, and how it was found."""
    if bad is None:
        return
    against = f"; held against {bad.counterpart}" if bad.counterpart else ""
    st.caption(plain_text(f"{bad.title}: {bad.reason}{against}."))
    with boundary(screen.cache):
        at = replace(screen, source=stage.source, pipeline=stage.pipeline)
        graph_view(
            at.graph_after(at.last),
            View(_HEIGHT, screen.fewer_than, focus=bad.id, highlight={bad.id: "changed"}),
            key="accuracy_view",
        )
