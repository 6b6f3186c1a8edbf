"""The values of controls: kept while a control is not drawn, and not lost on the way.

Each message of the browser says what all its controls show, also the one that comes by the clock,
and also while a value that was set here is on its way there. It must not undo that.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state.common import user_key_from_element_id

_STATE = "controls"
_RAN = "controls_ran"  # set at the end of a run, and new until the browser says something


@dataclass
class _Controls:
    """Of a tab: keys on its screen; what was put by key: before, now, in which run; and buttons
    that were pressed and not drawn since."""

    shown: set[str] = field(default_factory=set)
    put: dict[str, tuple[Any, Any, int]] = field(default_factory=dict)
    pressed: set[str] = field(default_factory=set)
    run: int = 0
    own: bool = False  # the next run is asked for here, and not by the browser


@contextmanager
def keeping_widget_values() -> Iterator[None]:
    """Around a run of the page: a control `keep_…` that is not drawn keeps its value.

    One that stands on the screen is left alone: a value that is set is sent to the browser, over
    what is being typed or clicked there. On the screen is what the browser has spoken of: what was
    only drawn may be lost on the way, for the next run takes back what waits to be sent.
    """
    mine = _controls()
    own, mine.own = mine.own, False
    _put_again(own)
    _note_shown(mine)
    _set_but(mine.shown)
    try:
        yield
        _set_but(_drawn())
        mine.pressed.clear()
    finally:  # also where the next run has cut this one short
        mine.run += 1
        st.session_state[_RAN] = True


def put(key: str, value: Any) -> None:
    """Set a control from elsewhere, before it is drawn."""
    mine, state = _controls(), st.session_state
    mine.put[key] = state.get(key), value, mine.run
    state[key] = value


def pressed(label: str, key: str, place: Any = st, **more: Any) -> bool:
    """Draw a button; whether it was pressed, told once.

    Streamlit forgets a press when a run is cut short before it draws the button.
    """
    presses = _controls().pressed
    place.button(label, key=key, on_click=presses.add, args=(key,), **more)
    known = key in presses
    presses.discard(key)
    return known


def by_the_clock() -> None:
    """At the beginning of what runs by the clock: what was put stands."""
    context = get_script_run_ctx()
    if context is not None and context.fragment_ids_this_run:
        _put_again(False)
        _note_shown(_controls())


def rerun() -> NoReturn:
    """Run the page anew, of what runs by the clock."""
    _controls().own = True
    st.rerun()


def _put_again(own: bool) -> None:
    mine, state = _controls(), st.session_state
    for key, (before, value, run) in list(mine.put.items()):
        now = state.get(key)
        if run == mine.run or (own and now == value):  # put just now; or the browser said nothing
            continue
        if now == before != value:
            state[key] = value
        else:  # the browser has it, or the person has chosen
            del mine.put[key]


def _controls() -> _Controls:
    return st.session_state.setdefault(_STATE, _Controls())


def _note_shown(mine: _Controls) -> None:
    context = get_script_run_ctx()
    if context is not None and not context.session_state.is_new_state_value(_RAN):
        mine.shown = _keys(context.session_state._state._new_widget_state)


def _set_but(drawn: set[str]) -> None:
    state = st.session_state
    for key in [k for k in state if str(k).startswith("keep_") and k not in drawn]:
        state[key] = state[key]


def _drawn() -> set[str]:
    """The keys of the controls that this run has drawn so far."""
    context = get_script_run_ctx()
    ids = context.shared.widget_ids_this_run.snapshot() if context is not None else ()
    return _keys(ids)


def _keys(ids: Iterable[str]) -> set[str]:
    return {key for key in map(user_key_from_element_id, ids) if key is not None}
