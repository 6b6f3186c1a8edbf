"""Two runs of passes held against each other: steps, both graphs, and what differs, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st

from relascope.core.graph import Graph
from relascope.viz.compare.match import Matching, Pair, match
from relascope.viz.compare.runs import SURE, ComparedRun, compare, program_document
from relascope.viz.compare.words import KERNELS, kernel_name
from relascope.viz.component import graph_view
from relascope.viz.drawing.drawing import MOST_NODES, View, group_of
from relascope.viz.panels.shell.frame import heading, one_of, plain_text, side_by_side
from relascope.viz.panels.shell.table import picked, show_sections, table
from relascope.viz.rows import Row, formats
from relascope.viz.rows.step_list import programs_beside, side_text, step_differs, steps_beside

HEIGHT = 520
_TABLES = ("Nodes", "Operators", "Kernels")
_PLACES = {"first": "The first difference", "end": "The end"}
_AT, _TABLE, _ALL = "keep_against_at", "keep_against_table", "keep_against_all_steps"
_STEPS = ("against_steps", "against_all_steps")  # the tables of those that differ, and of all
_CHOICE, _OF = "against_choice", "against_of"
_SIDES = ("a", "b")

Derive = Callable[..., Any]
"""What `RequestCache.derive` is."""


@dataclass(frozen=True)
class _Comparison:
    """Two programs held against each other.

    Args:
        place: names them, and all that they depend on.
        outer: of each side, for a node in a fused function the node that is drawn for it.
    """

    place: str
    matching: Matching
    document: Row
    outer: tuple[dict[str, str], dict[str, str]]

    def drawn(self, side: int, ident: str | None) -> str | None:
        """The node that is drawn for one; None for none."""
        return None if ident is None else self.outer[side].get(ident, ident)

    def pair(self, side: int, ident: str) -> Pair | None:
        """The pair that a node of a side is in."""
        matching = self.matching
        return (matching.by_right if side else matching.by_left).get(ident)


def show(a: ComparedRun, b: ComparedRun, derive: Derive, *key: Hashable) -> None:
    """Draw it.

    Args:
        derive: keeps what is made.
        key: names both runs, and all that they depend on.

    Raises:
        Whatever a run raises that is asked for a graph.
    """
    document: Row = derive(lambda: compare(a, b), "compared", *key)
    place = repr(key)
    state = st.session_state
    if state.get(_OF) != place:
        state[_OF] = place
        for gone in (_CHOICE, *_STEPS):
            state.pop(gone, None)
    _say(document["verdict"])
    for side in _SIDES:
        st.caption(plain_text(side_text(side, document[side])))
    at = _place(document)
    _figures_and_graphs(a, b, derive, key, at)


def _say(text: str) -> None:
    st.html(f"<div class='rs-aligned'><b>{escape(text)}</b></div>")


# Steps.


def _place(document: Row) -> tuple[str, int, int]:
    """Which two programs are looked at, in words, with a step of each run; a table to choose."""
    first, end = document["first_difference"], document["end"]
    rows = document["steps"]
    known = [name for name, one in (("first", first), ("end", end)) if one and "counts" in one]
    chosen: Row | None = None
    if rows:
        heading("Steps beside each other")
        differ = [r for r in rows if step_differs(r, first)]
        told, key = (rows, _STEPS[1]) if st.session_state.get(_ALL) else (differ, _STEPS[0])
        row = picked(key, len(told))
        chosen = None if row is None else told[row]
        _steps(told, first, key)
        quiet = len(rows) - len(differ)
        if quiet:
            st.toggle(
                f"Also the {formats.number(quiet)} that both have, and that take as long", key=_ALL
            )
    heading("Programs beside each other")
    where = st.container(horizontal=True, vertical_alignment="center")
    asked = "end"
    if known:
        asked = one_of("Which", known, _AT, where, format_func=_PLACES.__getitem__, hidden=True)
    if chosen is not None:
        before = rows[: rows.index(chosen) + 1]
        i, j = (max((r[s] for r in before if r[s] is not None), default=-1) for s in _SIDES)
        where.caption(plain_text(f"After {chosen['pass']}, as chosen above"))
        return f"after {chosen['pass']}", i, j
    if asked == "first" and first is not None:
        name = first["pass"]
        said = f"After {name}: {first['why']}" if name else first["why"]
        where.caption(plain_text(said))
        return "first", first["a"], first["b"]
    where.caption("After all passes" if rows else "As imported")
    return "end", len(_sides(rows, "a")) - 1, len(_sides(rows, "b")) - 1


def _sides(rows: Iterable[Row], side: str) -> list[int]:
    return [r[side] for r in rows if r[side] is not None]


def _steps(rows: list[Row], first: Row | None, key: str) -> None:
    if not rows:
        st.caption("Both have the same passes; none took much longer in one (run once).")
        return
    table(
        steps_beside(rows, first)["rows"],
        key=key,
        on_select="rerun",
        wide={"pass": "medium", "what differs": "medium"},
        height="auto" if len(rows) < 8 else 290,
    )
    st.caption("Click a row's box to see both programs after that step.")


# Programs.


def _figures_and_graphs(
    a: ComparedRun,
    b: ComparedRun,
    derive: Derive,
    key: tuple[Hashable, ...],
    at: tuple[str, int, int],
) -> None:
    _, i, j = at
    left, right = a.graph(i), b.graph(j)
    if left is None or right is None:
        gone = " and ".join(s.upper() for s, g in zip(_SIDES, (left, right), strict=True) if not g)
        st.caption(f"There is no graph of {gone} here: loops have none, nor have lower levels.")
        return
    place = repr((*key, i, j))
    held: _Comparison = derive(lambda: _held(place, left, right), "held", *key, i, j)
    words = st.container()
    columns = side_by_side("against", [1, 1])
    tables = st.container()
    choice = st.session_state.get(_CHOICE)
    with words:
        looks = _looks(held, choice)
    for side, (column, graph) in enumerate(zip(columns, (left, right), strict=True)):
        with column:
            _view(held, side, graph, looks[side])
    with tables:
        _tables(held)


def _held(place: str, left: Graph, right: Graph) -> _Comparison:
    matching = match(left, right)
    return _Comparison(place, matching, program_document(matching), (_outer(left), _outer(right)))


def _outer(graph: Graph) -> dict[str, str]:
    """For every node in a fused function the node of the graph that it is in."""
    found: dict[str, str] = {}
    for node in graph:
        todo = [node.body] if node.body is not None else []
        while todo:
            for inner in todo.pop():
                found[inner.id] = node.id
                if inner.body is not None:
                    todo.append(inner.body)
    return found


@dataclass(frozen=True)
class Marks:
    """What a view marks and goes to."""

    focus: str | None = None
    marked: tuple[str, ...] = ()


def _view_key(side: int) -> str:
    return f"against_view_{_SIDES[side]}"


def _picked_in(held: _Comparison, side: int) -> None:
    """A view's selection changed; what the page itself asked it to select is no choice."""
    state = st.session_state
    selected = (state.get(_view_key(side)) or {}).get("selected")
    if selected is None or selected != state.get(f"against_asked_{side}"):
        state[_CHOICE] = None if selected is None else (held.place, "node", side, selected)


def _looks(held: _Comparison, choice: Any) -> tuple[Marks, Marks]:
    """What each view shows of the choice, and a sentence on it."""
    if choice is None or choice[0] != held.place:
        if not held.document["nodes"]:
            _told("Choose a node to see both.")
            return Marks(), Marks()
        choice = _row_choice(held, held.document["nodes"][0])
    _, kind, side, what = choice
    if kind == "operator":
        marked = tuple(tuple(_called(g, what)) for g in _graphs(held))
        counts = " and ".join(
            f"{len(ids)} in {s.upper()}" for s, ids in zip(_SIDES, marked, strict=True)
        )
        _told(f"{what}: {counts}")
        left, right = (Marks(ids[0] if ids else None, ids) for ids in marked)
        return left, right
    if group_of(what) is not None:
        _told("Choose a node in the module to see what stands for it on the other side.")
        return Marks(), Marks()
    return _pair_looks(held, side, what)


def _row_choice(held: _Comparison, row: Row) -> tuple[str, str, int, str]:
    """What is chosen by a row of the nodes that differ."""
    side = 0 if row["a"] is not None else 1
    return held.place, "node", side, row[_SIDES[side]]


def _pair_looks(held: _Comparison, side: int, what: str) -> tuple[Marks, Marks]:
    graphs = _graphs(held)
    pair = held.pair(side, what)
    inner = held.outer[side].get(what)
    title = _title(graphs[side], what)
    if pair is None:
        only = _SIDES[side].upper()
        st.html(
            f"<div class='rs-aligned'><b>{escape(title)}</b> is in {only} alone "
            "<span class='rs-sure rs-sure-none'>no counterpart</span></div>"
        )
        own = Marks(held.drawn(side, what), (inner or what,))
        return (Marks(), own) if side else (own, Marks())
    other = pair.left if side else pair.right
    sure = "sure" if pair.sure >= SURE else "part"
    there = _title(graphs[1 - side], other)
    changed = "the same" if pair.same else "changed"
    st.html(
        f"<div class='rs-aligned'><b>{escape(title)}</b> in {_SIDES[side].upper()} → "
        f"<b>{escape(there)}</b> in {_SIDES[1 - side].upper()}, {changed} "
        f"<span class='rs-sure rs-sure-{sure}'>{pair.rule.value}, {100 * pair.sure:.0f} % sure"
        "</span></div>"
    )
    ours, theirs = held.drawn(side, what), held.drawn(1 - side, other)
    looks = Marks(ours, (ours or what,)), Marks(theirs, (theirs or other,))
    return (looks[1], looks[0]) if side else looks


def _told(text: str) -> None:
    st.html(f"<div class='rs-aligned'>{escape(text)}</div>")


def _graphs(held: _Comparison) -> tuple[Graph, Graph]:
    return held.matching.left, held.matching.right


def _title(graph: Graph, ident: str) -> str:
    todo = [graph]
    while todo:
        for node in todo.pop():
            if node.id == ident:
                return f"{node.title} of {node.scope}" if node.scope else node.title
            if node.body is not None:
                todo.append(node.body)
    return ident


def _called(graph: Graph, operator: str) -> Iterable[str]:
    """Ids of the drawn nodes that call an operator or a kernel, in themselves or fused."""
    for node in graph:
        calls = Counter(node.body.operators) if node.body is not None else Counter[str]()
        kernel = kernel_name(node) if node.attrs.get("call") in KERNELS else ""
        if operator in (node.op, kernel, *calls):
            yield node.id


def _view(held: _Comparison, side: int, graph: Graph, look: Marks) -> None:
    if len(graph) > MOST_NODES:
        st.caption(f"{formats.number(len(graph))} nodes are too many to be drawn.")
        return
    matching = held.matching
    style: dict[str, str] = {}
    changed = [p.right if side else p.left for p in matching.changed]
    gone = matching.added if side else matching.removed
    for name, ids in (("changed", changed), ("added" if side else "removed", gone)):
        for ident in ids:
            drawn = held.outer[side].get(ident)
            if drawn is None:
                style[ident] = name
            else:
                style.setdefault(drawn, "changed")
    style |= dict.fromkeys(look.marked, "aligned")
    notes = {}
    for pair in matching.pairs:
        ident = pair.right if side else pair.left
        if not pair.same or pair.sure < SURE:
            notes[ident] = f"{pair.rule.value}, {100 * pair.sure:.0f} % sure"
    view = graph_view(
        graph,
        View(
            HEIGHT,
            details=False,
            highlight=style,
            notes=notes,
            shines_through=("changed", "removed", "added", "aligned"),
            colours="What differs",
            focus=look.focus,
            family=f"against:{_SIDES[side]}:{held.place}",
        ),
        key=_view_key(side),
        on_select=lambda: _picked_in(held, side),
    )
    st.session_state[f"against_asked_{side}"] = view.focus


# Tables.


def _tables(held: _Comparison) -> None:
    figures, *tables = programs_beside(held.document)
    show_sections([figures], "against")
    heading("What differs between A and B")
    kind = one_of("Table", _TABLES, _TABLE, hidden=True)
    rows: list[Row] = dict(zip(_TABLES, tables, strict=True))[kind or _TABLES[0]]["rows"]
    if kind == "Operators":
        _counts(held, rows, "operator", "Both call the same operators as often.")
    elif kind == "Kernels":
        _counts(held, rows, "kernel", "Both have the same kernels.")
    else:
        _nodes(held, rows)


def _nodes(held: _Comparison, cells: list[Row]) -> None:
    rows = held.document["nodes"]
    if not rows:
        st.caption("No node differs.")
        return
    key = f"against_nodes_{abs(hash(held.place))}"

    def select() -> None:
        row = picked(key, len(rows))
        if row is None:
            st.session_state[_CHOICE] = None
            return
        st.session_state[_CHOICE] = _row_choice(held, rows[row])

    table(
        cells,
        key=key,
        on_select=select,
        wide={"what": "small", "what became of it": "large"},
        height="auto" if len(rows) < 10 else 360,
    )
    st.caption("Click a row's box to go to the node in both graphs.")


def _counts(held: _Comparison, rows: list[Row], name: str, none: str) -> None:
    if not rows:
        st.caption(none)
        return
    key = f"against_{name}_{abs(hash(held.place))}"

    def select() -> None:
        row = picked(key, len(rows))
        what = None if row is None else (held.place, "operator", 0, rows[row][name])
        st.session_state[_CHOICE] = what

    table(rows, key=key, on_select=select, wide={name: "large"})
    st.caption("Click a row's box to see where in both graphs.")
