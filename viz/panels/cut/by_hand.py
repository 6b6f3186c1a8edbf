"""In the tab of the gradient: why the chosen tensor is saved or not, and forcing it by hand."""

from __future__ import annotations

import streamlit as st

from relascope.core.graph import Graph, Node
from relascope.passes.cuts import cut as cuts
from relascope.viz.panels.shell.cut_choice import RECOMPUTE, SAVE, chosen, force, forced_by_hand
from relascope.viz.panels.shell.frame import plain_text, strip
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.rows import formats

_DONE = {SAVE: "saved", RECOMPUTE: "computed again"}


def show(screen: Screen, cut: cuts.Cut, node_id: str | None) -> None:
    """Draw what becomes of the chosen node, with the buttons that force it."""
    graph = cut.joint.graph
    if node_id is None:
        st.caption(
            "Click a tensor in the graph, or a row below, to see why it is saved or not and to "
            "force it; the strategy chooses the rest around it."
        )
    else:
        _chosen(screen, cut, graph.by_id[node_id])
    undo(screen, graph)


def undo(screen: Screen, graph: Graph) -> None:
    """List what is forced by hand, each with a button that takes it back."""
    forced = forced_by_hand(screen)
    if not forced:
        return
    rule = chosen(screen).rule
    if not rule.adapts:
        waits = "so what is forced by hand waits for another strategy"
        st.info(f"*{rule.title}* leaves no choice, {waits}.")
    with st.container(horizontal=True, key="forced"):
        for node_id, way in forced.items():
            node = graph.by_id.get(node_id)
            module = plain_text((node and node.scope) or "the model")
            st.button(
                f"{plain_text(node.title if node else node_id)}: {_DONE[way]} ✕",
                key=f"undo_{node_id}",
                on_click=force,
                args=(screen, node_id, None),
                help=f"In {module}. Leave it to the strategy again.",
            )


def highlight(cut: cuts.Cut, node_id: str | None) -> dict[str, str]:
    """Styles of the joint graph's nodes: what is computed again, and what hangs on the chosen."""
    joint, styles = cut.joint, dict.fromkeys(cut.recomputed, "again")
    if node_id is None or not joint.may_be_captured(node_id):
        return styles
    saved = node_id in cut.ids
    if saved or node_id in styles:
        instead = cut.reasons.instead(node_id).computed
        styles.update((i, "instead") for i in instead if joint.edges[i])
    readers = next((c.readers for c in cut.captures if c.id == node_id), ())
    styles.update((i, "need") for i in (*cut.reasons.path(node_id), *readers))
    styles.pop(node_id, None)  # it is selected, and keeps its own colour
    return styles


def _chosen(screen: Screen, cut: cuts.Cut, node: Node) -> None:
    graph, choice = cut.joint.graph, chosen(screen)
    standing = cut.reasons.standing(node.id)
    facts = [(node.title, "in " + node.scope if node.scope else "")]
    if len(node.outputs) == 1:
        facts.append((formats.size(node.bytes), "if saved" if standing.can_save else ""))
    instead = cut.reasons.instead(node.id)
    if standing.can_save:
        more = "" if instead.whole else "at least "
        count = len(instead.computed)
        nodes = "node" if count == 1 else "nodes"
        facts.append((f"{more}{count}", f"{nodes} to compute where it is not saved"))
    strip(*facts)
    words = [plain_text(standing.reason)]
    path = cut.reasons.path(node.id) if standing.kind in ("captured", "recomputed") else ()
    if len(path) > 2:
        way = " → ".join(plain_text(graph.by_id[i].title) for i in path)
        words.append(f"The way on which the backward needs it: {way}.")
    if standing.forced == RECOMPUTE:
        words.append("Forced by hand to be computed again.")
    st.markdown(" ".join(words))
    if not (standing.can_save or standing.can_recompute):
        return
    if not choice.rule.adapts:
        st.caption(f"*{choice.rule.title}* leaves no choice: take another strategy to force it.")
    with st.container(horizontal=True, key="force"):
        for way, label, able in (
            (SAVE, "Save it", standing.can_save),
            (RECOMPUTE, "Compute it again", standing.can_recompute),
        ):
            st.button(
                label,
                key=f"force_{way}",
                on_click=force,
                args=(screen, node.id, way),
                disabled=not able or not choice.rule.adapts or standing.forced == way,
            )
