"""The show of the joint graph, cut by cut along the frontier: how it begins and ends."""

from functools import partial
from typing import Any

import streamlit as st
from streamlit import session_state as state
from streamlit.runtime.scriptrunner import get_script_run_ctx

from relascope.passes.cuts import cut as cuts
from relascope.viz.drawing.show import show_document
from relascope.viz.panels.shell.cut_choice import choice_of, frontier_of
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows.memory import cut_peak_words

_NAME = "show"  # the address's parameter
_ASKED, _COUNT, _ARRIVED = "show_asked", "show_count", "show_arrived"


def arrive() -> None:
    """If the page was opened on the show, or moved to it in the history, go to its tab."""
    context = get_script_run_ctx()
    went = context is not None and context.is_history_navigation
    if _on() and (went or _ARRIVED not in state):
        put("keep_tab", "Gradient & cut")
        put("keep_mode", "Training")
        _begin()
    state[_ARRIVED] = True


def view(screen: Screen, cut: cuts.Cut) -> dict[str, Any]:
    """Arguments of the graph's view for presenting, with all cuts once requested."""
    more: dict[str, Any] = {"present": present}
    if state.get(_ASKED):
        document = partial(show_document, frontier_of(screen, True), cut, cut_peak_words)
        key = "show", choice_of(screen), cut.joint.measured, frozenset(cut.joint.peaks.items())
        more["show"] = screen.derive(document, *key)
        more["showing"] = state.get(_COUNT, 0) if _on() else 0
    return more


def present(on: bool, take: int | None = None) -> None:
    """Begin or end the show, and choose the cut of the frontier that keeps `take` bytes."""
    if on:
        if not _on():
            _begin()
        st.query_params[_NAME] = "1"
    else:
        st.query_params.pop(_NAME, None)
    if take is not None:
        along(take)


def along(saved_bytes: int) -> None:
    """Choose the cut of the frontier that keeps this many bytes."""
    put("keep_strategy", "frontier")
    put("keep_frontier", saved_bytes)


def _on() -> bool:
    return st.query_params.get(_NAME) == "1"


def _begin() -> None:
    state[_ASKED] = True
    put("keep_cut_view", "Joint")
    state[_COUNT] = state.get(_COUNT, 0) + 1
