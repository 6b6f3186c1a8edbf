"""A graph as data for the viewer: its nodes, modules and looks, in one block of JSON."""

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from sys import float_info
from typing import Any

from relascope.core.graph import Graph, Kind, Literal, Node, Role
from relascope.core.memo import Memo
from relascope.passes.cost import flops_of
from relascope.viz.drawing import labels, modules, palette
from relascope.viz.drawing.union import Union

MOST_NODES = 20_000  # more nodes are not drawn: the layout would take minutes
_GROUP = "group:"  # before a module's path, to distinguish it from a node's id
_HALVES, _SORTS = "Forward & backward", "Operators"  # the meanings of nodes' own colours
_AS_IT_IS = "details", "focus", "family", "overlay", "show", "showing"  # what is sent of a view


@dataclass(frozen=True)
class Overlay:
    """Values of nodes that colours can show. A closed group has the largest of its numbers."""

    name: str
    title: str
    values: Mapping[str, float | str]  # by id, numbers or words
    unit: str = ""  # or "bytes" or "share" (of 1)
    limits: Sequence[float] | None = None  # begins of steps 2 to 4; None: the browser's
    labels: Sequence[str] | None = None  # of the steps in the legend; None: their ranges
    none: str = "no value"  # the legend's text for nodes without one, which stay plain

    def data(self, ids: Iterable[str]) -> dict[str, Any]:
        """Data for the browser; NaN and infinity are beyond all limits."""
        fields = {k: v for k, v in asdict(self).items() if v is not None}
        return fields | {"values": [_finite(self.values.get(i)) for i in ids]}


def _finite(value: float | str | None) -> float | str | None:
    return value if not isinstance(value, float) or isfinite(value) else float_info.max


@dataclass(frozen=True)
class Card:
    """Further lines on a node's card, and its actions: name, label, and whether enabled."""

    node: str
    lines: Sequence[str]
    actions: Sequence[tuple[str, str, bool]] = ()


@dataclass(frozen=True)
class View:
    """How a graph is drawn. Graphs of one `family` (the steps of one program) share the view's
    state; by default it is the IR and the names of inputs, without parameters, which passes may
    bind. With `keep_places`, graphs of the family are drawn in the same places
    (`viz.drawing.union`): those that this view has drawn, `among` and this one; by id, new nodes
    take the place of the named node. `present` is called when a show begins (True) or ends (False),
    with the bytes of the cut to choose, or None."""

    height: int | None = 640  # pixels; None for the rest of the window
    fewer_than: int = 10  # constants with fewer elements are written into their readers
    open_groups: Iterable[str] | None = None  # at first; by default those of `open_at_first`
    highlight: Mapping[str, str] = field(default_factory=dict)  # by node id, in `palette.STYLES`
    show_shapes: bool = False  # whether edges have their types at first
    details: bool = True  # whether the details of the selection are unfolded at first
    family: str | None = None
    focus: str | None = None  # a node, or `focus_on` a module, to show once, when it changes
    notes: Mapping[str, str] = field(default_factory=dict)  # by node id, a line on it
    shines_through: Sequence[str] = ()  # styles that a closed group takes, the strongest last
    keep_places: Mapping[str, str] | None = None
    among: Sequence[Graph] = ()
    open_alone: Callable[[str], None] | None = None  # called with a module's path
    overlays: Sequence[Overlay] = ()
    overlay: str = ""  # the one shown at first; "" for the nodes' own colours
    colours: str = ""  # the title of those; by default by their roles, else operators
    card: Card | None = None  # of the chosen node
    act: Callable[[str, str], None] | None = None  # called with a node's id and an action's name
    show: Mapping[str, Any] | None = None  # from `viz.drawing.show`; perhaps later, for `present`
    showing: int = 0  # if it changes, and is not 0, the show begins
    present: Callable[[bool, int | None], None] | None = None


def with_overlays(view: View, own: Mapping[str, Mapping[str, float | str]]) -> View:
    """The view with a user's own overlays, by name; the colours show the first."""
    made = [Overlay(f"own {name}", name.replace("_", " "), own[name]) for name in own]
    return replace(view, overlays=made, overlay=made[0].name) if made else view


def focus_on(module: str) -> str:
    """The `focus` of `graph_view` for a module's path."""
    return _GROUP + module


def group_of(selected: str | None) -> str | None:
    """The group's id in a view's "selected" in the session's state, or None."""
    return selected[len(_GROUP) :] if selected and selected.startswith(_GROUP) else None


_DRAWINGS: "Memo[Drawing]" = Memo(12)


def drawing_of(graph: Graph, fewer_than: int, union: Union | None = None) -> "Drawing":
    """A graph's drawing, in the places of `union`, if given; the last few are cached."""
    # A drawing keeps its graph and union alive, so their ids stay theirs while it is cached.
    key = (id(graph), fewer_than, id(union), union.version if union else 0)
    return _DRAWINGS.get(key, lambda: Drawing(graph, fewer_than, union))


def family_of(graph: Graph) -> str:
    """The default family of a graph; see `View.family`."""
    return f"{graph.ir}:{','.join(n.name for n in graph.nodes if n.kind is Kind.INPUT)}"


class Drawing:
    """A graph with its groups, and the part of the data that no view changes."""

    def __init__(self, graph: Graph, fewer_than: int, union: Union | None = None) -> None:
        self.original, self.union = graph, union
        self.graph = modules.fold_constants(graph, fewer_than)
        self.family = family_of(self.graph)
        self.strings: dict[str, int] = {}
        self.tree, self.block = drawn_block(self.graph, union, self.strings)
        self.around = union.graph()[1] if union else self.tree
        self.block["node"] |= self._nodes()
        self._last: tuple[object, bytes] | None = None

    def encode(self, toggles: Mapping[str, bool], view: View, more: Mapping[str, Any]) -> bytes:
        """All data for the browser: JSON, deflated; the same whatever modules the user opens."""
        own: dict[str, Any] = dict.fromkeys(
            ("open_groups", "keep_places", "open_alone", "act", "present")
        )
        plain = replace(view, among=(), **own)
        asked = self.first(view), plain, view.open_alone is None, view.present is None, more
        if self._last is None or self._last[0] != asked:
            data = self.data(view) | {"toggles": toggles, **more}
            raw = json.dumps(data, separators=(",", ":"), ensure_ascii=False, default=str).encode()
            token = hashlib.blake2b(raw, digest_size=8).hexdigest()
            raw = raw[:-1] + f',"token":"{token}"}}'.encode()
            self._last = (asked, zlib.compress(raw, 1))
        return self._last[1]

    def data(self, view: View) -> dict[str, Any]:
        """The same as JSON values, without the user's actions."""
        nodes, block = self.graph.nodes, self.block
        styles = {n.id: view.highlight.get(n.id) or palette.style_key(n) for n in nodes}
        sorts = {n.id: palette.sort_key(n) for n in nodes}
        roles = any(n.role is not Role.NONE for n in nodes)
        shown = [n for n in nodes if styles[n.id] != "removed"]  # removed ones do not count
        looks = {
            "style": [*styles.values()],
            "note": [view.notes.get(n.id, "") for n in nodes],
            **({} if styles == sorts else {"sort": [*sorts.values()]}),
        }
        return block | {
            "name": self.graph.name,
            "overlays": [o.data(n.id for n in nodes) for o in view.overlays],
            "counts": {"nodes": len(shown), "edges": sum(len(n.edges) for n in shown)},
            "colours": view.colours or (_HALVES if roles else _SORTS),
            "node": block["node"] | looks,
            "groups": self._groups(view, styles),
            "strings": list(self.strings),
            "kernels": {name: _kernel_card(text) for name, text in self.graph.kernels.items()},
            "shapes": {kind.value: shape for kind, shape in palette.SHAPES.items()},
            "palette": palette.table(),
            "first": self.first(view),
            "viewHeight": view.height,
            "showShapes": view.show_shapes,
            **{name: getattr(view, name) for name in _AS_IT_IS},
            "card": view.card and asdict(view.card),
            "present": view.present is not None,
        }

    def first(self, view: View) -> tuple[str, ...]:
        """The groups that are open at first."""
        given = view.open_groups
        opened = set(self.around.open_at_first() if given is None else given)
        return tuple(g for g in self.around.groups if g in opened)

    def focus(self, focus: str | None) -> str | None:
        """The drawn node or group for a focus; for a module without a group, its first node."""
        module = group_of(focus)
        if module is None:
            return focus if focus in self.graph.by_id else None
        if module in self.tree.groups:
            return focus
        below = module + "."
        inside = (n.id for n in self.graph if n.scope == module or n.scope.startswith(below))
        return next(inside, None)

    def _nodes(self) -> dict[str, list[Any]]:
        """One list for each field, so that field names are sent once."""
        nodes = self.graph.nodes
        index = {n.id: i for i, n in enumerate(nodes)}
        results = set(self.graph.outputs)
        readers = self.graph.readers
        strings, work = self.strings, flops_of(self.graph)
        return {
            "kind": [n.kind.value for n in nodes],
            "full": [labels.title(n) if n.kind is Kind.FUNCTION else n.title for n in nodes],
            "role": [n.role.value if n.role.value != "none" else "" for n in nodes],
            "bytes": [n.bytes if n.outputs else None for n in nodes],
            "flops": [*map(work.get, index)],
            "scope": [strings.setdefault(n.scope, len(strings)) for n in nodes],
            "source": [strings.setdefault(n.source, len(strings)) for n in nodes],
            "line": [strings.setdefault(n.line, len(strings)) for n in nodes],
            "readers": [[index[r] for r in readers[n.id]] for n in nodes],
            "output": [int(n.id in results) for n in nodes],
            "extra": [_extra(n, n.kernel in self.graph.kernels) for n in nodes],
        }

    def _groups(self, view: View, styles: Mapping[str, str]) -> dict[str, Any]:
        """Each module's details, and its closed style: the strongest one inside."""
        tree, kinds = self.tree, view.shines_through
        shown: dict[str, str] = {}
        for ident, style in styles.items():
            for group in tree.path(tree.group_of[ident]) if style in kinds else ():
                shown[group] = max(shown.get(group, style), style, key=kinds.index)
        joint = not tree.groups.keys().isdisjoint((modules.FORWARD, modules.BACKWARD))
        plain = ("forward", "backward") if joint else ("group", "group")
        return {
            g.id: self.block["groups"][g.id]
            | {
                "path": g.id.replace(":", " ").strip() if g.id.endswith(":") else g.id,
                "style": shown.get(g.id) or plain[g.id.startswith(modules.BACKWARD)],
                "alone": view.open_alone is not None and g.id[-1] != ":" and "…" not in g.id,
                "bytes": g.bytes,
                "operators": list(g.operators.items())[:20],
            }
            for g in tree.groups.values()
        }


def drawn_block(
    graph: Graph, union: Union | None, strings: dict[str, int]
) -> tuple[modules.GroupTree, dict[str, Any]]:
    """A graph's modules and its data for the layout, in the places of `union`, if given. `strings`
    collects frequent texts, which are sent once, in order, with their numbers."""
    if union is None:
        tree = modules.module_groups(graph)
        return tree, _lists(graph, tree, strings)
    backdrop, around = union.graph()
    tree = modules.regrouped(graph, around, union.slot)
    at = {n.id: i for i, n in enumerate(backdrop.nodes)}
    return tree, _lists(graph, tree, strings) | {
        "backdrop": _lists(backdrop, around, strings, union.nodes),
        "slot": [at[union.slot[n.id]] for n in graph.nodes],
    }


def _lists(
    graph: Graph,
    tree: modules.GroupTree,
    strings: dict[str, int],
    by_slot: Mapping[str, Node] | None = None,
) -> dict[str, Any]:
    """Nodes field by field, and groups; `by_slot` has the nodes with the texts, if others."""
    nodes = graph.nodes
    named = [by_slot[n.id] for n in nodes] if by_slot else nodes
    index = {n.id: i for i, n in enumerate(nodes)}
    return {
        "node": {
            "id": [n.id for n in nodes],
            "title": [labels.title(n) for n in named],
            "sub": [labels.subtitle(n) for n in named],
            "types": [[strings.setdefault(str(t), len(strings)) for t in n.outputs] for n in nodes],
            "group": [tree.group_of[n.id] for n in nodes],
            "inputs": [
                [i.text if isinstance(i, Literal) else index[i] for i in n.inputs] for n in nodes
            ],
        },
        "groupIds": list(tree.groups),
        "groups": {
            g.id: {"label": g.label, "parent": g.parent, "nodes": g.nodes}
            | {"parameterBytes": g.parameter_bytes}
            for g in tree.groups.values()
        },
    }


def _extra(node: Node, kernel: bool) -> dict[str, Any] | None:
    extra: dict[str, Any] = {"attrs": dict(node.attrs)} if node.attrs else {}
    if kernel:
        extra["kernel"] = node.kernel
    if node.body is not None:
        extra["body"] = list(node.body.operators.items())
    return extra or None


_WIDE_INT = re.compile(r"T\.int64\((-?\d+)\)")
_SAID_AGAIN = re.compile(r"\s*(T\.reads\(|T\.writes\(|# |$)")  # repeats the lines beside it
_GRID = re.compile(r"for .+ in T\.grid\((.+)\):")
_LOOP = re.compile(
    r"for \w+ in (?:T\.)?(\w+)\((?:0, )?([^,]+?)(?:, thread=\"([\w.]+)\")?(?:, .*)?\):"
)
_BLOCK = re.compile(r"with T\.s?block\(\"(.+?)\"\):")
_AXES = re.compile(r"T\.axis\.remap\(\"([SR]+)\"")


def _kernel_card(text: str) -> dict[str, Any]:
    """A kernel on a card: TVM's "text" in short, and "loops", the extents around each block."""
    lines = [_WIDE_INT.sub(r"\1", line) for line in text.rstrip().splitlines()]
    return {
        "text": "\n".join(line for line in lines if not _SAID_AGAIN.match(line)),
        "loops": _loops(lines),
    }


def _loops(lines: list[str]) -> list[list[str]]:
    found: list[list[str]] = []
    around: list[tuple[int, list[str]]] = []  # loops around a line, with their indents
    for at, line in enumerate(lines):
        words = line.strip()
        indent = len(line) - len(words)
        around = [loop for loop in around if loop[0] < indent]
        if grid := _GRID.match(words):
            around.append((indent, grid[1].split(", ")))
        elif loop := _LOOP.match(words):
            how = loop[3] or ("" if loop[1] in ("range", "serial") else loop[1])
            around.append((indent, [f"{loop[2]} {how}".strip()]))
        elif block := _BLOCK.match(words):
            axes = _AXES.search(lines[at + 1]) if at + 1 < len(lines) else None
            found.append([block[1], _extents([e for _, es in around for e in es], axes)])
    return found


def _extents(extents: list[str], axes: re.Match[str] | None) -> str:
    kinds = axes[1] if axes and len(axes[1]) == len(extents) else "S" * len(extents)
    own, reduced = (
        " × ".join(e for e, k in zip(extents, kinds, strict=True) if k == kind) for kind in "SR"
    )
    return f"{own or 1}, reduced over {reduced}" if reduced else own or "no loop"
