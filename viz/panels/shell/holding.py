"""The values of controls: kept while a control is not drawn, and not lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state.common import user_key_from_element_id

_DRAWN, _PUT = "keys_drawn", "keys_put"


@contextmanager
def held() -> Iterator[None]:
    """Around a run of the page: a control `keep_…` that is not drawn keeps its value.

    One that stands on the screen is left alone: a value that is set is sent to the browser, over
    what is being typed or clicked there.
    """
    state = st.session_state
    drawn: set[str] = state.setdefault(_DRAWN, set())
    _set_but(drawn)
    state[_PUT] = {k: v for k, v in state.get(_PUT, {}).items() if state.get(k) == v}
    try:
        yield
        _set_but(_drawn())
        drawn.clear()
    finally:  # also where the next run has cut this one short
        drawn |= _drawn()


def put(key: str, value: Any) -> None:
    """Set a control from elsewhere, until the person sets it."""
    st.session_state[key] = value
    st.session_state.setdefault(_PUT, {})[key] = value


def put_again() -> None:
    """In what runs by the clock: set what was put once more.

    The browser sends all that it shows along, also while what was put is on its way there.
    """
    context, state = get_script_run_ctx(), st.session_state
    if context is None or not context.fragment_ids_this_run:  # the whole page runs
        return
    for key, value in state.get(_PUT, {}).items():
        if state.get(key) != value:
            state[key] = value


def _set_but(drawn: set[str]) -> None:
    state = st.session_state
    for key in [k for k in state if str(k).startswith("keep_") and k not in drawn]:
        state[key] = state[key]


def _drawn() -> set[str]:
    """The keys of the controls that this run has drawn so far."""
    context = get_script_run_ctx()
    ids = context.shared.widget_ids_this_run.snapshot() if context is not None else ()
    return {key for key in map(user_key_from_element_id, ids) if key is not None}
