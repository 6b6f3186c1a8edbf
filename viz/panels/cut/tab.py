"""Tab "Gradient & cut": the joint graph, the tensors from forward to backward, and the split."""

from functools import partial

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.jobs.cut import joint_graph
from relascope.viz.component.views import graph_view, panes, selected_of
from relascope.viz.handed_on.parts import cut_tab, overview
from relascope.viz.panels import handing_on, presenting
from relascope.viz.panels.cut import captures, frontier
from relascope.viz.panels.shell import cut_choice
from relascope.viz.panels.shell.cut_choice import choice_of, screen_cut
from relascope.viz.panels.shell.frame import boundary, one_of, show_error, strip
from relascope.viz.panels.shell.holding import put
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows import tables

_VIEWS = ("Joint", "Forward", "Backward")


def show(screen: Screen) -> None:
    if not screen.training:
        _invite()
        return
    # Choices stay on the page while the engine works: a click on an element that goes away is lost.
    pane, picture = panes("cut", "Cut")
    with pane:
        cut_choice.strategy(screen)
        details = st.container()
        view = one_of("Graph", _VIEWS, "keep_cut_view", width="stretch")
        figures = st.container()
    joint = None
    with picture, boundary(screen.cache, picture=True):
        screen.cache.ask("load", screen.source)
        joint = joint_graph(screen.cache.ask, screen.source, screen.pipeline)
    if joint is None:
        return
    with details:
        cut_choice.controls(screen)
    try:
        cut, coloured = screen_cut(screen)
    except EngineError as error:
        show_error(error)
        captures.undo(screen, joint)
        return
    selected = selected_of(captures.VIEW)
    node_id = selected if selected in joint.by_id else None
    # First the graph, which the reader waits for, then the rest.
    with picture, boundary(screen.cache, picture=True):
        opened = screen.derive(lambda: overview(coloured), "overview")
        if view == _VIEWS[0]:
            look = screen.view(
                open_groups=opened,
                highlight=captures.highlight(cut, node_id),
                card=captures.card(screen, cut, node_id),
                act=partial(captures.act, screen),
                **presenting.view(screen, cut),
            )
            graph_view(coloured, look, key=captures.VIEW)
        else:
            split = screen.cache.ask("split", screen.source, screen.pipeline, cut.marked)
            part = split.forward if view == _VIEWS[1] else split.backward
            roles = {n.id: n.role for n in coloured}
            half = screen.derive(lambda: part.with_roles(roles), "coloured", view, cut.marked)
            look = screen.view(open_groups=opened, among=(coloured,), keep_places={})
            graph_view(half, look, key=f"{view}_view")
    key = "cut_document", choice_of(screen), cut.joint.measured, frozenset(cut.joint.peaks.items())
    document = screen.derive(lambda: tables.cut_document(cut), *key)
    with figures:
        strip(*tables.cut_figures(document))
        frontier.measure_it(screen, document)
        if document["cap"]:
            st.caption(document["cap"])
        if node_id is None:
            st.caption(captures.HINT)
        captures.undo(screen, joint, cut)
    with pane:
        frontier.show(screen, cut)
        cut_choice.prices()
        handing_on.button(
            screen,
            "cut",
            {"joint": coloured},
            lambda file: cut_tab(file, cut, screen.view(620, open_alone=None)),
            "the cut, with its frontier,",
        )
    captures.show(cut, document, node_id)
    frontier.show_measured(screen)
    with pane:
        frontier.ask_torch_saved(screen)
        cut_choice.ask_prices(screen)


def _invite() -> None:
    st.markdown(
        "The gradient belongs to training: dropout becomes a mask input, every output gets a "
        "`grad_out`, and the graph computes the gradient of each input and parameter."
    )
    train = partial(put, "keep_mode", "Training")
    st.button("Switch to training", type="primary", key="to_training", on_click=train)
