"""Below the graph of a step: the nodes that it touched with their origins, counts, sizes, text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from relascope.core.graph import Graph, Kind
from relascope.core.identity import Matched
from relascope.viz.compare import changes, text
from relascope.viz.drawing import labels
from relascope.viz.drawing.drawing import Overlay
from relascope.viz.panels.shell.frame import heading, one_of, strip
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import picked, table
from relascope.viz.rows import Row, formats

Derive = Callable[..., Any]
"""What `RequestCache.derive` is."""
VIEWS = ("Nodes", "Operators", "Text")
_WHAT = ("added", "removed", "changed")
_GHOSTS = "keep_show_removed"
_CHOSEN = "change_chosen"  # (place, id of the node that was clicked in the list)


def chosen(place: str) -> str | None:
    """The node that was clicked in the list of this step; None where none was."""
    at, ident = st.session_state.get(_CHOSEN, ("", None))
    return ident if at == place else None


def forget() -> None:
    """No node of the list is chosen any more."""
    st.session_state.pop(_CHOSEN, None)


def picture(derive: Derive, place: str, before: Graph, matched: Matched) -> Graph:
    """The graph to draw: with what was removed, if that is wished or one such node is chosen."""
    if not matched.removed:
        return matched.graph
    if st.session_state.get(_GHOSTS, True) or chosen(place) in matched.removed:
        return with_removed(derive, place, before, matched)
    return matched.graph


def with_removed(derive: Derive, place: str, before: Graph, matched: Matched) -> Graph:
    """The graph after the step with what it removed."""
    graph: Graph = derive(lambda: changes.with_removed(before, matched), "with removed", place)
    return graph


def successors(derive: Derive, place: str, before: Graph, matched: Matched) -> dict[str, str]:
    """For nodes that the step added, one each that it came from: they stand by that one."""
    return {
        r["id"]: r["from"][-1]
        for r in _rows(derive, place, before, matched)
        if r["what"] == "added" and r["from"]
    }


def kernels(fused: Graph) -> list[Overlay]:
    """What a graph's fused functions are coloured by, and what goes into them in earlier graphs.

    Args:
        fused: the graph after a step that fused; one without functions has no such colours.
    """
    names: dict[str, str] = {}
    for node in fused:
        if node.body is not None:
            name = labels.title(node)
            names |= dict.fromkeys((n.id for n in node.body if n.kind is Kind.CALL), name)
            names[node.id] = name
    if not names:
        return []
    return [Overlay("kernel", "Fused kernel", names, none="fused with nothing")]


def _rows(derive: Derive, place: str, before: Graph, matched: Matched) -> list[Row]:
    rows: list[Row] = derive(lambda: changes.change_rows(before, matched), "origins", place)
    return rows


def show(
    derive: Derive,
    place: str,
    before: Graph,
    matched: Matched,
    title: str,
    draw_text: Callable[[], None] | None,
) -> None:
    """Draw the section for a step.

    Args:
        derive: as of a request cache.
        place: names the step and all that it depends on.
        before: the graph that it started from.
        title: of the section.
        draw_text: draws what differs in the text; None where that stands elsewhere.
    """
    heading(title)
    view = one_of("Show", VIEWS if draw_text else VIEWS[:2], "keep_change_view", hidden=True)
    if view == VIEWS[2] and draw_text is not None:
        draw_text()
    elif view == "Operators":
        _operators(derive, place, before, matched.graph)
    else:
        _nodes(derive, place, before, matched)


def _nodes(derive: Derive, place: str, before: Graph, matched: Matched) -> None:
    rows = _rows(derive, place, before, matched)
    if not rows:
        st.caption("It changed no node.")
        return
    row = st.container(horizontal=True, vertical_alignment="center")  # wraps where it is narrow
    wanted = row.text_input(
        "Filter",
        key="change_filter",
        placeholder="Operator, module, or what became of it",
        label_visibility="collapsed",
        width=330,
    )
    counts = {what: sum(r["what"] == what for r in rows) for what in _WHAT}
    which = row.pills(
        "Which",
        [w for w in _WHAT if counts[w]],
        selection_mode="multi",
        key=f"which_{place}",
        format_func=lambda w: f"{counts[w]} {w}",
        label_visibility="collapsed",
        width="content",
    )
    st.session_state.setdefault(_GHOSTS, True)
    row.toggle(
        "Draw what was removed",
        key=_GHOSTS,
        disabled=not matched.removed,
        help="Puts the removed nodes back into the picture, dashed.",
    )
    shown = [
        r for r in rows if (not which or r["what"] in which) and wanted.strip().lower() in _words(r)
    ]
    key = f"changes_{place}"

    def select() -> None:
        row = picked(key, len(shown))
        if row is None:
            forget()
        else:
            st.session_state[_CHOSEN] = (place, shown[row]["id"])
            st.session_state["change"] = -1  # the walk over the changes begins anew

    table(
        shown,
        "what; node: op; where it came from, or went: text; module: scope; id",
        key=key,
        on_select=select,
        signs="what",
        wide={"what": "small", "where it came from, or went": "large"},
    )
    st.caption("Click a row's box to go to the node in the graph.")


def _words(row: Row) -> str:
    return " ".join(str(row[k]) for k in ("op", "scope", "text", "id")).lower()


def _operators(derive: Derive, place: str, before: Graph, after: Graph) -> None:
    was: Row
    now: Row
    was, now = derive(lambda: (changes.figures(before), changes.figures(after)), "figures", place)

    def both(key: str, show: Any) -> str:
        a, b = show(was[key]), show(now[key])
        return a if a == b else f"{a} → {b}"

    strip(
        (both("nodes", formats.number), "nodes"),
        (both("parameter_bytes", formats.size), "parameters"),
        (both("constant_bytes", formats.size), "constants"),
        (both("flops", formats.flops), "FLOPs, estimated"),
    )
    operators = changes.operator_rows(before, after)
    table([{**r, "difference": r["after"] - r["before"]} for r in operators], width="content")


def show_text(screen: Screen, index: int) -> None:
    """The difference of the IR's text, or the whole of it."""
    start = changes.start_of(screen.ir, screen.pipeline, index)
    before: str = screen.cache.ask("text", screen.source, screen.pipeline.upto(start), start)
    after: str = screen.cache.ask("text", screen.source, screen.pipeline.upto(index), index)
    diff: str = screen.cache.derive(
        lambda: text.text_diff(before, after), "text", *screen.upto(index).place
    )
    whole = st.toggle("The whole text after the step", key="keep_whole_text")
    if whole:
        st.code(after, language="rust" if screen.ir == "relay" else "python", height=520)
    elif diff:
        st.code(diff, language="diff", height=520)
    else:
        st.caption("The text did not change.")
