"""The viewer's layout as boxes and curves, and what is wrong with one."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from typing import Literal as OneOf

from relascope.core.graph import Graph
from relascope.viz.drawing import javascript
from relascope.viz.drawing.drawing import drawn_block
from relascope.viz.drawing.union import Union

OUTSIDE = str(Path(__file__).parent / "outside"), "layoutOutside"
"""The module and the function that lay out what `question` asks."""

Point = tuple[float, float]
EdgeKind = OneOf["plain", "long", "crossing"]

_EDGE_KINDS: tuple[EdgeKind, ...] = ("plain", "long", "crossing")


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the drawing, in pixels from the top left; a group's id is "group:" and the
    group's, with "#2" and on for its further parts, and its content is drawn inside if `open`."""

    id: str
    kind: OneOf["node", "group"]
    x: float
    y: float
    w: float
    h: float
    lines: tuple[str, ...]
    group: str
    open: bool = False
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """A curve between two boxes: all edges of the graph that end in these two. Between two points
    it is a cubic whose tangents run up and down, or across if it is "crossing": from the forward
    half to the backward half. One that is "long" passes beneath boxes."""

    source: str
    target: str
    points: tuple[Point, ...]
    label: str
    kind: EdgeKind = "plain"


@dataclass(frozen=True)
class Layout:
    """A drawing: boxes (a group before what is in it), edges, size in pixels; `shown` has every
    node's box, `raw` all that the viewer's JavaScript said."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float
    shown: dict[str, str]
    raw: dict[str, Any]


def layout(graph: Graph, open_groups: Iterable[str], union: Union | None = None) -> Layout:
    """Lay a graph out, with groups open by their ids, in the places of the steps of `union`; always
    the same."""
    drawn = javascript.call(*OUTSIDE, question(graph, open_groups, union))
    box, edge = drawn["box"], drawn["edge"]
    ids = box["id"]
    kinds = ["group" if kind else "node" for kind in box["kind"]]
    fields = (box[name] for name in (*"xywh", "lines", "group", "open", "depth"))
    edges = zip(*(edge[name] for name in ("s", "t", "p", "label", "kind")), strict=True)
    return Layout(
        tuple(map(Box, ids, kinds, *fields)),
        tuple(
            Edge(ids[s], ids[t], tuple(zip(p[::2], p[1::2], strict=True)), label, _EDGE_KINDS[kind])
            for s, t, p, label, kind in edges
        ),
        drawn["width"],
        drawn["height"],
        {n.id: ids[at] for n, at in zip(graph.nodes, drawn["shown"], strict=True)},
        drawn,
    )


def question(
    graph: Graph, open_groups: Iterable[str], union: Union | None = None
) -> dict[str, Any]:
    """What `layout` asks of the viewer's JavaScript, as JSON values."""
    strings: dict[str, int] = {}
    _, block = drawn_block(graph, union, strings)
    return {"block": block | {"strings": list(strings)}, "opened": sorted(set(open_groups))}


class Flaws(NamedTuple):
    """Edges (source, target) with a box that they run through, and pairs of boxes that overlap."""

    through: tuple[tuple[str, str, str], ...]
    overlaps: tuple[tuple[str, str], ...]


def flaws(drawn: Layout) -> Flaws:
    found = javascript.call(str(Path(__file__).parent / "flaws"), "flaws", drawn.raw)
    ids = [b.id for b in drawn.boxes]
    return Flaws(
        tuple((drawn.edges[e].source, drawn.edges[e].target, ids[b]) for e, b in found["through"]),
        tuple((ids[a], ids[b]) for a, b in found["overlaps"]),
    )
