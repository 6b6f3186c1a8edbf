"""Tab "Side by side": one model in Relay and in Relax, each with its own engine; or the screen and
something else, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from html import escape

import streamlit as st

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, Kind
from relascope.core.operators import category
from relascope.engine.protocol.source import ModelSource
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import gradients, info
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare.align import Alignment, Confidence, Counterpart, MatchedGroup, align
from relascope.viz.component import graph_view
from relascope.viz.drawing.drawing import focus_on, group_of
from relascope.viz.drawing.modules import BACKWARD, FORWARD
from relascope.viz.panels.compared import Marks, against
from relascope.viz.panels.shell import sidebar
from relascope.viz.panels.shell.frame import boundary, heading, one_of, side_by_side, strip
from relascope.viz.panels.shell.request_cache import RequestCache, Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.tab_engines import cache_of_session
from relascope.viz.panels.shell.table import table
from relascope.viz.rows import Row, formats, tables

HEIGHT = 580
_WITH = {"ir": "Relay beside Relax", "other": "Another pipeline, model, file or session"}
_CALLS = (Kind.CALL, Kind.FUNCTION)
_SURE = {Confidence.OPERATOR: "sure", Confidence.NAME: "sure", Confidence.NONE: "none"}


def show(screen: Screen) -> None:
    """Draw the tab."""
    named = _WITH.__getitem__
    kind = one_of("Beside it", list(_WITH), "keep_both_with", format_func=named, hidden=True)
    if kind == "ir":
        _irs(screen)
    else:
        against.of_screen(screen)


def _irs(screen: Screen) -> None:
    """One model in both IRs; the second engine starts now."""
    other = ENGINES[1 - ENGINES.index(screen.ir)]
    caches = {screen.ir: screen.cache, other: cache_of_session(other, sidebar.first_source())}
    keys = {screen.ir: "", other: "_other"}
    words = st.container()
    columns = dict(zip(ENGINES, side_by_side("both", [1, 1]), strict=True))
    steps: dict[str, int] = {}
    graphs: dict[str, Graph] = {}
    missing: dict[str, Waiting | EngineError] = {}
    for ir, column in columns.items():
        with column:
            steps[ir] = _step(screen, ir)
            try:
                graphs[ir] = _graph(caches[ir], screen, ir, steps[ir])
            except (Waiting, EngineError) as problem:
                missing[ir] = problem
    both = _alignment(screen, steps, graphs)
    with words:
        looks = _looks(both)
    for side, ir in enumerate(ENGINES):
        with columns[ir], boundary(caches[ir], keys[ir]):
            if ir in missing:
                raise missing[ir]
            _view(graphs[ir], screen, side, looks[side])
    if both is not None:
        _rows(both, tables.alignment_document(both))


def _step(screen: Screen, ir: str) -> int:
    """Which program to look at: -1 is the imported one."""
    steps = _pipeline(screen, ir).steps
    names = {-1: "as imported"}
    for index, step in enumerate(steps):
        off = "" if step.enabled else " (off)"
        names[index] = f"after {index + 1}. {info(ir, step).title}{off}"
    key = f"keep_both_{ir}_{screen.training}"
    if st.session_state.get(key, -1) not in names:
        st.session_state[key] = -1
    chosen = st.selectbox(
        ir.capitalize(),
        list(names),
        key=key,
        format_func=lambda i: f"{ir.capitalize()} {names[i]}",
        label_visibility="collapsed",
    )
    return -1 if chosen is None else chosen


def _pipeline(screen: Screen, ir: str) -> Pipeline:
    return sidebar.pipeline_of(ir, screen.training, _source(screen, ir).gradient)


def _source(screen: Screen, ir: str) -> ModelSource:
    """The model as one side imports it: an IR without the gradient that was chosen takes TVM's."""
    source = screen.source
    return source if source.gradient in gradients(ir) else replace(source, gradient="tvm")


def _graph(cache: RequestCache, screen: Screen, ir: str, index: int) -> Graph:
    """The program of one side.

    Raises:
        Waiting, EngineError: as `RequestCache.ask`.
    """
    if index < 0:
        imported: Graph = cache.ask("load", _source(screen, ir)).graph
        return imported
    at = replace(screen, source=_source(screen, ir), pipeline=_pipeline(screen, ir), cache=cache)
    return at.graph_after(index)


def _alignment(
    screen: Screen, steps: Mapping[str, int], graphs: Mapping[str, Graph]
) -> Alignment | None:
    """Both graphs held together, or None while one of them is not here."""
    if len(graphs) < len(ENGINES):
        return None
    left, right = (graphs[ir] for ir in ENGINES)
    key = (str(_pipeline(screen, ir).upto(steps[ir])) for ir in ENGINES)
    return screen.cache.derive(
        lambda: align(left, right), "align", screen.source, *steps.values(), *key
    )


# What is chosen. A view tells what is selected in it; what the page itself asked it to select is
# told, too, and must not be taken for a choice.


def _view_key(side: int) -> str:
    return f"both_{ENGINES[side]}"


def _asked_key(side: int) -> str:
    return f"both_asked_{ENGINES[side]}"


def _picked(side: int) -> None:
    """A view's selection changed."""
    state = st.session_state
    selected = (state.get(_view_key(side)) or {}).get("selected")
    if selected is None or selected != state.get(_asked_key(side)):
        state.both_choice = None if selected is None else (side, selected)


def _row_picked() -> None:
    state = st.session_state
    rows = state.both_table["selection"]["rows"]
    state.both_choice = ("row", state.both_origins[rows[0]]) if rows else None


def _looks(both: Alignment | None) -> tuple[Marks, Marks]:
    """What each view shows of the choice, and a sentence on it."""
    choice = st.session_state.get("both_choice")
    if both is None or choice is None:
        _say("Choose a node, a module or a row of the table to see its counterpart.")
        return Marks(), Marks()
    where, what = choice
    if where == "row":
        group = next((g for g in both.groups if (g.scope, g.source) == what), None)
        if group is None:
            _say("What was chosen is in neither program.")
            return Marks(), Marks()
        _say_row(group)
        left, right = (
            Marks(_work(g, nodes), nodes) for g, nodes in zip(both.graphs, group.nodes, strict=True)
        )
        return left, right
    module = group_of(what)
    graph = both.graphs[where]
    if module is not None:
        module = module.removeprefix(BACKWARD).removeprefix(FORWARD)
        found = both.module(where, module)
        _say_found(f"module {module}", "", both, where, found)
        own = Marks()
    elif what in graph.by_id:
        node = graph.by_id[what]
        found = both.counterpart(where, what)
        origin = " of ".join(filter(None, [node.source, node.scope]))
        _say_found(node.title, origin, both, where, found)
        own = Marks(None, both.occurrence(where, what))
    else:
        _say("What was chosen is not in this program.")
        return Marks(), Marks()
    sure = found.confidence in (Confidence.OPERATOR, Confidence.NAME)
    focus = found.focus or (focus_on(found.module) if found.module else None)
    theirs = Marks(focus, found.nodes if sure else ())
    return (theirs, own) if where else (own, theirs)


def _work(graph: Graph, nodes: tuple[str, ...]) -> str | None:
    """The node to look at first: one that does more than move data about, if there is one."""
    calls = (n for n in map(graph.by_id.__getitem__, nodes) if n.kind in _CALLS)
    works = (n.id for n in calls if category(n.op) != "shape")
    return next(works, nodes[0] if nodes else None)


def _view(graph: Graph, screen: Screen, side: int, look: Marks) -> None:
    view = graph_view(
        graph,
        screen.view(
            HEIGHT, details=False, highlight=dict.fromkeys(look.marked, "aligned"), focus=look.focus
        ),
        key=_view_key(side),
        on_select=lambda: _picked(side),
    )
    st.session_state[_asked_key(side)] = view.focus


# Words and rows.


def _say(text: str) -> None:
    st.html(f"<div class='rs-aligned'>{escape(text)}</div>")


def _say_row(group: MatchedGroup) -> None:
    """What the operator of a chosen row became."""
    became = "; ".join(
        f"{ir.capitalize()}: <b>{escape(formats.counts_text(counts))}</b>"
        for ir, counts in zip(ENGINES, group.operators, strict=True)
    )
    where = f" of {escape(group.scope)}" if group.scope else ""
    st.html(f"<div class='rs-aligned'><b>{escape(group.source)}</b>{where} → {became}</div>")


def _say_found(title: str, origin: str, both: Alignment, side: int, found: Counterpart) -> None:
    """What was chosen, what stands for it on the other side, and how sure that is."""
    there = both.graphs[1 - side]
    what = ""
    if found.confidence in (Confidence.OPERATOR, Confidence.NAME):
        titles = Counter(there.by_id[node_id].title for node_id in found.nodes)
        what = formats.counts_text(titles) if titles else ""
    elif found.module:
        what = f"module {found.module}"
    sure = _SURE.get(found.confidence, "part")
    of = f" ({escape(origin)})" if origin else ""
    st.html(
        f"<div class='rs-aligned'><b>{escape(title)}</b>{of} → {ENGINES[1 - side].capitalize()}: "
        f"<b>{escape(what or '–')}</b> "
        f"<span class='rs-sure rs-sure-{sure}'>{found.confidence.value}</span></div>"
    )


def _rows(both: Alignment, document: Row) -> None:
    """What each operator became, and what only one side has."""
    st.session_state.both_origins = [(g.scope, g.source) for g in both.groups]
    heading("What each operator became")
    facts, *listed = tables.alignment_sections(document)
    of_kind = dict(zip(tables.ALIGNED, listed, strict=True))
    named = {kind: section["title"] for kind, section in of_kind.items()}.__getitem__
    kind = one_of("Rows", list(of_kind), "keep_both_rows", format_func=named, hidden=True)
    of = zip(ENGINES, both.graphs, strict=True)
    nodes = ((formats.number(len(graph)), f"{ir.capitalize()} nodes") for ir, graph in of)
    strip(*facts["items"], *nodes)
    more: Row = {}
    if kind == "groups":
        wide = {"Relay": 300, "Relax": 300}
        more = {"key": "both_table", "on_select": _row_picked, "wide": wide}
    table(of_kind[kind]["rows"], **more)
