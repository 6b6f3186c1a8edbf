"""Part of the gradient's tab: why each tensor is saved or not, and forcing one by hand."""

import streamlit as st

from relascope.core.graph import Graph
from relascope.passes.cuts.cut import Cut
from relascope.viz.component.views import picking
from relascope.viz.drawing.drawing import Card
from relascope.viz.panels.shell import cut_choice
from relascope.viz.panels.shell.frame import heading, plain_text, side_by_side
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import clicked, grid, picked, show_sections
from relascope.viz.rows import Row, formats, tables
from relascope.viz.rows.memory import live_at, live_section
from relascope.viz.rows.sections import Section

VIEW = "joint_view"
"""Key of the joint graph's view, whose selection is the chosen tensor, in the tables as well."""


def show(cut: Cut, document: Row, node_id: str | None) -> None:
    """Draw the tables with the chosen node's row, the bytes of each capture, and the memory over
    the step; a click there lists the tensors held at that node instead of those at the peak."""
    from relascope.viz.charts import charts  # pandas, not with the page

    sections = tables.cut_sections(document)
    *listed, at_peak = (s for s in sections if s["kind"] == "table")
    held, *others = (s for s in sections if s["kind"] == "chart")
    chart_key = f"held_chart_{cut.strategy}_{cut.bytes}_{cut.peak_bytes}"
    words, pictures = side_by_side("captures", [5, 3])
    with pictures:
        heading(held["title"])
        drawn = charts.drawn(held)
        st.altair_chart(drawn, key=chart_key, on_select="rerun", selection_mode=[charts.CLICKED])
        st.caption(f"{held['note']} Click to list what is held there.")
        show_sections(others, "cut_chart")
    if told := clicked(chart_key, charts.CLICKED):
        at_peak = live_section(live_at(cut, int(told["node"])), peak=False)
    with words:
        keys = "captures_table", "spared_table", "held_table"
        for key, section in zip(keys, (*listed, at_peak), strict=True):
            if section["rows"] or key == keys[0]:
                heading(section["title"])
                _table(key, section, node_id)
                if section["note"]:
                    st.caption(section["note"])


def _table(key: str, section: Section, node_id: str | None) -> None:
    ids = section["ids"]
    rows = [ids.index(node_id)] if node_id in ids else []
    if picked(key, len(ids)) != next(iter(rows), None):
        st.session_state[key] = {"selection": {"rows": rows, "columns": [], "cells": []}}
    grid(section["rows"], key=key, on_pick=picking(VIEW, ids), signs="what", wide={"why": "large"})


def act(screen: Screen, node_id: str, action: str) -> None:
    """Force a tensor, or all of its equals, by a button on its card."""
    way = action.removesuffix(_ALL)
    cut_choice.force(
        screen, [node_id] if way == action else cut_choice.screen_joint(screen).alike[node_id], way
    )


HINT = (
    "Click a tensor in the graph, or a row below, to see why it is saved or not and to force it; "
    "the strategy chooses the rest."
)
_DONE = {cut_choice.SAVE: "saved", cut_choice.RECOMPUTE: "computed again"}
_ALL = "_all"
"""Suffix of an action's name: in all equal layers."""


def undo(screen: Screen, graph: Graph, cut: Cut | None = None) -> None:
    """List the choices by hand, each with a button to undo it, and those without effect."""
    forced = cut_choice.forced_by_hand(screen)
    if not forced:
        return
    rule = cut_choice.choice_of(screen).rule
    if not rule.adapts:
        st.info(f"*{rule.title}* leaves no choice, so choices by hand have no effect now.")
    alike, groups = cut_choice.screen_joint(screen).alike, dict[tuple[str, ...], list[str]]()
    for node_id, way in forced.items():
        groups.setdefault((way, *alike.get(node_id, (node_id,))), []).append(node_id)
    with st.container(horizontal=True, key="forced"):
        for (way, *_), ids in groups.items():
            nodes = [graph.by_id[i] for i in ids if i in graph.by_id]
            modules = ", ".join(n.scope or "the model" for n in nodes) or "the model"
            times = f" × {len(ids)}" if len(ids) > 1 else ""
            st.button(
                f"{plain_text(nodes[0].title if nodes else ids[0])}: {_DONE[way]}{times} ✕",
                key=f"undo_{ids[0]}",
                on_click=cut_choice.force,
                args=(screen, ids, None),
                help=f"In {plain_text(modules)}. Click to let the strategy decide again.",
            )
    for line in tables.idle_lines(cut) if cut else ():
        st.caption(plain_text(line))


def highlight(cut: Cut, node_id: str | None) -> dict[str, str]:
    """Styles of the joint graph's nodes: recomputed ones, and those related to the chosen one."""
    joint, styles = cut.joint, dict.fromkeys(cut.recomputed, "again")
    if node_id is None or not joint.may_be_captured(node_id):
        return styles
    if node_id in cut.ids or node_id in styles:
        instead = cut.reasons.instead(node_id).computed
        styles.update((i, "instead") for i in instead if joint.graph.edges[i])
    readers = next((c.readers for c in cut.captures if c.id == node_id), ())
    styles.update((i, "need") for i in (*cut.reasons.path(node_id), *readers))
    styles.pop(node_id, None)  # it is selected, and keeps its own colour
    return styles


def card(screen: Screen, cut: Cut, node_id: str | None) -> Card | None:
    """The chosen node's standing and reason, with buttons to force it."""
    if node_id is None:
        return None
    graph, choice = cut.joint.graph, cut_choice.choice_of(screen)
    node, standing = graph.by_id[node_id], cut.reasons.standing(node_id)
    lines = [standing.reason]
    path = cut.reasons.path(node_id) if standing.kind in ("captured", "recomputed") else ()
    if len(path) > 2:
        way = " → ".join(graph.by_id[i].title for i in path)
        lines.append(f"Why the backward needs it: {way}.")
    if standing.can_save and standing.kind != "given":
        instead = cut.reasons.instead(node_id)
        nodes = formats.counted(len(instead.computed), "node")
        more = "" if instead.whole else "at least "
        size = f"{formats.size(node.bytes)} if saved; " if len(node.outputs) == 1 else ""
        lines.append(f"{size}{more}{nodes} to recompute if it is not saved.")
    if standing.forced == cut_choice.RECOMPUTE:
        lines.append("Forced by hand to be recomputed.")
    if not (standing.can_save or standing.can_recompute):
        return Card(node_id, lines)
    if not choice.rule.adapts:
        lines.append(f"{choice.rule.title} leaves no choice: choose another strategy to force it.")
    ways = (
        (cut_choice.SAVE, "Save it", standing.can_save),
        (cut_choice.RECOMPUTE, "Compute it again", standing.can_recompute),
    )
    actions = [
        (way, label, able and choice.rule.adapts and standing.forced != way)
        for way, label, able in ways
    ]
    if (count := len(cut.joint.alike.get(node_id, ()))) > 1:
        lines.append(f"The same is in {count} equal layers.")
        actions += [
            (f"{way}{_ALL}", f"{label} × {count}", able and choice.rule.adapts)
            for way, label, able in ways
        ]
    return Card(node_id, lines, actions)
