"""What could be faster: the findings of the linters, with the passes that remove them."""

from functools import partial

import streamlit as st

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.protocol.profile import Profile
from relascope.engine.protocol.request import BuildRequest
from relascope.passes.lint import LINTERS
from relascope.passes.lint.remedies import with_remedy
from relascope.viz.component.views import graph_view
from relascope.viz.panels.shell import sidebar
from relascope.viz.panels.shell.frame import boundary, section, strip
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import grid, show_sections
from relascope.viz.rows import Row, formats
from relascope.viz.rows.profile import findings, lint_document, lint_sections


def show(screen: Screen, request: BuildRequest) -> None:
    """Draw the section: a button, the hazards, each finding, and the chosen one in the graph."""
    about = (
        "Looks through the program for transposed copies, layout changes, casts, constant work, "
        "duplicates, unfused chains, tiny kernels and the like, and names the pass that removes "
        "each."
    )
    if section("What could be faster?", "Look for it", "lint", about, screen.place):
        with boundary(screen.cache, "_lint"):
            _show(screen, request)


def _show(screen: Screen, request: BuildRequest) -> None:
    profile, document, graph = _found(screen, request)
    if not document["findings"]:
        st.success(f"None of the {len(LINTERS)} linters finds anything.")
        return
    costs, _, places = lint_sections({**document, "measured": profile is not None})
    show_sections([costs], "lint")
    if profile is None:
        st.caption("*Time each kernel* measures them.")
    for index, hazard in enumerate(document["hazards"]):
        _hazard(screen, hazard, index)
    chosen_rows = grid(places["rows"], key="hazard_table", on_select="rerun")
    if not chosen_rows:
        st.caption("Choose a row to see it in the graph.")
        return
    chosen = document["findings"][chosen_rows[0]]
    first, marks = chosen["nodes"][0], dict.fromkeys(chosen["nodes"], "hazard")
    notes, through = {first: chosen["message"]}, ("hazard",)
    look = screen.view(480, highlight=marks, shines_through=through, focus=first, notes=notes)
    graph_view(graph, look, key="hazard_view")


def _found(screen: Screen, request: BuildRequest) -> tuple[Profile | None, Row, Graph]:
    """The profile if known, the findings, and their graph."""
    try:
        profile: Profile | None = screen.cache.peek("profile", request)
    except EngineError:
        profile = None  # the section of kernels shows why
    graph = screen.graph_after(screen.built)
    kernels = None
    if profile is None:
        kernels = screen.cache.ask("kernels", screen.source, screen.pipeline, True)

    def document() -> Row:
        return lint_document(findings(graph, kernels, profile, request.target))

    return profile, screen.derive(document, "lint", request, profile is not None), graph


def _hazard(screen: Screen, hazard: Row, index: int) -> None:
    words, button = st.columns([5, 1.6], vertical_alignment="center")
    with words:
        count = hazard["found"]
        strip(
            (hazard["title"], ""),
            (str(count), "place" if count == 1 else "places"),
            (f"{'' if hazard['measured'] else 'about '}{hazard['ms']:.3g} ms", ""),
            *([(formats.size(hazard["bytes"]), "moved")] if hazard["bytes"] else []),
        )
    remedy = hazard["remedy"]
    if remedy is None:
        button.caption("No pass removes it.")
        return
    new = with_remedy(screen.ir, screen.pipeline, remedy)
    label, add = f"Add {remedy}", partial(sidebar.set_pipeline, screen, new)
    about = f"{LINTERS[hazard['hazard']].summary} The pipeline becomes {new}."
    button.button(label, key=f"remedy_{index}", width="stretch", on_click=add, help=about)
