"""Below a step's graph: the nodes that it touched with their origins, counts, sizes, text."""

import time
from collections.abc import Callable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind
from relascope.viz.compare import text
from relascope.viz.compare.changes import Program
from relascope.viz.component.views import picking, select, selected_of, small
from relascope.viz.drawing import labels
from relascope.viz.drawing.drawing import Overlay
from relascope.viz.panels.shell.frame import heading, one_of, strip
from relascope.viz.panels.shell.holding import ask
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import clicked, grid, show_sections
from relascope.viz.rows import Row, packed
from relascope.viz.rows.memory import memory_sections
from relascope.viz.rows.step_list import CHANGED, StepChange

CHANGES, TEXT = "Changes", "Text"
_WHAT = ("added", "removed", "changed")
_GHOSTS = "keep_show_removed"
_SENT, _WHOLE = "step_text_sent", "keep_types"
_WHOLE_HELP = "What Relay's text adds to the program: each value's type, its source and its device."


def keeps_layout(place: DeltaGenerator) -> bool:
    """Draw the switch; whether nodes stay in place in the next drawing."""
    about = "Nodes that a pass keeps stay in place. If off, each graph is laid out by itself: "
    about += "tidier, but nodes jump."
    kept: bool = ask(place.toggle, "Keep the layout", value=True, key="keep_layout", help=about)
    return kept


def graph_of(screen: Screen, of: Program) -> Graph | None:
    """The graph of a program, or None if a recording has none; raises as `RequestCache.ask`."""
    if of[1] < 0:
        return screen.cache.ask("load", screen.source).graph
    try:
        return screen.cache.ask("graph_after", screen.source, *of)
    except EngineError as error:
        if error.kind != "graph":
            raise
        return None


def change_of(screen: Screen, sides: tuple[Program, Program]) -> StepChange | None:
    """What a step did to the graph, or the only graph of both; None if there is none."""
    before, after = (graph_of(screen, side) for side in sides)
    graph = before if after is None else after
    if graph is None:
        return None
    old = None if after is None or before is after else before

    def make() -> StepChange:
        change = StepChange.between(old, graph, f"{screen.source} {sides[1][0]}")
        if screen.recorded and old is not None:
            # The next step is compared with this graph, so nodes keep their ids and places.
            screen.recorded.keep(change.matched.graph, screen.source, *sides[1])
        return change

    return screen.cache.derive(make, "change", screen.ir, screen.source, *sides)


def texts(screen: Screen, sides: tuple[Program, Program], whole: bool) -> str:
    """The texts around a step for `show_text`; with `whole`, all of Relay's text."""
    before, after = (screen.cache.ask("text", screen.source, *side) for side in sides)

    def make() -> str:
        same = "The text is the same." if before == after or whole else text.ASIDE
        old, new = (side if whole else text.brief(side) for side in (before, after))
        return packed(text.diff_data(text.stretches_of(old, new), same), 1)

    return screen.cache.derive(make, "texts", screen.ir, screen.source, *sides, whole)


def picture(change: StepChange, view: str) -> Graph:
    """The graph to draw: with removed nodes if requested, or if one is selected."""
    if st.session_state.get(_GHOSTS, True) or selected_of(view) in change.matched.removed:
        return change.with_removed
    return change.matched.graph


def kernels(fused: Graph) -> list[Overlay]:
    """The colours of a graph's fused functions, and of their nodes in earlier graphs."""
    names: dict[str, str] = {}
    for node in fused:
        if node.body is not None:
            name = labels.title(node)
            names |= dict.fromkeys((n.id for n in node.body if n.kind is Kind.CALL), name)
            names[node.id] = name
    if not names:
        return []
    return [Overlay("kernel", "Fused kernel", names, none="fused with nothing")]


def show(change: StepChange, view: str, title: str) -> None:
    """Draw the plan of memory after a step, if there is one, and under a title, unless it is "",
    what changed. A click on a row selects its node in the view with the key `view`."""
    if change.memory is not None:
        memory(change.memory, change.place, view)
    if not title:
        return
    heading(title)
    if one_of("Show", ("Nodes", "Operators"), "keep_change_view", hidden=True) == "Operators":
        strip(*change.figures)
        grid(change.operators, width="content")
    else:
        _nodes(change, view)


def _nodes(change: StepChange, view: str) -> None:
    rows, place = change.rows, change.place
    if not rows:
        st.caption("It changed no node.")
        return
    row = st.container(horizontal=True, vertical_alignment="center")  # wraps where it is narrow
    wanted = row.text_input(
        "Filter",
        key="change_filter",
        placeholder="Operator, module, or what happened to it",
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
    none, about = not change.matched.removed, "Draws the removed nodes, too, dashed."
    ask(row.toggle, "Draw what was removed", value=True, key=_GHOSTS, disabled=none, help=about)
    sought = wanted.strip().lower()
    rows = [r for r in rows if not which or r["what"] in which]
    words = (" ".join(str(r[k]) for k in ("op", "scope", "text", "id")).lower() for r in rows)
    shown = [r for r, text in zip(rows, words, strict=True) if sought in text]
    grid(
        shown,
        CHANGED,
        key=f"changes_{place}",
        on_pick=picking(view, [r["id"] for r in shown]),
        signs="what",
        wide={"what": "small", "where it came from, or went": "large"},
    )
    st.caption("Click a row's box to go to the node in the graph.")


def show_text(relay: bool, data_of: Callable[[bool], str], place: DeltaGenerator) -> None:
    """Draw two texts, as of `texts`; `place` has the switch for the whole text of Relay's."""
    data = data_of(relay and ask(place.toggle, "Types and places", key=_WHOLE, help=_WHOLE_HELP))
    sent: Row = st.session_state.get(_SENT) or {}
    if sent.get("texts") != data:  # the time, because messages to a new component may overtake
        sent = st.session_state[_SENT] = {"texts": data, "sent": time.time()}
    small("text_diff")(key="step_text", data=sent)


_MEMORY = "memory_chart"


def memory(document: Row, place: str, view: str) -> None:
    """The memory plan after a step: storages over its steps. A click goes to the node."""
    from relascope.viz.charts import charts  # pandas, not with the page

    *said, chart, tensors = memory_sections(document)
    heading(chart["title"])
    show_sections(said, "memory")

    def go() -> None:
        mark = clicked(_MEMORY, charts.CLICKED)
        select(view, mark["id"] if mark else "")

    plan, modes = charts.storages(document, clickable=True), [charts.CLICKED]
    st.altair_chart(plan, key=_MEMORY, on_select=go, selection_mode=modes)
    st.caption(f"{chart['note']} Click a bar to go to the node that writes it.")
    with st.expander(f"{len(tensors['rows'])} tensors"):
        grid(tensors["rows"], key=f"tensors_{place}", on_pick=picking(view, tensors["ids"]))
