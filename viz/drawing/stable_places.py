"""Keeping the places of boxes when one graph replaces another: the picture must not jump.

A layout made anew moves everything a little, and the eye loses what it looked at. Here every box
that had a place keeps it, those of earlier pictures too, so that going back shows what was there. A
new box takes the place that the new layout would give it, seen from the boxes it is connected
with, or the nearest free one. Open groups grow around what is in them. Curves are bent so that
they still end where their boxes are.

Where less than half of the boxes are known, there is nothing to keep, and the new layout stands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from relascope.core.graph import Graph
from relascope.viz.drawing.layout import Box, Edge, Layout, Point
from relascope.viz.drawing.modules import GroupTree

LEAST_KEPT = 0.5
"""The share of boxes that must have a place already."""

HEADER, PAD, MARGIN = 30.0, 16.0, 24.0
GAP = 12.0  # pixels between a new box and those around it
_CELL = 160.0
_STEP_X, _STEP_Y = 36.0, 18.0
_OFFSETS = sorted(
    ((x * _STEP_X, y * _STEP_Y) for x in range(-24, 25) for y in range(-24, 25)),
    key=lambda at: (abs(at[0]) + 1.5 * abs(at[1]), at[1] < 0, at),
)
"""Where to look for a free place, the nearest first; below before above."""


@dataclass
class Places:
    """What has been drawn in one view, by the boxes' ids.

    Args:
        open: of each group that was drawn or lay in a drawn one, whether it was open.
        boxes: the last place of each box ever drawn.
        edges: the last curve between two boxes, with where those two stood.
        drawn: ids of the boxes of the last picture.
    """

    open: dict[str, bool] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)
    edges: dict[tuple[str, str], tuple[Point, Point, Edge]] = field(default_factory=dict)
    drawn: frozenset[str] = frozenset()

    def open_as_before(self, tree: GroupTree, first: Iterable[str]) -> tuple[str, ...]:
        """The groups to open: as they were, and those that are new as at a first look."""
        wanted = set(first)
        return tuple(g for g in tree.groups if self.open.get(g, g in wanted))

    def keep(
        self,
        graph: Graph,
        tree: GroupTree,
        opened: Iterable[str],
        fresh: Layout,
        beside: Mapping[str, str],
    ) -> Layout:
        """The layout with known boxes where they were; it is then remembered.

        Args:
            graph: what is drawn.
            tree: its groups.
            opened: which of them are open; where one was not before, all is laid out anew.
            fresh: its layout by itself.
            beside: for new nodes the id of one that each stands for; it takes that one's place, or
                the nearest free one.
        """
        now_open = set(opened)
        states = {g: g in now_open for g in tree.groups}
        old = self._known(graph, fresh)
        if self._differ(states) or not self._enough(old, fresh):
            drawn = fresh
            self.open, self.boxes, self.edges = states, {}, {}
        else:
            drawn = _Keeper(self, tree, fresh, old, beside).run()
            self.open |= states
        self.boxes.update((b.id, b) for b in drawn.boxes)
        self.drawn = frozenset(b.id for b in drawn.boxes)
        at = {b.id: (b.x, b.y) for b in drawn.boxes}
        self.edges.update(
            ((e.source, e.target), (at[e.source], at[e.target], e)) for e in drawn.edges
        )
        return _shifted(drawn)

    def can_keep(self, graph: Graph, fresh: Layout) -> bool:
        """Whether so many boxes have a place already that it is worth keeping them."""
        return self._enough(self._known(graph, fresh), fresh)

    @staticmethod
    def _enough(old: Mapping[str, Box], fresh: Layout) -> bool:
        solid = sum(not b.open for b in fresh.boxes)
        return bool(solid) and len(old) >= LEAST_KEPT * solid

    def _differ(self, states: Mapping[str, bool]) -> bool:
        return any(self.open.get(g, state) != state for g, state in states.items())

    def _known(self, graph: Graph, fresh: Layout) -> dict[str, Box]:
        """Where each box was; a fused function is where the last it fuses was."""
        found = {}
        for box in fresh.boxes:
            if box.open:
                continue
            node = graph.by_id.get(box.id) if box.kind == "node" else None
            inside = [] if node is None or node.body is None else node.body.outputs
            for ident in (box.id, *inside):
                old = self.boxes.get(ident)
                if old is not None and not old.open:
                    found[box.id] = old
                    break
        return found


class _Keeper:
    def __init__(
        self,
        places: Places,
        tree: GroupTree,
        fresh: Layout,
        old: Mapping[str, Box],
        beside: Mapping[str, str],
    ) -> None:
        self.places, self.tree, self.fresh, self.old = places, tree, fresh, old
        self.beside = beside
        self.solid = [b for b in fresh.boxes if not b.open]
        self.was = {b.id: b for b in fresh.boxes}  # in the new layout
        self.now: dict[str, Box] = {}
        self.cells: dict[tuple[int, int], list[Box]] = defaultdict(list)
        self.near: dict[str, list[str]] = defaultdict(list)
        for edge in fresh.edges:
            self.near[edge.source].append(edge.target)
            self.near[edge.target].append(edge.source)
        self.groups = [
            b for i, b in places.boxes.items() if b.open and i in self.was and self.was[i].open
        ]

    def run(self) -> Layout:
        for box in self.solid:
            old = self.old.get(box.id)
            if old is not None and old.id in self.places.drawn:
                self._put(replace(box, w=old.w, h=old.h), old.x, old.y)
        for box in self.solid:
            old = self.old.get(box.id)
            if old is not None:
                self._settle(box, old)
        for box in self.solid:
            if box.id not in self.now:
                self._put(box, *self._place(box))
        groups = self._groups()
        boxes = [groups.get(b.id) or self.now.get(b.id) for b in self.fresh.boxes]
        return replace(
            self.fresh,
            boxes=tuple(b for b in boxes if b is not None),
            edges=tuple(self._edge(e) for e in self.fresh.edges),
        )

    # Boxes.

    def _settle(self, box: Box, old: Box) -> None:
        """Give a known box the size that its words need, if there is room about its middle."""
        x, y = old.x + (old.w - box.w) / 2, old.y + (old.h - box.h) / 2
        if box.id not in self.now:
            if self._free(x, y, box, ()):
                self._put(box, x, y)
        elif (old.w, old.h) != (box.w, box.h):
            wider = replace(box, x=x, y=y)
            beside = (o for cell in _cells(wider) for o in self.cells[cell] if o.id != box.id)
            if not any(_meet(wider, other) for other in beside):
                self._put(box, x, y)
            elif old.h < box.h:
                self._put(replace(box, w=old.w, h=old.h, lines=box.lines[:1]), old.x, old.y)

    def _put(self, box: Box, x: float, y: float) -> None:
        placed = self.now[box.id] = replace(box, x=round(x, 1), y=round(y, 1))
        for cell in _cells(placed):
            self.cells[cell].append(placed)

    def _place(self, box: Box) -> Point:
        """Where the new layout has it, seen from its neighbours, or the nearest free place."""
        near = [n for n in self.near[box.id] if n in self.now]
        stood = self.places.boxes.get(self.beside.get(box.id, ""))
        seen = (
            [(stood.x + (stood.w - box.w) / 2, stood.y)]
            if stood and not stood.open
            else [
                (self.now[n].x + box.x - self.was[n].x, self.now[n].y + box.y - self.was[n].y)
                for n in near
            ]
            or [(box.x, box.y)]
        )
        x = sum(at[0] for at in seen) / len(seen)
        y = sum(at[1] for at in seen) / len(seen)
        own = {f"group:{g}" for g in self.tree.path(box.group)}
        foreign = [g for g in self.groups if g.id.partition("#")[0] not in own]
        for others in (foreign, ()):
            for dx, dy in _OFFSETS:
                if self._free(x + dx, y + dy, box, others):
                    return x + dx, y + dy
        return x, max(b.y + b.h for b in self.now.values()) + GAP  # below all that there is

    def _free(self, x: float, y: float, box: Box, groups: Iterable[Box]) -> bool:
        around = replace(box, x=x - GAP, y=y - GAP, w=box.w + 2 * GAP, h=box.h + 2 * GAP)
        if any(_meet(around, other) for cell in _cells(around) for other in self.cells[cell]):
            return False
        return not any(_meet(around, group) for group in groups)

    def _groups(self) -> dict[str, Box]:
        """Each open group around what is in it: in one piece, as nothing needs to be in order.

        Where that would run through boxes of others, what nothing flows into (a weight, which may
        stand far above its reader) is left outside.
        """
        inside: dict[str, list[Box]] = defaultdict(list)
        for box in self.now.values():
            around = self.tree.groups[box.group].parent if box.kind == "group" else box.group
            inside[around].append(box)
        fed = {e.target for e in self.fresh.edges}
        found: dict[str, Box] = {}
        for box in sorted((b for b in self.fresh.boxes if b.open), key=lambda b: -b.depth):
            if "#" in box.id.removeprefix(f"group:{box.group}"):
                continue  # a further part of a group that is drawn already
            members = inside[box.group]
            whole = self._around(box, members)
            core = [b for b in members if b.open or b.id in fed]
            if core and len(core) < len(members) and self._runs_through(whole):
                whole = self._around(box, core)
            found[box.id] = whole
            inside[self.tree.groups[box.group].parent].append(whole)
        return found

    def _around(self, box: Box, members: list[Box]) -> Box:
        left = min(b.x for b in members) - PAD
        top = min(b.y for b in members) - HEADER - PAD
        high = max(b.y + b.h for b in members) + PAD - top
        wide = max(b.x + b.w for b in members) + PAD - left
        return replace(
            box,
            x=round(left, 1),
            y=round(top, 1),
            w=round(wide, 1),
            h=round(high, 1),
            lines=(self.tree.groups[box.group].label, *box.lines[1:]),
        )

    def _runs_through(self, frame: Box) -> bool:
        """Whether a group's frame meets a box that is not in the group."""
        return any(
            _meet(frame, other) and frame.group not in self.tree.path(other.group)
            for other in self.now.values()
        )

    # Curves.

    def _edge(self, edge: Edge) -> Edge:
        """The curve as it was, if both ends are where they were; else the new layout's, bent."""
        source, target = self.now[edge.source], self.now[edge.target]
        known = self.places.edges.get((edge.source, edge.target))
        if known is not None:
            start, end, old = known
            if start == (source.x, source.y) and end == (target.x, target.y):
                return replace(edge, points=old.points, kind=old.kind)
        first, last = (
            (now.x - was.x, now.y - was.y)
            for now, was in ((source, self.was[source.id]), (target, self.was[target.id]))
        )
        if abs(first[0] - last[0]) + abs(first[1] - last[1]) < 1:
            shares = [0.0] * len(edge.points)
        elif len(edge.points) > 4:  # its lanes wind about boxes that stand elsewhere now
            edge = replace(edge, points=(edge.points[0], edge.points[-1]))
            shares = [0.0, 1.0]
        else:
            shares = [i / (len(edge.points) - 1) for i in range(len(edge.points))]
        points = tuple(
            (
                round(x + first[0] + share * (last[0] - first[0]), 1),
                round(y + first[1] + share * (last[1] - first[1]), 1),
            )
            for (x, y), share in zip(edge.points, shares, strict=True)
        )
        return replace(edge, points=points)


def _meet(a: Box, b: Box) -> bool:
    return a.x < b.x + b.w and b.x < a.x + a.w and a.y < b.y + b.h and b.y < a.y + a.h


def _cells(box: Box) -> Iterator[tuple[int, int]]:
    for i in range(int(box.x // _CELL), int((box.x + box.w) // _CELL) + 1):
        for j in range(int(box.y // _CELL), int((box.y + box.h) // _CELL) + 1):
            yield i, j


def _shifted(drawn: Layout) -> Layout:
    """The same drawing with its corner at the margin; the view holds on to a box, so all stays."""
    if not drawn.boxes:
        return drawn
    left = min(b.x for b in drawn.boxes) - MARGIN
    top = min(b.y for b in drawn.boxes) - MARGIN
    points = [p for e in drawn.edges for p in e.points]
    left = min([left, *(p[0] - MARGIN for p in points)])
    right = max([*(b.x + b.w for b in drawn.boxes), *(p[0] for p in points)]) + MARGIN
    bottom = max(b.y + b.h for b in drawn.boxes) + MARGIN

    def moved(point: Point) -> Point:
        return round(point[0] - left, 1), round(point[1] - top, 1)

    return replace(
        drawn,
        boxes=tuple(replace(b, x=round(b.x - left, 1), y=round(b.y - top, 1)) for b in drawn.boxes),
        edges=tuple(replace(e, points=tuple(map(moved, e.points))) for e in drawn.edges),
        width=round(right - left, 1),
        height=round(bottom - top, 1),
    )
