"""A tab's button "Hand on": its graph in any format; the tab, or the whole session, as a page."""

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from relascope.core.graph import Graph
from relascope.recorder.reading import Recording
from relascope.viz.handed_on.formats import FORMATS, Appearance, graph_file
from relascope.viz.handed_on.parts import graph_tab, sheet_of
from relascope.viz.handed_on.recorded import recording_sheet
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
    page: Callable[[Sheet], None] | None = None,
    what: str = "",
) -> None:
    """Draw the button, which opens the formats. `page`, which may wait for the engine, puts more
    than the named graphs into a page; `what` describes it."""
    with st.popover("Hand on", icon=":material/ios_share:"):
        if page is not None:

            def tab() -> Sheet:
                version, pipeline = screen.cache.ask("describe").version, str(screen.pipeline)
                file = sheet_of(screen.source, screen.label, screen.ir, version, pipeline)
                page(file)
                return file

            _page(screen, key, tab, what, str(screen.place))
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


def of_recording(recording: Recording) -> None:
    """The same button for a whole recording."""

    def page() -> bytes:
        return recording_sheet(recording).html().encode()

    with st.popover("Hand on", icon=":material/ios_share:"):
        st.caption("All passes, what each changed, and times")
        help_ = "One page that needs no server. Writing one for a large compile takes some seconds."
        download("HTML", page, f"{recording.path.stem}.html", "recorded_page", help=help_)


def _file(screen: Screen, ending: str, graph: Graph) -> bytes:
    view = screen.view(620, open_alone=None)

    def page() -> Sheet:
        file = sheet_of(screen.source, screen.label, screen.ir)
        graph_tab(file, graph, view)
        return file

    return graph_file(ending, graph, Appearance(view, sheet=page))


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
