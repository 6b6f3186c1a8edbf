"""In the tab of the gradient: TVM's way to it held against PyTorch's."""

from dataclasses import replace

import streamlit as st

from relascope.engine.jobs.cut import joint_of
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import gradients
from relascope.passes.cuts import cut
from relascope.viz.panels.shell import sidebar
from relascope.viz.panels.shell.frame import boundary
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import show_sections
from relascope.viz.rows import Row, tables


def show(screen: Screen) -> None:
    """Draw the comparison, where the IR has two ways; it is made when it is asked for."""
    ways = gradients(screen.ir)
    if len(ways) < 2:
        return
    with st.expander("TVM's gradient beside PyTorch's"):
        st.markdown(
            "TVM differentiates the imported forward by a pass; PyTorch's autograd records forward "
            "and backward together. Both are taken here as their pipelines leave them."
        )
        wanted = st.toggle(
            "Compare",
            key="keep_two_gradients",
            help="Takes both gradients, builds both programs and runs them against PyTorch.",
        )
        if not wanted:
            return
        with boundary(screen.cache):
            targets = screen.cache.ask("describe").targets
            target = next((t.name for t in targets if t.runs_here), None)
            rows = [_row(screen, replace(screen.source, gradient=w), target) for w in ways]
            show_sections(tables.gradient_sections(rows), "gradients")


def _row(screen: Screen, source: ModelSource, target: str | None) -> Row:
    pipeline = sidebar.pipeline_of(screen.ir, True, source.gradient)
    screen = replace(screen, source=source, pipeline=pipeline)
    joint = joint_of(screen.cache.ask, source, pipeline)

    def row() -> Row:
        return tables.gradient_row(source.gradient, joint)

    if target is None:
        return screen.derive(row, "gradient_row")
    captures = screen.derive(lambda: cut.cut(joint).ids, "captures")
    errors = screen.cache.ask("check", BuildRequest(source, pipeline, target).split_at(captures))
    found = screen.derive(row, "gradient_row")
    return {**found, "error": tables.worst_gradient(errors)}
