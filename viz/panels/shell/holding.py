"""Keeps the values of controls that are not drawn, and values on their way to the browser.

Each message of the browser has the values of all its controls, even if a timer sent it, and even
while a value that was set here has not arrived there. Such a message must not undo that value.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import ScriptRunner, get_script_run_ctx
from streamlit.runtime.scriptrunner_utils.script_run_context import RunLocation, ThreadState
from streamlit.runtime.state.common import user_key_from_element_id

_BEGINS = {"selectbox": "index", "segmented_control": "default"}
_RAN = "controls_ran"  # set at the end of a run, and new until the browser's next message
_yield = ScriptRunner._maybe_handle_execution_control_request


def _yield_but_in_callbacks(runner: ScriptRunner) -> None:
    """Streamlit ends a run, at its next look at the state, once the browser has sent more. It would
    end a callback, too, which is not called again: what the user did would be lost."""
    if ThreadState.get().run_location is not RunLocation.CALLBACK:
        _yield(runner)


ScriptRunner._maybe_handle_execution_control_request = _yield_but_in_callbacks  # type: ignore[assignment]


@dataclass
class _Controls:
    """A tab's controls."""

    shown: set[str] = field(default_factory=set)  # on its screen, by key
    put: dict[str, tuple[Any, Any, int]] = field(default_factory=dict)  # before, now, in which run
    pressed: set[str] = field(default_factory=set)  # and not drawn since
    run: int = 0
    own: bool = False  # the next run is requested here, not by the browser


@contextmanager
def keeping_widget_values() -> Iterator[None]:
    """Around a run of the page: a control `keep_…` that is not drawn keeps its value. Controls on
    the screen are left alone, because setting a value sends it to the browser, over what the user
    types or clicks there. A control is on the screen if the browser has mentioned it: a drawn one
    may not arrive, because the next run drops what waits to be sent."""
    mine = _controls()
    own, mine.own = mine.own, False
    _put_again(own)
    _note_shown(mine)
    _set_but(mine.shown)
    try:
        yield
        context = get_script_run_ctx()
        ids = context.shared.widget_ids_this_run.snapshot() if context is not None else ()
        _set_but(_keys(ids))
        mine.pressed.clear()
    finally:  # even if the next run cuts this one short
        mine.run += 1
        st.session_state[_RAN] = True


def put(key: str, value: Any) -> None:
    """Set a control from elsewhere, before it is drawn."""
    mine, state = _controls(), st.session_state
    mine.put[key] = state.get(key), value, mine.run
    state[key] = value


def ask(draw: Callable[..., Any], label: str, *args: Any, key: str, **more: Any) -> Any:
    """Draw a control that comes and goes by one of Streamlit's functions. In the browser it begins
    with its value here. A value that is set overwrites what the user chose while it was on its way,
    and it is set until the browser mentions the control; what a browser mentions may be gone."""
    mine, state, begins = _controls(), st.session_state, _BEGINS.get(draw.__name__, "value")
    if key in state and key not in mine.put:
        value, known = state[key], begins != "index" or state[key] in args[0]
        if known:
            more[begins] = value if begins != "index" else list(args[0]).index(value)
        if not known or key not in mine.shown:
            del state[key]
    return draw(label, *args, key=key, **more)


def pressed(label: str, key: str, place: Any = st, **more: Any) -> bool:
    """Draw a button; whether it was pressed, told once, even if the run was cut short before it."""
    presses = _controls().pressed
    place.button(label, key=key, on_click=presses.add, args=(key,), **more)
    known = key in presses
    presses.discard(key)
    return known


def by_the_clock() -> None:
    """Begin a fragment: restore values that were put."""
    context = get_script_run_ctx()
    if context is not None and context.fragment_ids_this_run:
        _put_again(False)
        _note_shown(_controls())


def rerun() -> NoReturn:
    """Run the page again, from a timed fragment."""
    _controls().own = True
    st.rerun()


def _put_again(own: bool) -> None:
    mine, state = _controls(), st.session_state
    for key, (before, value, run) in list(mine.put.items()):
        now = state.get(key)
        if run == mine.run or (own and now == value):  # put just now; or no message came
            continue
        if now == before != value:
            state[key] = value
        else:  # the browser has it, or the user has chosen
            del mine.put[key]


def _controls() -> _Controls:
    return st.session_state.setdefault("controls", _Controls())


def _note_shown(mine: _Controls) -> None:
    context = get_script_run_ctx()
    if context is not None and not context.session_state.is_new_state_value(_RAN):
        mine.shown = _keys(context.session_state._state._new_widget_state)


def _set_but(drawn: set[str]) -> None:
    state = st.session_state
    for key in [k for k in state if str(k).startswith("keep_") and k not in drawn]:
        state[key] = state[key]


def _keys(ids: Iterable[str]) -> set[str]:
    return {key for key in map(user_key_from_element_id, ids) if key is not None}
