"""The page: a sidebar and one tab per task, composed of panels."""

import streamlit as st

from relascope.core.errors import EngineError, refusing
from relascope.core.place import check_python
from relascope.engine.limits import of_page
from relascope.engine.places import most_of_page
from relascope.engine.relay.tvm.find import available
from relascope.passes.catalogue.user import VARIABLE, enter_named
from relascope.viz import gate
from relascope.viz.component import views as component
from relascope.viz.panels import code, graph, presenting, tour
from relascope.viz.panels.compared import against
from relascope.viz.panels.cut import tab as cut
from relascope.viz.panels.shell import frame, keeping, session_list, sidebar
from relascope.viz.panels.shell.holding import keeping_widget_values
from relascope.viz.panels.shell.opening import zone as opening
from relascope.viz.panels.shell.tab_engines import cache_of_session, settled
from relascope.viz.panels.steps import tab as steps
from relascope.viz.panels.steps.recorded import tab as recorded
from relascope.viz.panels.time import tab as time
from relascope.viz.sessions.state import TABS

_NO_GATE = (
    "The page is served only with a check of its token.",
    "viz/page.py",
    f"Start it with `relascope` or `streamlit run app.py`; {gate.VARIABLE}=off disables that.",
)


@keeping_widget_values()
def main() -> None:
    st.set_page_config("relascope", layout="wide", initial_sidebar_state="collapsed")
    st.html(frame.style())
    component.define()
    frame.begin()
    try:
        check_python()
        if not gate.stands():
            raise EngineError("usage", *_NO_GATE)
        with refusing("usage", "{}.", VARIABLE, "Start the page with another file."):
            enter_named()
        of_page()
        most_of_page()
    except EngineError as error:
        frame.show_error(error)
        return
    settled()
    tour.arrive()
    unread = keeping.arrive()
    presenting.arrive()
    if (path := sidebar.recording()) is not None:
        opening.zone()
        recorded.show(path, unread)
        return
    with st.sidebar:
        sidebar.head()
        no_relay = available()
        ir = sidebar.choose_ir(no_relay)
        cache = cache_of_session(ir, sidebar.sample_source())
        screen = sidebar.show(cache, ir)
        session_list.button()
        opening.recent()
        tour.button(no_relay is None)
        status = st.container()
    if unread:
        with st.container(key="unread"):
            for sentence in unread:
                st.warning(frame.plain_text(sentence))
    if screen is not None:
        keeping.settle(screen)
        frame.looked_at(sidebar.summary_of(screen))
    tour.show()
    above = st.container()
    tabs = st.tabs(list(TABS), key="keep_tab", on_change="rerun")
    shown = graph.show, steps.show, cut.show, time.show, against.show, code.show
    for title, tab, show in zip(TABS, tabs, shown, strict=True):
        if tab.open and screen is not None:
            with tab, frame.boundary(cache, picture=title in keeping.VIEWS):
                show(screen)
            with tab:
                keeping.way_back(screen)
        elif tab.open:
            with tab:
                opening.zone(card=True)
    if screen is not None:
        with above:  # last, because a submodule's calls are known only then
            sidebar.piece(screen)
    with status:
        if cache.running is not None:
            frame.waiting(cache)
        else:
            sidebar.engine_status(cache)
    if screen is not None:
        opening.zone()
        keeping.keep(screen)


if __name__ == "__main__":  # run by `relascope`
    main()
