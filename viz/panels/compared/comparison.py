"""Two runs of passes compared: steps, both graphs, and tables of differences."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import streamlit as st
from streamlit import session_state as state

from relascope.core.graph import Graph, Kind, Node
from relascope.core.identity import flat
from relascope.core.operators import category
from relascope.viz.compare import runs
from relascope.viz.compare.align import Alignment
from relascope.viz.compare.match import Matching, match
from relascope.viz.compare.opened import KERNELS, kernel_name
from relascope.viz.component.views import graph_view
from relascope.viz.drawing.drawing import MOST_NODES, View, focus_on, group_of
from relascope.viz.drawing.modules import BACKWARD, FORWARD, module_in
from relascope.viz.panels.shell.frame import heading, one_of, plain_text, side_by_side
from relascope.viz.panels.shell.holding import ask
from relascope.viz.panels.shell.request_cache import RequestCache
from relascope.viz.panels.shell.table import grid, picked, show_sections
from relascope.viz.rows import Row, formats, tables
from relascope.viz.rows.step_list import programs_beside, side_text, step_differs, steps_beside

HEIGHT = 520
_TABLES = {
    "Nodes": "No node differs.",
    "Operators": "Both call the same operators equally often.",
    "Kernels": "Both have the same kernels.",
}
"""The tables of differences, and the text of an empty one."""
_NAMES = ("operator", "kernel", "Relay", "Relax")  # columns of operators
_PLACES = {"first": "The first difference", "end": "The end"}
_AT, _TABLE, _ALL = "keep_against_at", "keep_against_table", "keep_against_all_steps"
_STEPS = ("against_steps", "against_all_steps")  # tables of steps that differ, and of all
_CHOICE, _OF = "against_choice", "against_of"
_SIDES = ("a", "b")


@dataclass(frozen=True)
class _Comparison:
    """Two programs compared; `place` identifies them and all that they depend on. Programs of two
    IRs also have an alignment, by the origins of their nodes."""

    place: str
    matching: Matching
    document: Row
    alignment: Alignment | None

    @property
    def graphs(self) -> tuple[Graph, Graph]:
        return self.matching.left, self.matching.right

    def drawn(self, side: int, ident: str | None) -> str | None:
        """The node that is drawn for a node, or None."""
        return None if ident is None else runs.outer_nodes(self.graphs[side]).get(ident, ident)


def show(a: runs.ComparedRun, b: runs.ComparedRun, cache: RequestCache, *key: Hashable) -> None:
    """Draw two runs, identified by `key`, beside each other; raises as a run's graph."""
    document = cache.derive(lambda: runs.compare(a, b), "compared", *key)
    place = repr(key)
    if state.get(_OF) != place:
        state[_OF] = place
        for gone in (_CHOICE, *_STEPS):
            state.pop(gone, None)
    _told(f"<b>{escape(document['verdict'])}</b>")
    for side in _SIDES:
        st.caption(plain_text(side_text(side, document[side])))
    at = _place(document)
    words, columns, tables = st.container(), side_by_side("against", [1, 1]), st.container()
    sides = zip((a, b), _SIDES, at[1:], columns, strict=True)
    i, j = (_program(run, side, index, (*key, *at), column) for run, side, index, column in sides)
    left, right = a.graph(i), b.graph(j)
    if left is None or right is None:
        gone = " and ".join(s.upper() for s, g in zip(_SIDES, (left, right), strict=True) if not g)
        st.caption(f"There is no graph of {gone} here: loops and lower levels have none.")
        return

    def hold() -> _Comparison:
        matching = match(left, right)
        alignment = Alignment(matching) if left.ir != right.ir else None
        return _Comparison(repr((*key, i, j)), matching, runs.program_document(matching), alignment)

    held = cache.derive(hold, "held", *key, i, j)
    with words:
        looks = _looks(held, state.get(_CHOICE))
    for which, (column, graph) in enumerate(zip(columns, (left, right), strict=True)):
        with column:
            _view(held, which, graph, looks[which])
    with tables:
        _tables(held)


def _chosen_step(rows: list[Row], first: Row | None) -> Row | None:
    heading("Steps beside each other")
    differ = [r for r in rows if step_differs(r, first)]
    listed, key = (rows, _STEPS[1]) if state.get(_ALL) else (differ, _STEPS[0])
    row = picked(key, len(listed))
    if listed:
        wide = {"pass": "medium", "what differs": "medium"}
        height: Any = "auto" if len(listed) < 8 else 290
        rows_beside = steps_beside(listed, first)["rows"]
        grid(rows_beside, key=key, on_select="rerun", wide=wide, height=height)
        st.caption("Click a row's box to see both programs after that step.")
    else:
        st.caption("Both have the same passes; none took much longer in one (run once).")
    if quiet := len(rows) - len(differ):
        text = f"Also the {formats.number(quiet)} that both have, and that take as long"
        ask(st.toggle, text, key=_ALL)
    return None if row is None else listed[row]


def _place(document: Row) -> tuple[str, int, int]:
    """The two programs to show, in words and as a step of each run, chosen from a table."""
    first, end = document["first_difference"], document["end"]
    rows = document["steps"]
    known = [name for name, one in (("first", first), ("end", end)) if one and "counts" in one]
    chosen = _chosen_step(rows, first) if rows else None
    heading("Programs beside each other")
    where = st.container(horizontal=True, vertical_alignment="center")
    asked = "end"
    if known:
        asked = one_of("Which", known, _AT, where, format_func=_PLACES.__getitem__, hidden=True)
    if chosen is not None:
        where.caption(plain_text(f"After {chosen['pass']}, as chosen above"))
        return f"after {chosen['pass']}", *_last(rows[: rows.index(chosen) + 1])
    if asked == "first" and first is not None:
        name = first["pass"]
        where.caption(plain_text(f"After {name}: {first['why']}" if name else first["why"]))
        return "first", first["a"], first["b"]
    where.caption("After all passes" if rows else "As imported")
    return "end", *_last(rows)


def _last(rows: Iterable[Row]) -> tuple[int, int]:
    """Each run's last step in some rows, or -1."""
    i, j = (max((r[s] for r in rows if r[s] is not None), default=-1) for s in _SIDES)
    return i, j


def _program(run: runs.ComparedRun, side: str, index: int, place: Hashable, column: Any) -> int:
    """The program of a run to show, as the index of its step: at first the place's."""
    if not run.steps:
        return index
    key = f"keep_program_{side}"
    if state.get(f"program_{side}_of") != place:
        state[f"program_{side}_of"], state[key] = place, index
    names = [
        "before all passes",
        *(f"after {n}. {s.pass_name}" for n, s in enumerate(run.steps, 1)),
    ]
    return column.selectbox(
        f"Program of {side.upper()}",
        range(-1, len(run.steps)),
        key=key,
        format_func=lambda at: f"{side.upper()} {names[at + 1]}",
        label_visibility="collapsed",
    )


@dataclass(frozen=True)
class Marks:
    """The nodes that a view marks, and the one it moves to."""

    focus: str | None = None
    marked: tuple[str, ...] = ()


def _looks(held: _Comparison, choice: Any) -> tuple[Marks, Marks]:
    """Each view's marks for the choice; draws a sentence on it."""
    if choice is None or choice[0] != held.place:
        if not held.document["nodes"]:
            _told("Choose a node to see its counterpart.")
            return Marks(), Marks()
        choice = (held.place, *_row_choice(held, "Nodes", 0, {}))
    _, kind, side, what = choice
    if kind in ("operator", "origin"):
        ids = [_called(g, what) for g in held.graphs] if kind == "operator" else _from(held, *what)
        left, right = (
            Marks(_work(g, marked), marked) for g, marked in zip(held.graphs, ids, strict=True)
        )
        title = what if kind == "operator" else " of ".join(filter(None, reversed(what)))
        counts = [_counted(g, marked) for g, marked in zip(held.graphs, ids, strict=True)]
        _told(escape(f"{title}: {counts[0]} in A; {counts[1]} in B"))
        return left, right
    module = group_of(what)
    if module is None:
        return _node_looks(held, side, what)
    module = module.removeprefix(BACKWARD).removeprefix(FORWARD)
    return _module_looks(held, side, module, f"module {module}", Marks())


def _row_choice(held: _Comparison, kind: str, at: int, cells: Row) -> tuple[str, int, Any]:
    if kind == "Nodes":
        row = held.document["nodes"][at]
        side = 0 if row["a"] is not None else 1
        return "node", side, row[_SIDES[side]]
    if "PyTorch operator" in cells:
        return "origin", 0, (cells.get("module"), cells["PyTorch operator"])
    return "operator", 0, next(iter(cells.values()))


def _node_looks(held: _Comparison, side: int, what: str) -> tuple[Marks, Marks]:
    """The marks for a side's node: nodes from the same PyTorch operator, or else its pair."""
    pair, drawn = held.matching.by_side[side].get(what), held.drawn(side, what) or what
    paired = "" if pair is None else pair.left if side else pair.right
    other = held.drawn(1 - side, paired) or ""
    title, scope = _title(held.graphs[side], what)
    marked = held.alignment.of_one_origin(side, drawn) if held.alignment else ((), ())
    if theirs := marked[1 - side]:
        became = _counted(held.graphs[1 - side], theirs)
        _told_of(side, title, became, "sure", "same PyTorch operator")
        own, there = marked[side], Marks(other if other in theirs else theirs[-1], theirs)
    elif pair is None:
        return _module_looks(held, side, scope, title, Marks(drawn, (drawn,)))
    else:
        name, _ = _title(held.graphs[1 - side], paired)
        how = f"{pair.rule.value}, {100 * pair.sure:.0f} % sure"
        changed = "the same" if pair.same else "changed"
        _told_of(side, title, name, "sure" if pair.sure >= runs.SURE else "part", how, changed)
        own, there = (drawn,), Marks(other, (other,))
    looks = Marks(drawn, own), there
    return (looks[1], looks[0]) if side else looks


def _module_looks(
    held: _Comparison, side: int, path: str, title: str, own: Marks
) -> tuple[Marks, Marks]:
    """The marks for a module, or a node of one side only: the same module, or one around it."""
    found = module_in(held.graphs[1 - side], path)
    how = "same module only" if found == path else "enclosing module only"
    said = (f"module {found}", "part", how) if found else ("–", "none", "no counterpart")
    _told_of(side, title, *said)
    there = Marks(focus_on(found) if found else None)
    return (there, own) if side else (own, there)


def _told_of(side: int, title: str, there: str, sure: str, how: str, same: str = "") -> None:
    """Draw a sentence on the counterpart on the other side, and how sure it is."""
    here, other = (_SIDES[s].upper() for s in (side, 1 - side))
    _told(
        f"<b>{escape(title)}</b> in {here} → <b>{escape(there)}</b> in {other}"
        f"{same and f', {same}'} <span class='rs-sure rs-sure-{sure}'>{how}</span>"
    )


def _told(html: str) -> None:
    st.html(f"<div class='rs-aligned'>{html}</div>")


def _title(graph: Graph, ident: str) -> tuple[str, str]:
    """A node's title with its module, and that module."""
    node = next((n for n in flat(graph) if n.id == ident), None)
    if node is None:
        return ident, ""
    return (f"{node.title} of {node.scope}" if node.scope else node.title), node.scope


def _called(graph: Graph, operator: str) -> tuple[str, ...]:
    """Ids of the drawn nodes that call an operator or a kernel, in themselves or fused."""

    def calls(node: Node) -> bool:
        kernel = kernel_name(node) if node.attrs.get("call") in KERNELS else ""
        return operator in (node.op, kernel, *(node.body.operators if node.body else ()))

    return tuple(n.id for n in graph if calls(n))


def _from(held: _Comparison, module: str | None, source: str) -> list[tuple[str, ...]]:
    """By side, ids of nodes from a PyTorch operator in a module, or in all modules (None)."""
    groups = held.alignment.groups if held.alignment is not None else ()
    found = [g for g in groups if g.source == source and module in (None, g.scope)]
    return [tuple(n for g in found for n in g.nodes[side]) for side in (0, 1)]


def _counted(graph: Graph, ids: Iterable[str]) -> str:
    return formats.counts_text(Counter(graph.by_id[i].title for i in ids))


def _work(graph: Graph, ids: tuple[str, ...]) -> str | None:
    """The node to look at first: if possible, one that does more than move data."""
    nodes = [graph.by_id[i] for i in ids if graph.by_id[i].kind in (Kind.CALL, Kind.FUNCTION)]
    return next((n.id for n in nodes if category(n.op) != "shape"), ids[0] if ids else None)


def _view(held: _Comparison, side: int, graph: Graph, look: Marks) -> None:
    if len(graph) > MOST_NODES:
        st.caption(f"{formats.number(len(graph))} nodes are too many to be drawn.")
        return
    colours = runs.coloured_side(held.matching, side)
    colours["highlight"] |= dict.fromkeys(look.marked, "aligned")
    family = f"against:{_SIDES[side]}:{held.place}"
    view = View(HEIGHT, details=False, focus=look.focus, family=family, **colours)
    key, asked = f"against_view_{_SIDES[side]}", f"against_asked_{side}"

    def picked_in() -> None:  # unless the page itself asked for the selection
        selected = (state.get(key) or {}).get("selected")
        if selected is None or selected != state.get(asked):
            state[_CHOICE] = None if selected is None else (held.place, "node", side, selected)

    state[asked] = graph_view(graph, view, key=key, on_select=picked_in)


def _tables(held: _Comparison) -> None:
    figures, *differ = programs_beside(held.document)
    shown = dict(zip(_TABLES, differ, strict=True))
    if held.alignment is not None:
        facts, *became = tables.alignment_sections(tables.alignment_document(held.alignment))
        figures["items"] += facts["items"]
        shown = {s["title"]: s for s in became} | shown
    show_sections([figures], "against")
    heading("What differs between A and B")
    kind = one_of("Table", list(shown), _TABLE, hidden=True)
    cells: list[Row] = shown[kind]["rows"]
    if not cells:
        st.caption(_TABLES.get(kind, "Neither has any."))
        return

    def pick(row: int | None) -> None:
        chosen = None if row is None else (held.place, *_row_choice(held, kind, row, cells[row]))
        state[_CHOICE] = chosen

    wide: Row = {"what": "small", **dict.fromkeys(("what became of it", *_NAMES), "large")}
    grid(cells, key=f"against_{kind}_{abs(hash(held.place))}", on_pick=pick, wide=wide)
    st.caption("Click a row's box to see where in both graphs.")
