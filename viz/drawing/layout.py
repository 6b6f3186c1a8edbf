"""From a graph and the groups that are open to boxes and curves.

Every open group is laid out by itself (`viz.drawing.ranks`) and then stands as one box in the
layout of the group around it, so equal layers cost one computation and opening a group leaves other
groups as they are. An edge that leaves a group passes a port in the group's border; all edges that
carry one value pass the same port. A joint graph is drawn as two halves side by side, the forward
running down and the backward running back up, so that what the forward saves crosses over sideways.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal as OneOf

import networkx as nx

from relascope.core.graph import Graph, Node
from relascope.viz.drawing import labels
from relascope.viz.drawing.modules import BACKWARD, FORWARD, GroupTree, module_groups
from relascope.viz.drawing.ranks import CHILD, IN, OUT, Placed, Problem, place

Direction = OneOf["TB", "LR"]
Point = tuple[float, float]

TITLE_SIZE, SUBTITLE_SIZE = 13.0, 11.0
HEADER, PAD, HALVES_APART, MARGIN = 30.0, 16.0, 150.0, 24.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the drawing, in pixels from the top left.

    Args:
        id: a node's id, or "group:" and the group's, with "#2" and on for its further parts.
        kind: "node" or "group".
        lines: what is written in it, the title first.
        group: the group that a group's box stands for; for a node, the one it stands in.
        open: whether a group's content is drawn inside.
        depth: how many open groups are around it.
    """

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
    """A curve between two boxes: all edges of the graph that end in these two.

    Args:
        source: the box it leaves.
        target: the box it enters.
        points: places it passes, ends included. Between two of them it is a cubic whose tangents
            point along the drawing's direction, or across it where `kind` is "crossing".
        label: type of the value; where several values pass, how many.
        kind: "plain", "long" (no lane was free: it passes beneath boxes) or "crossing" (from the
            forward half to the backward half).
        count: how many of the graph's edges it stands for.
    """

    source: str
    target: str
    points: tuple[Point, ...]
    label: str
    kind: OneOf["plain", "long", "crossing"] = "plain"
    count: int = 1


@dataclass(frozen=True)
class Layout:
    """A drawing: boxes (a group before what is in it), edges, size in pixels.

    `shown` gives for every node of the graph the box that stands for it.
    """

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float
    direction: Direction
    shown: dict[str, str]


def layout(
    graph: Graph,
    open_groups: Iterable[str],
    direction: Direction = "TB",
    groups: GroupTree | None = None,
) -> Layout:
    """Lay a graph out.

    Args:
        graph: what to draw; it should be valid (producers first).
        open_groups: ids of the groups to draw open; a group inside a closed one does not show,
            an id that is no group is ignored.
        direction: "TB" from top to bottom or "LR" from left to right.
        groups: the graph's `module_groups`, if at hand.

    Returns:
        The same drawing for the same arguments, always.
    """
    tree = module_groups(graph) if groups is None else groups
    return _Drawing(graph, tree, set(open_groups) & set(tree.groups), direction).draw()


@dataclass(slots=True)
class _Item:
    """A box on its way: a node, a closed group, or an open group with children and ports."""

    index: int
    parent: int
    local: int
    depth: int
    flip: bool
    node: int = -1
    group: str = ""
    part: int = 0
    parts: int = 1
    members: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    ports: dict[tuple[int, int], int] = field(default_factory=dict)
    port_kinds: list[int] = field(default_factory=list)
    edges: dict[tuple[int, int, int], int] = field(default_factory=dict)
    placed: Placed | None = None
    w: float = 0.0
    h: float = 0.0
    x: float = 0.0
    y: float = 0.0
    origin: Point = (0.0, 0.0)
    lines: tuple[str, ...] = ()
    is_open: bool = False


class _Drawing:
    def __init__(
        self, graph: Graph, tree: GroupTree, opened: set[str], direction: Direction
    ) -> None:
        self.graph, self.tree, self.opened = graph, tree, opened
        self.direction = direction
        self.across_first = direction == "TB"
        index = {n.id: i for i, n in enumerate(graph.nodes)}
        self.reads = [[index[e] for e in dict.fromkeys(n.edges)] for n in graph.nodes]
        self.paths = {"": ()} | {g: tree.path(g) for g in tree.groups}
        self.items: list[_Item] = []
        self.slot = [0] * len(graph.nodes)
        self.halves = set(tree.roots) == {FORWARD, BACKWARD} and all(tree.group_of.values())

    def draw(self) -> Layout:
        self._make_items()
        pairs = self._pairs()
        routes = {pair: self._route(*pair) for pair in pairs}
        for item in reversed(self.items):
            item.lines = self._lines(item)
            self._size(item)
        self._put()
        names = [self._name(item) for item in self.items]
        edges = self._edges(pairs, routes, names)
        root = self.items[0]
        nodes = self.graph.nodes
        return Layout(
            boxes=tuple(self._box(i, names[i.index]) for i in self.items[1:]),
            edges=edges,
            width=round(root.w, 1),
            height=round(root.h, 1),
            direction=self.direction,
            shown={n.id: names[self.slot[i]] for i, n in enumerate(nodes)},
        )

    # Which boxes there are.

    def _make_items(self) -> None:
        root = _Item(0, -1, 0, 0, False, members=list(range(len(self.graph.nodes))), is_open=True)
        self.items.append(root)
        done = 0
        while done < len(self.items):
            item = self.items[done]
            done += 1
            if item.is_open:
                self._open(item)
        self._number_parts()

    def _number_parts(self) -> None:
        """A group cut by a cycle, or inside one that is, is drawn in parts, in graph order."""
        pieces: dict[str, list[_Item]] = {}
        for item in self.items:
            if item.group:
                pieces.setdefault(item.group, []).append(item)
        for parts in pieces.values():
            for number, item in enumerate(sorted(parts, key=lambda i: i.members[0])):
                item.part, item.parts = number, len(parts)

    def _open(self, container: _Item) -> None:
        depth = len(self.paths[container.group])
        keys: dict[int, str] = {}
        by_group: dict[str, list[int]] = {}
        order: dict[tuple[str, int], None] = {}
        for node in container.members:
            self.slot[node] = container.index
            path = self.paths[self.tree.group_of[self.graph.nodes[node].id]]
            if len(path) > depth:
                keys[node] = path[depth]
                by_group.setdefault(path[depth], []).append(node)
                order[(path[depth], -1)] = None
            else:
                order[("", node)] = None
        parts = self._split(container, keys, by_group) if by_group else {}
        for group, node in order:
            if node >= 0:
                self._add(container, node=node)
                continue
            pieces = parts.get(group) or [by_group[group]]
            for members in pieces:
                self._add(container, group=group, members=members)

    def _add(
        self, container: _Item, node: int = -1, group: str = "", members: list[int] | None = None
    ) -> None:
        item = _Item(
            index=len(self.items),
            parent=container.index,
            local=len(container.children),
            depth=container.depth + (container.index > 0),
            flip=container.flip or (self.halves and group == BACKWARD),
            node=node,
            group=group,
            members=members or [],
            is_open=bool(group) and group in self.opened,
        )
        for member in item.members or [node]:
            self.slot[member] = item.index
        container.children.append(item.index)
        self.items.append(item)

    def _split(
        self, container: _Item, keys: dict[int, str], by_group: dict[str, list[int]]
    ) -> dict[str, list[list[int]]]:
        """Cut groups that both feed and are fed by something outside into consecutive parts.

        Boxes in one container must not form a cycle. In a strongly connected set of boxes, count
        on every path how often it has changed boxes: nodes of a group with different counts go to
        different parts. Counts never fall along an edge and rise where it changes boxes, so what
        results has no cycle.
        """
        quotient = nx.DiGraph()
        inside = set(container.members)
        for node in container.members:
            mine = keys.get(node, node)
            for source in self.reads[node]:
                if source in inside and (theirs := keys.get(source, source)) != mine:
                    quotient.add_edge(theirs, mine)
        if nx.is_directed_acyclic_graph(quotient):
            return {}
        component: dict[object, int] = {}
        for number, nodes in enumerate(nx.strongly_connected_components(quotient)):
            if len(nodes) > 1:
                component |= dict.fromkeys(nodes, number)
        level: dict[int, int] = {}
        for node in container.members:
            mine = keys.get(node, node)
            if mine not in component:
                continue
            level[node] = 0
            for source in self.reads[node]:
                theirs = keys.get(source, source)
                if source in inside and component.get(theirs) == component[mine]:
                    level[node] = max(level[node], level[source] + (theirs != mine))
        parts = {}
        for group, members in by_group.items():
            if group in component:
                levels = sorted({level[m] for m in members})
                pieces: dict[int, list[int]] = {at: [] for at in levels}
                for member in members:
                    pieces[level[member]].append(member)
                parts[group] = list(pieces.values())
        return parts

    # Which edges there are, and which containers they pass.

    def _pairs(self) -> dict[tuple[int, int], list[int]]:
        """For every two boxes with edges between them, the nodes whose values pass."""
        pairs: dict[tuple[int, int], list[int]] = {}
        for node, sources in enumerate(self.reads):
            target = self.slot[node]
            for source in sources:
                if self.slot[source] != target:
                    pairs.setdefault((self.slot[source], target), []).append(source)
        return pairs

    def _route(self, source: int, target: int) -> list[tuple[int, int, int]] | None:
        """The way from box to box: (container, edge in it, port reached or -1), None across."""
        up: list[tuple[int, int, int]] = []
        down: list[tuple[int, int, int]] = []
        a, b = self.items[source], self.items[target]
        if self.halves and a.flip != b.flip:
            return None
        while a.parent != b.parent:
            if a.depth >= b.depth and a.parent > 0:
                container = self.items[a.parent]
                port = self._port(container, OUT, source)
                up.append((container.index, self._edge(container, a.local, port, source), port))
                a = container
            else:
                container = self.items[b.parent]
                port = self._port(container, IN, source)
                down.append((container.index, self._edge(container, port, b.local, source), port))
                b = container
        meeting = self.items[a.parent]
        up.append((meeting.index, self._edge(meeting, a.local, b.local, source), -1))
        return up + down[::-1]

    @staticmethod
    def _port(container: _Item, kind: int, source: int) -> int:
        port = container.ports.get((kind, source))
        if port is None:
            port = container.ports[(kind, source)] = len(container.port_kinds)
            container.port_kinds.append(kind)
        return -2 - port  # ports stand after the children, whose number is fixed by now

    @staticmethod
    def _edge(container: _Item, source: int, target: int, value: int) -> int:
        children = len(container.children)
        ends = [children - 2 - end if end <= -2 else end for end in (source, target)]
        key = (ends[0], ends[1], value)
        return container.edges.setdefault(key, len(container.edges))

    # How large they are, and where.

    def _turned(self, across: float, along: float) -> Point:
        """Between the drawing's (x, y) and (across, along) its direction, either way."""
        return (across, along) if self.across_first else (along, across)

    def _size(self, item: _Item) -> None:
        if not item.is_open:
            item.w, item.h = _measure(item.lines)
            if item.node < 0:
                item.w, item.h = max(item.w + 34, 150.0), 52.0
            return
        if item.index == 0 and self.halves:
            self._size_halves(item)
            return
        sizes = [self._turned(self.items[c].w, self.items[c].h) for c in item.children]
        values = {v: n for n, v in enumerate(dict.fromkeys(value for _, _, value in item.edges))}
        item.placed = place(
            Problem(
                sizes=tuple(sizes) + ((0.0, 0.0),) * len(item.port_kinds),
                kinds=(CHILD,) * len(sizes) + tuple(item.port_kinds),
                edges=tuple((a, b, values[v]) for a, b, v in item.edges),
                ends=tuple(self._ends(item, a, b, v) for a, b, v in item.edges),
            )
        )
        wide, high = self._turned(item.placed.width, item.placed.height)
        if item.index == 0:
            item.w, item.h = wide + 2 * MARGIN, high + 2 * MARGIN
            return
        name = labels.text_width(item.lines[0], TITLE_SIZE, bold=True) + 60
        item.w, item.h = max(wide + 2 * PAD, name), high + HEADER + 2 * PAD

    def _ends(self, container: _Item, source: int, target: int, value: int) -> Point:
        """How far from their boxes' centres an edge starts and ends: at open groups' ports."""
        offsets = [0.0, 0.0]
        for which, (end, kind) in enumerate(((source, OUT), (target, IN))):
            if end >= len(container.children):
                continue
            box = self.items[container.children[end]]
            port = box.ports.get((kind, value)) if box.placed is not None else None
            if port is not None and box.placed is not None:
                x, _ = box.placed.corners[len(box.children) + port]
                offsets[which] = x - box.placed.width / 2
        return offsets[0], offsets[1]

    def _size_halves(self, root: _Item) -> None:
        halves = (self.items[c] for c in root.children)
        (w, h), (other_w, other_h) = (self._turned(half.w, half.h) for half in halves)
        across, along = w + other_w + HALVES_APART, max(h, other_h)
        root.w, root.h = self._turned(across + 2 * MARGIN, along + 2 * MARGIN)

    def _put(self) -> None:
        for item in self.items:
            if item.is_open and item.placed is not None:
                item.origin = left, top = self._origin(item)
                for child, (x, y) in zip(item.children, item.placed.corners, strict=False):
                    box = self.items[child]
                    if item.flip:
                        y = item.placed.height - y - self._turned(box.w, box.h)[1]
                    x, y = self._turned(x, y)
                    box.x, box.y = left + x, top + y
            elif item.is_open:
                across, (_, end) = MARGIN, self._turned(item.w, item.h)
                halves = (self.items[c] for c in item.children)
                for half in sorted(halves, key=lambda half: half.group != FORWARD):
                    w, h = self._turned(half.w, half.h)
                    half.x, half.y = self._turned(across, end - MARGIN - h)
                    across += w + HALVES_APART

    def _origin(self, item: _Item) -> Point:
        assert item.placed is not None
        if item.index == 0:
            return MARGIN, MARGIN
        wide, _ = self._turned(item.placed.width, item.placed.height)
        return item.x + (item.w - wide) / 2, item.y + HEADER + PAD

    def _at(self, item: _Item, point: Point) -> Point:
        """A point of a container's own layout in the drawing."""
        assert item.placed is not None
        x, y = point
        if item.flip:
            y = item.placed.height - y
        (left, top), (x, y) = item.origin, self._turned(x, y)
        return left + x, top + y

    # The curves.

    def _edges(
        self,
        pairs: dict[tuple[int, int], list[int]],
        routes: dict[tuple[int, int], list[tuple[int, int, int]] | None],
        names: list[str],
    ) -> tuple[Edge, ...]:
        ways: list[list[Point]] = []
        kinds: list[OneOf["plain", "long", "crossing"]] = []
        arriving: dict[int, list[int]] = {}
        for number, (source, target) in enumerate(pairs):
            route = routes[(source, target)]
            if route is None:
                ways.append(self._sideways(self.items[source], self.items[target]))
                kinds.append("crossing")
                continue
            way, straight = self._way(self.items[source], self.items[target], route)
            ways.append(way)
            kinds.append("plain" if straight else "long")
            arriving.setdefault(target, []).append(number)
        for target, numbers in arriving.items():
            self._spread(self.items[target], [ways[n] for n in numbers])
        edges = []
        for (source, target), way, kind in zip(pairs, ways, kinds, strict=True):
            values = pairs[(source, target)]
            label, distinct = labels.types_text(self.graph.nodes[values[0]].outputs), set(values)
            if len(distinct) > 1:
                label = f"{len(distinct)} tensors"
            points = tuple((round(x, 1), round(y, 1)) for x, y in way)
            edges.append(Edge(names[source], names[target], points, label, kind, len(values)))
        return tuple(edges)

    def _way(
        self, source: _Item, target: _Item, route: list[tuple[int, int, int]]
    ) -> tuple[list[Point], bool]:
        way = [self._end(source, leaving=True)]
        straight = True
        meeting = False
        for container_index, edge, port in route:
            container = self.items[container_index]
            assert container.placed is not None
            lane = container.placed.lanes[edge]
            straight = straight and lane is not None
            points = [self._at(container, p) for p in lane or ()]
            if port == -1:
                meeting = True
                way += points
                continue
            at = self._at_port(container, -2 - port)
            way += [at, *points] if meeting else [*points, at]
        way.append(self._end(target, leaving=False))
        if not straight and len(way) == 2:
            way.insert(1, self._aside(*way))
        return way, straight

    def _aside(self, start: Point, end: Point) -> Point:
        """Where a long edge bows out to, so that it does not hide behind a column of boxes."""
        (x, y), (end_x, end_y) = self._turned(*start), self._turned(*end)
        bow = min(60 + abs(end_y - y) * 0.06, 400)
        return self._turned((x + end_x) / 2 + (bow if end_x >= x else -bow), (y + end_y) / 2)

    def _at_port(self, container: _Item, port: int) -> Point:
        """A port lies on the border of its group's box."""
        assert container.placed is not None
        x, y = self._at(container, container.placed.corners[len(container.children) + port])
        far = (container.port_kinds[port] == IN) == container.flip
        if self.across_first:
            return x, container.y + container.h * far
        return container.x + container.w * far, y

    def _end(self, item: _Item, leaving: bool) -> Point:
        right, down = self._turned(0.5, float(leaving != item.flip))
        return item.x + item.w * right, item.y + item.h * down

    def _sideways(self, source: _Item, target: _Item) -> list[Point]:
        onward = float(not source.flip)
        right, down = self._turned(onward, 0.5)
        other_right, other_down = self._turned(1 - onward, 0.5)
        return [
            (source.x + source.w * right, source.y + source.h * down),
            (target.x + target.w * other_right, target.y + target.h * other_down),
        ]

    def _spread(self, target: _Item, ways: list[list[Point]]) -> None:
        """Let the edges into one box end side by side, in the order in which they come."""
        if len(ways) < 2:
            return
        room = self._turned(target.w, target.h)[0] * 0.6
        step = min(16.0, room / (len(ways) - 1))
        for turn, way in enumerate(sorted(ways, key=lambda w: self._turned(*w[-2])[0])):
            x, y = self._turned(*way[-1])
            way[-1] = self._turned(x + (turn - (len(ways) - 1) / 2) * step, y)

    # What is written.

    def _name(self, item: _Item) -> str:
        if item.node >= 0:
            return self.graph.nodes[item.node].id
        return f"group:{item.group}" + (f"#{item.part + 1}" if item.part else "")

    def _lines(self, item: _Item) -> tuple[str, ...]:
        if item.node >= 0:
            return node_lines(self.graph.nodes[item.node])
        if not item.group:
            return ("",)
        group = self.tree.groups[item.group]
        name = group.label + (f" ({item.part + 1} of {item.parts})" if item.parts > 1 else "")
        size = f"{len(item.members):,} node" + ("s" if len(item.members) != 1 else "")
        if group.parameter_bytes and item.parts == 1:
            size += f" · {labels.size_text(group.parameter_bytes)} weights"
        return name, size

    def _box(self, item: _Item, name: str) -> Box:
        group = item.group
        if item.node >= 0:
            group = self.tree.group_of[self.graph.nodes[item.node].id]
        return Box(
            id=name,
            kind="node" if item.node >= 0 else "group",
            x=round(item.x, 1),
            y=round(item.y, 1),
            w=round(item.w, 1),
            h=round(item.h, 1),
            lines=item.lines,
            group=group,
            open=item.is_open,
            depth=item.depth,
        )


def node_lines(node: Node) -> tuple[str, ...]:
    """The one or two lines in a node's box."""
    second = labels.subtitle(node)
    return (labels.title(node), second) if second else (labels.title(node),)


def _measure(lines: tuple[str, ...]) -> tuple[float, float]:
    wide = labels.text_width(lines[0], TITLE_SIZE, bold=True)
    for line in lines[1:]:
        wide = max(wide, labels.text_width(line, SUBTITLE_SIZE))
    return max(round(wide + 28), 64.0), 32.0 if len(lines) == 1 else 46.0
