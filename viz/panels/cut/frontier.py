"""In the tab of the gradient: bytes against recomputed work, with what PyTorch keeps beside it."""

from contextlib import suppress
from functools import partial

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.protocol.times import TorchSaved
from relascope.passes.cuts import cut as cuts
from relascope.viz import charts
from relascope.viz.panels.presenting import along
from relascope.viz.panels.shell.cut_choice import frontier_of, joint_of
from relascope.viz.panels.shell.frame import boundary, plain_text
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows import tables

_READ = (
    "Work is the time of what the backward computes again, estimated or by measured kernels, as a "
    "share of the forward's. "
    "The line joins the cuts that are best at some price of work for bytes. "
    "A click on a point chooses it. "
    "Between two of its points, *Within a budget* finds the best cuts near it. What PyTorch's "
    "min-cut partitioner computes again is not estimated, so only its bytes are drawn, as "
    "dashed lines, by default and at its best; PyTorch eager computes nothing again."
)


def show(screen: Screen, cut: cuts.Cut) -> None:
    """Draw the chart; PyTorch's figures join it when they are here."""
    joint = joint_of(screen)
    document = screen.derive(lambda: tables.frontier_document(joint), "frontiers", joint.measured)
    if cut.strategy == "frontier":  # the line that the slider moves along
        line = frontier_of(screen)
        rows = tables.frontier_rows(joint, reversed(line))
        document = {**document, "frontier": rows, "proven": line.proven}
    known: TorchSaved | None = None
    with suppress(EngineError):  # told below, where it can be tried again
        known = screen.cache.peek("torch_saved", screen.source)
    rivals = tables.torch_saved_document(known) if known else None
    title = cuts.STRATEGIES[cut.strategy].title
    key = f"frontier_{cut.strategy}_{cut.bytes}_{cut.share:.9f}"  # a choice begins a chart anew
    st.altair_chart(
        charts.frontier(document, rivals, (title, cut.bytes, cut.share), clickable=True),
        key=key,
        on_select=partial(_clicked, key),
        selection_mode=[charts.CLICKED],
    )
    st.html(charts.frontier_legend(document, rivals))
    st.caption(tables.PROVEN if document["proven"] else tables.STOPPED, help=_READ)
    if known is not None and known.note:
        st.caption(plain_text(known.note))


def _clicked(key: str) -> None:
    told = st.session_state[key]["selection"].get(charts.CLICKED) or []
    if told and (name := told[0].get("strategy")):
        put("keep_strategy", name)
    elif told:
        along(int(told[0]["bytes"]))


def ask_torch_saved(screen: Screen) -> None:
    """Ask for PyTorch's figures where they are not known; the page runs again with them."""
    with boundary(screen.cache, "_torch_saved"):
        if screen.cache.peek("torch_saved", screen.source) is None:
            screen.cache.ask("torch_saved", screen.source)
            st.rerun()
