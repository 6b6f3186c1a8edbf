"""The page: a sidebar that says what to look at, and one tab per job. Run `streamlit run app.py`.

This file only composes panels. It imports no TVM and no torch: engines live in child processes.
"""

from __future__ import annotations

import streamlit as st

from relascope.core.errors import EngineError
from relascope.core.place import check_python
from relascope.engine.limits import of_page
from relascope.engine.relay.tvm.find import available
from relascope.passes.catalogue.user import VARIABLE, enter_named
from relascope.viz.panels import code, cut, graph, side_by_side, steps, time
from relascope.viz.panels.shell import sidebar
from relascope.viz.panels.shell.frame import boundary, show_error, style, waiting
from relascope.viz.panels.shell.spare import desk_of_session

TABS = {
    "Graph": graph.show,
    "Passes": steps.show,
    "Gradient & cut": cut.show,
    "Compile & time": time.show,
    "Side by side": side_by_side.show,
    "In your code": code.show,
}


def main() -> None:
    """Draw the page once."""
    st.set_page_config("relascope", layout="wide")
    style()
    state = st.session_state
    for key in [k for k in state if str(k).startswith("keep_")]:
        state[key] = state[key]  # what is typed in one tab outlives a look at another
    state.progress_shown = []
    try:
        check_python()
        enter_named()
        of_page()
    except EngineError as error:
        show_error(error)
        return
    except ValueError as wrong:
        show_error(EngineError("usage", f"{wrong}.", VARIABLE, "Start the page with another file."))
        return
    with st.sidebar:
        ir = sidebar.choose_ir(available())
        desk = desk_of_session(ir, sidebar.first_source())
        screen = sidebar.show(desk, ir)
        status = st.container()
    tabs = st.tabs(list(TABS), key="keep_tab", on_change="rerun")
    for tab, show in zip(tabs, TABS.values(), strict=True):
        if tab.open and screen is not None:
            with tab, boundary(desk):
                show(screen)
    with status:
        if desk.running is not None:
            waiting(desk)
        else:
            sidebar.engine_status(desk)


if __name__ == "__main__":  # as `relascope` has it run
    main()
