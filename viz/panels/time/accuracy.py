"""The accuracy report below the timings: every stage against PyTorch, in both precisions."""

from dataclasses import replace
from functools import partial

import streamlit as st

from relascope.engine.jobs import accuracy
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.source import kinds_of_inputs, own_inputs
from relascope.viz.component.views import graph_view
from relascope.viz.panels.shell import noting
from relascope.viz.panels.shell.frame import boundary, plain_text, section
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import grid
from relascope.viz.rows import tables
from relascope.viz.sessions import results


def show(screen: Screen, target: str) -> None:
    """Draw the section for a target that runs here: a button, then a row for each stage."""
    known = kinds_of_inputs(screen.source)
    before = st.session_state.get("keep_check_inputs") or ()
    chosen = [k for k in before if k in known]
    if len(chosen) < len(before):
        st.session_state.keep_check_inputs = chosen
    kinds = tuple(chosen) or own_inputs(screen.source)
    stages = results.stages_of(screen.ir, screen.source, screen.pipeline, kinds)
    about = (
        "Compares the forward, the gradient, and the cut and split of each strategy with PyTorch, "
        "in float32 and float64, and names the node where an error first jumps."
    )
    title, label, of = "Is it right?", "Check every stage", (stages, target)
    pressed = section(title, label, "check_all", about, of, screen.cache.forget_errors)
    about = "The sample's own values, or others of its types: normal, large and tiny ones, "
    about += "neighbours that cancel, and edge cases of operators; set2 and so on are further sets "
    about += "of saved inputs."
    empty = ", ".join(kinds)
    st.multiselect("Inputs", known, key="keep_check_inputs", placeholder=empty, help=about)
    if not pressed:
        noting.show_kept(screen, "accuracy")
        return
    rows: list[accuracy.AccuracyRow] = []
    shown: list[accuracy.Stage] = []

    def run(one: accuracy.Stage) -> tuple[accuracy.AccuracyRow, ...]:
        made = partial(accuracy.run, screen.cache.ask, one, target)
        return screen.cache.derive(made, "accuracy", one, target)

    with boundary(screen.cache, "_check", asked="check_all_of"):
        asked = screen.cache.ask, stages, target, screen.training, not chosen
        fitting, also = accuracy.of_program(*asked)
        for stage, found in accuracy.each(fitting, run):
            rows += found
            shown += [stage] * len(found)
        against = screen.cache.ask("load", screen.source, True).against
        say = st.success if all(r.passed for r in rows) else st.error
        say(plain_text(" ".join((accuracy.verdict(rows, against), *also))))
        noting.note_result(screen, "accuracy", results.saved_accuracy(target, kinds, rows))
    picked = rows and grid(
        map(tables.finding, plain(rows)), tables.OUTCOMES, key="accuracy_table", on_select="rerun"
    )
    for at in picked or ():
        if (bad := rows[at].first_bad) is not None:
            _node(screen, shown[at], bad)


def _node(screen: Screen, stage: accuracy.Stage, bad: accuracy.BadNode) -> None:
    against = f"; compared with {bad.counterpart}" if bad.counterpart else ""
    st.caption(plain_text(f"{bad.title}: {bad.reason}{against}."))
    with boundary(screen.cache):
        at = replace(screen, source=stage.source, pipeline=stage.pipeline)
        look = screen.view(480, focus=bad.id, highlight={bad.id: "changed"})
        graph_view(at.graph_after(at.last), look, key="accuracy_view")
