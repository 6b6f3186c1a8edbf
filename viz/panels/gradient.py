"""Tab "Gradient & cut": the joint graph, what crosses from forward to backward, and the split."""

from __future__ import annotations

import streamlit as st

from engine.session import EngineError
from passes import cut as cuts
from passes.catalogue import has_gradient
from passes.cuts.budget import HALF
from viz import charts, tables
from viz.collapse import module_groups
from viz.component import graph_view
from viz.graph import Graph
from viz.panels import two_gradients
from viz.panels.desk import Desk
from viz.panels.frame import (
    boundary,
    heading,
    side_by_side,
    strip,
    switch_to_relay,
    switch_to_training,
)
from viz.panels.screen import Screen

HEIGHT = 560
_VIEWS = ("Joint", "Forward", "Backward")


def show(desk: Desk, screen: Screen) -> None:
    """Draw the tab."""
    if not has_gradient(screen.ir):
        st.markdown("The gradient and the cut are Relay's for now: Relax's passes lead to none.")
        st.button("Switch to Relay", type="primary", on_click=switch_to_relay)
        return
    if not screen.training:
        _invite()
        return
    desk.ask("load", screen.source)
    joint = joint_graph(desk, screen)
    st.session_state.setdefault("keep_cut_view", _VIEWS[0])
    left, right = st.columns([2, 3])
    strategy = left.selectbox(
        "Strategy",
        list(cuts.STRATEGIES),
        key="keep_strategy",
        format_func=lambda name: cuts.STRATEGIES[name].title,
        help="\n\n".join(f"**{s.title}.** {s.summary}" for s in cuts.STRATEGIES.values()),
    )
    view = right.segmented_control("Graph", _VIEWS, key="keep_cut_view", required=True)
    if strategy and cuts.STRATEGIES[strategy].has_budget:
        st.session_state.setdefault("keep_budget", round(100 * HALF))
        left.slider("Budget, % of everything that crosses", 0, 100, key="keep_budget")
    cut, coloured = cut_of(desk, screen, joint, strategy)
    document = tables.cut_document(cut)
    strip(
        [
            (tables.number(len(document["captures"])), "captures"),
            (tables.size(document["bytes"]), "kept for the backward"),
            (tables.number(len(document["masks"])), "dropout masks"),
            (tables.size(document["mask_bytes"]), "of masks, kept by the caller"),
            (tables.number(len(document["recomputed"])), "nodes recomputed"),
            (
                tables.work_text(document["recomputed_flops"], document["forward_flops"]),
                "of the forward's FLOPs again",
            ),
        ]
    )
    with boundary(desk):
        if view == _VIEWS[0]:
            graph_view(
                coloured, key="joint_view", height=HEIGHT, fewer_than=screen.fewer_than,
                focus=_chosen_capture(document), open_groups=_overview(coloured),
            )  # fmt: skip
        else:
            split = desk.ask("split", screen.source, screen.pipeline, cut.ids)
            graph_view(
                split.forward if view == _VIEWS[1] else split.backward,
                key=f"{view}_view", height=HEIGHT, fewer_than=screen.fewer_than,
            )  # fmt: skip
    _captures(document)
    two_gradients.show(desk, screen)


def joint_graph(desk: Desk, screen: Screen) -> Graph:
    """The graph at the end of the training pipeline.

    Raises:
        EngineError: kind "usage", where the pipeline takes no gradient.
    """
    graph: Graph = desk.ask("graph_after", screen.source, screen.pipeline, screen.last)
    if graph.forward_outputs is None:
        raise EngineError(
            "usage", "There is no gradient to cut: the pipeline does not take one.",
            str(screen.pipeline), "Go back to the default pipeline in the tab Passes.",
        )  # fmt: skip
    return graph


def cut_of(
    desk: Desk, screen: Screen, joint: Graph, strategy: str | None
) -> tuple[cuts.Cut, Graph]:
    """The cut of a strategy (None: the first), and the joint graph in its colours."""
    name = strategy or next(iter(cuts.STRATEGIES))
    budget = budget_chosen(name)

    def make() -> tuple[cuts.Cut, Graph]:
        cut = cuts.cut(joint, name, budget)
        return cut, joint.with_roles(cuts.roles(joint, cut.ids))

    return desk.derive(make, "cut", screen.source, str(screen.pipeline), name, budget)


def budget_chosen(strategy: str) -> float | None:
    """The slider's fraction, or None where the strategy has no budget."""
    if not cuts.STRATEGIES[strategy].has_budget:
        return None
    percent: int = st.session_state.get("keep_budget", round(100 * HALF))
    return percent / 100


def _invite() -> None:
    st.markdown(
        "The gradient belongs to training: dropout becomes a mask input, every output gets a "
        "`grad_out`, and the graph computes the gradient of each input and parameter."
    )
    st.button("Switch to training", type="primary", key="to_training", on_click=switch_to_training)


def _overview(joint: Graph) -> tuple[str, ...]:
    """Groups to open so that forward, backward and what crosses fit into one look."""
    tree = module_groups(joint)
    for boxes in (60, 120, 240):
        if opened := tree.open_at_first(everything_up_to=60, else_up_to=boxes):
            return opened
    return ()


def _chosen_capture(document: tables.Row) -> str | None:
    """The node whose row is chosen in the table of captures."""
    event = st.session_state.get("captures_table")
    rows = event["selection"]["rows"] if event else []
    captures = document["captures"]
    return captures[rows[0]]["id"] if rows and rows[0] < len(captures) else None


def _captures(document: tables.Row) -> None:
    table, chart = side_by_side("captures", [5, 3])
    with table:
        heading("Captures")
        st.dataframe(
            [
                {
                    "name": c["name"],
                    "shape": tables.shape_text(c["shape"]),
                    "dtype": c["dtype"],
                    "bytes": c["bytes"],
                    "made in": c["scope"],
                    "from": c["source"],
                    "why": c["reason"],
                    "read in the backward by": ", ".join(c["reader_labels"]),
                }
                for c in document["captures"]
            ],
            hide_index=True,
            key="captures_table",
            on_select="rerun",
            selection_mode="single-row",
            column_config={"bytes": st.column_config.NumberColumn(format="localized")},
        )
    with chart:
        heading("Bytes")
        st.altair_chart(charts.capture_bytes(document["captures"]), key="capture_chart")
