"""Opening files: dropped anywhere on the page, chosen, or opened again.

The bytes arrive through the sidebar's uploader, into which `drop.js` puts dropped files.
"""

from functools import partial
from pathlib import Path

import streamlit as st

from relascope.core.errors import EngineError
from relascope.viz.component import views as component
from relascope.viz.panels.shell import keeping
from relascope.viz.panels.shell.frame import plain_text, show_error
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.sidebar import CAREFUL, FILE, KINDS
from relascope.viz.sessions import store
from relascope.viz.sessions.state import Session

_MOST = 6  # files opened last that are listed
_REFUSED = "again_refused"  # why a file was not opened


def zone(card: bool = False) -> None:
    """Accept files dropped anywhere; a `card` says so on an empty page."""
    component.small("drop", folder=Path(__file__).parent)(
        key="drop_card" if card else "drop_zone",
        data={"kinds": [list(kind) for kind in KINDS], "card": card, "careful": CAREFUL},
        on_dropped_change=partial(put, "keep_model", FILE),  # whose uploader takes the files
    )


def recent() -> None:
    """The files opened last, each with a button that opens it again."""
    try:
        files = store.files(_MOST)
    except EngineError as error:
        show_error(error)
        return
    if not files:
        return
    if (refused := st.session_state.pop(_REFUSED, None)) is not None:
        show_error(refused)
    with st.expander("Files opened before"):
        for digest, ident, name in files:
            there = store.model_file(digest) is not None
            st.button(
                plain_text(name),
                key=f"again_{digest}",
                width="stretch",
                on_click=_again,
                args=(ident,),
                disabled=not there,
                help="Open it again, with the inputs that it had." if there else None,
            )
            if not there:
                st.caption("No longer on this machine. Choose the file again.")


def _again(ident: str) -> None:
    try:
        found = store.get(ident)
    except EngineError as error:  # for example, kept by another version
        st.session_state[_REFUSED] = error
        return
    if found is not None:
        keeping.go_to(Session(ir=found.ir, model=found.model), store.new_id())
