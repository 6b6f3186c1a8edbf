"""A tab's button "Hand on": its graph in any format; the tab, or the whole session, as a page."""

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from relascope.core.graph import Graph
from relascope.viz.handed_on.formats import FORMATS, graph_file
from relascope.viz.handed_on.parts import sheet_of
from relascope.viz.handed_on.recorded import head_of, recording_sheet
from relascope.viz.handed_on.session import session_sheet
from relascope.viz.handed_on.sheet import Sheet
from relascope.viz.panels.shell import keeping
from relascope.viz.panels.shell.cut_choice import measured_peaks
from relascope.viz.panels.shell.frame import boundary, download
from relascope.viz.panels.shell.holding import pressed
from relascope.viz.panels.shell.screen import Screen


def button(
    screen: Screen,
    key: str,
    graphs: Mapping[str, Graph],
    page: Callable[[Sheet], Sheet] | None = None,
    what: str = "",
) -> None:
    """Draw the button that opens the formats; `page`, which may wait, makes a page of `what`."""
    with st.popover("Hand on", icon=":material/ios_share:"):
        if page is not None:

            def tab() -> Sheet:
                version, pipeline = screen.cache.ask("describe").version, str(screen.pipeline)
                return page(sheet_of(screen.source, screen.label, screen.ir, version, pipeline))

            _page(screen, key, tab, what, str(screen.place))
        if screen.recorded:
            whole, place = partial(recording_sheet, screen.recorded.recording), screen.source.digest
            _page(screen, key, whole, "all passes, what each changed, and times", place)
        else:
            session, of = keeping.so_far(screen), (screen.source, measured_peaks(screen))
            whole = partial(session_sheet, screen.cache.ask, session, *of)
            _page(screen, f"{key}_session", whole, "all of the session", session.text())
        for name, graph in graphs.items():
            st.caption(f"The {name} graph, {len(graph)} nodes")
            stem = f"{screen.label}-{name}".replace("/", "-")
            row = st.container(horizontal=True)
            for ending, about in FORMATS.items():
                made = partial(_file, screen, ending, graph)
                label, at = ending[1:].split(".")[0].upper(), f"{key}_{name}_{ending}"
                download(label, made, f"{stem}{ending}", at, row, help=about)


def _file(screen: Screen, ending: str, graph: Graph) -> bytes:
    about, its = (screen.source, screen.label, screen.ir), screen.recorded
    head = partial(sheet_of, *about) if its is None else partial(head_of, its.recording)
    return graph_file(ending, graph, screen.view(620, open_alone=None), sheet=head)


def _page(screen: Screen, key: str, page: Callable[[], Sheet], what: str, place: str) -> None:
    """A page, made on request, and again if `place` changes."""
    state = st.session_state
    if state.get(f"{key}_page_of") != place:
        if not pressed(f"Put {what} into one page", f"{key}_page", width="stretch"):
            return
        state[f"{key}_page_of"] = place
    with boundary(screen.cache, f"{key}_page"):
        made = screen.derive(lambda: page().html().encode(), "page", key, place)
        name = f"{screen.label}-{key}.html".replace("/", "-")
        label = f"Download the page ({len(made) / 1e6:.1f} MB)"
        download(label, made, name, f"{key}_page_file", width="stretch")
