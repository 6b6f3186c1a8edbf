"""The tour: ten screens from a trace to a timing, with a card that says what to see on each."""

import streamlit as st

from relascope.viz.panels.presenting import present
from relascope.viz.panels.shell import keeping
from relascope.viz.panels.tour.stops import STOPS
from relascope.viz.sessions import store
from relascope.viz.sessions.state import Session

_NAME = "tour"  # of the address's parameter, and in the state of the id of the tour's session
_BEFORE = "tour_before"


def button(relay: bool) -> None:
    """The button that begins the tour, which needs a TVM with Relay."""
    st.button(
        "Tour",
        key="tour_begin",
        icon=":material/explore:",
        width="stretch",
        on_click=_go,
        args=(1,),
        disabled=not relay,
        help="Ten screens, from a trace to a timing."
        if relay
        else "The tour is in Relay, and there is no TVM with Relay here.",
    )


def show() -> None:
    """Draw the card of the stop that the tour is at; nothing where there is no tour."""
    number = _number()
    if not number:
        return
    stop = STOPS[number - 1]
    with st.container(key="tour", border=True):
        words, buttons = st.columns([4, 1.2], vertical_alignment="center")
        words.markdown(f"**{number} of {len(STOPS)}: {stop.title}.** {stop.words}")
        words.markdown(f"*Try:* {stop.do}")
        with buttons.container(horizontal=True, horizontal_alignment="right"):
            st.button(
                "Back", key="tour_back", on_click=_go, args=(number - 1,), disabled=number < 2
            )
            if stop.show:
                st.button("Present", key="tour_show", on_click=present, args=(True,))
            if number < len(STOPS):
                st.button("Next", key="tour_next", type="primary", on_click=_go, args=(number + 1,))
            st.button("End", key="tour_end", on_click=_end)


def arrive() -> None:
    """On a page that was opened at a stop: go there."""
    if _number() and _NAME not in st.session_state:
        _go(_number())


def _number() -> int:
    """The stop that the address says, counted from 1; 0 where there is no tour."""
    text = st.query_params.get(_NAME, "")
    return int(text) if text.isdecimal() and 1 <= int(text) <= len(STOPS) else 0


def _go(number: int) -> None:
    """Show a stop; what was looked at before the tour is kept for its end."""
    state = st.session_state
    if _NAME not in state:
        state[_NAME], state[_BEFORE] = store.new_id(), keeping.now()
    st.query_params[_NAME] = str(number)
    keeping.go_to(STOPS[number - 1].session(), state[_NAME])


def _end() -> None:
    state = st.session_state
    ident, session = state.pop(_BEFORE, ("", None))
    state.pop(_NAME, None)
    st.query_params.pop(_NAME, None)
    keeping.go_to(session or Session(), ident or store.new_id())
