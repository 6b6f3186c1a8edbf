"""Where the boxes of one container go: a layered drawing of a small graph of rectangles.

The method is Sugiyama's (1981) in its usual steps, each with a fast choice: longest-path ranks with
sources pulled to their first reader, barycentre sweeps for the order (the sweep with the fewest
crossings wins), and places across by `viz.drawing.brandes_koepf`. Long edges take lanes between the
boxes; all edges that carry one value share a lane. Where heights differ much, boxes move up along
the skyline of what is above them, so that a tall group does not push its neighbours down.

Everything here speaks of a drawing from top to bottom, in pixels; the caller turns it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from relascope.viz.drawing.brandes_koepf import places_across

CHILD, IN, OUT = 0, 1, 2  # a box; a port where values enter at the top or leave at the bottom

GAP_ACROSS, GAP_ALONG = 22.0, 30.0
_LANE, _BUCKET = 10.0, 4.0


@dataclass(frozen=True, slots=True)
class Problem:
    """One container's content, by position in `sizes`.

    Args:
        sizes: width and height of every box; ports have (0, 0).
        kinds: CHILD, IN or OUT for each.
        edges: (from, to, value): edges with the same `from` and `value` share a lane. No cycles.
        ends: for each edge how far right of its boxes' centres it starts and ends.
    """

    sizes: tuple[tuple[float, float], ...]
    kinds: tuple[int, ...]
    edges: tuple[tuple[int, int, int], ...]
    ends: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where everything is: top left corners, the size of all, and each edge's points in between.

    `lanes[i]` holds the points that edge i passes; None for an edge too long to get a lane.
    """

    corners: tuple[tuple[float, float], ...]
    width: float
    height: float
    lanes: tuple[tuple[tuple[float, float], ...] | None, ...]


@lru_cache(maxsize=4096)
def place(problem: Problem) -> Placed:
    """Lay one container out. The same problem always has the same answer, and is cached."""
    if not problem.sizes:
        return Placed((), 0.0, 0.0, ())
    return _Placement(problem).run()


class _Placement:
    """The working state: boxes first, then one dummy for each rank that a lane passes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.count = len(problem.sizes)
        self.kinds = problem.kinds
        self.width = [max(w, _LANE) for w, _ in problem.sizes]
        self.height = [h for _, h in problem.sizes]
        self.rank = _ranks(self.count, problem.kinds, problem.edges)
        self.below: list[list[int]] = [[] for _ in range(self.count)]
        self.above: list[list[int]] = [[] for _ in range(self.count)]
        # How far right of the neighbour's centre its own centre has to be for a straight edge.
        self.below_shift: list[list[float]] = [[] for _ in range(self.count)]
        self.above_shift: list[list[float]] = [[] for _ in range(self.count)]
        self.via: list[list[int] | None] = []

    def run(self) -> Placed:
        self._add_lanes()
        rows = self._order()
        x = self._across(rows)
        y = self._along(rows, x)
        left = min(x[i] - self.width[i] / 2 for i in range(len(x)))
        right = max(x[i] + self.width[i] / 2 for i in range(len(x)))
        bottom = max(y[i] + self.height[i] for i in range(self.count))
        corners = tuple(
            (round(x[i] - left - self.problem.sizes[i][0] / 2, 1), round(y[i], 1))
            for i in range(self.count)
        )
        lanes = tuple(
            None if dummies is None else self._points(dummies, target, x, y, left)
            for dummies, (_, target, _) in zip(self.via, self.problem.edges, strict=True)
        )
        return Placed(corners, round(right - left, 1), round(bottom, 1), lanes)

    def _points(
        self, dummies: list[int], target: int, x: list[float], y: list[float], left: float
    ) -> tuple[tuple[float, float], ...]:
        """The places a lane passes; it goes on straight down until just above its target."""
        points = [(round(x[d] - left, 1), round(y[d], 1)) for d in dummies]
        if points and y[target] - points[-1][1] > 1.5 * GAP_ALONG:
            points.append((points[-1][0], round(y[target] - GAP_ALONG, 1)))
        return tuple(points)

    def _add_lanes(self) -> None:
        longest = 1000 if self.count <= 300 else 40 if self.count <= 900 else 12
        lanes: dict[tuple[int, int], list[int]] = {}
        order = sorted(range(len(self.problem.edges)), key=self._span)
        via: list[list[int] | None] = [None] * len(order)
        reading, feeding = [False] * self.count, [False] * self.count
        for source, target, _ in self.problem.edges:
            feeding[source] = reading[target] = True
        for edge in order:
            source, target, value = self.problem.edges[edge]
            # Only where one end leads no further: along a chain of groups, straight edges from
            # port to port would add up to a staircase.
            free = not reading[source] or not feeding[target]
            start, end = self.problem.ends[edge] if free else (0.0, 0.0)
            lane = lanes.setdefault((source, value), [])
            wanted = self.rank[target] - self.rank[source] - 1
            if wanted - len(lane) > longest:
                continue
            while len(lane) < wanted:
                last = lane[-1] if lane else source
                dummy = len(self.rank)
                self.rank.append(self.rank[last] + 1)
                self.width.append(_LANE)
                self.height.append(0.0)
                for links in (self.below, self.above):
                    links.append([])
                for shifts in (self.below_shift, self.above_shift):
                    shifts.append([])
                self._link(last, dummy, 0.0 if lane else start)
                lane.append(dummy)
            via[edge] = lane[:wanted]
            self._link(
                lane[wanted - 1] if wanted else source, target, (0.0 if wanted else start) - end
            )
        self.via = via

    def _link(self, upper: int, lower: int, shift: float) -> None:
        self.below[upper].append(lower)
        self.below_shift[upper].append(-shift)
        self.above[lower].append(upper)
        self.above_shift[lower].append(shift)

    def _span(self, edge: int) -> int:
        source, target, _ = self.problem.edges[edge]
        return self.rank[target] - self.rank[source]

    def _order(self) -> list[list[int]]:
        rows: list[list[int]] = [[] for _ in range(max(self.rank) + 1)]
        for item, rank in enumerate(self.rank):
            rows[rank].append(item)
        if max(map(len, rows)) == 1:
            return rows
        place = [0.0] * len(self.rank)
        _sweep(rows, place, self.above, range(len(rows)))
        best, fewest = [list(r) for r in rows], _crossings(rows, self.below)
        rounds = 10 if len(place) <= 400 else 5 if len(place) <= 4000 else 3
        for turn in range(rounds):
            if not fewest:
                break
            if turn % 2 == 0:
                _sweep(rows, place, self.below, range(len(rows) - 2, -1, -1))
            else:
                _sweep(rows, place, self.above, range(1, len(rows)))
            crossings = _crossings(rows, self.below)
            if crossings < fewest:
                best, fewest = [list(r) for r in rows], crossings
        return best

    def _across(self, rows: list[list[int]]) -> list[float]:
        count = self.count
        offsets: list[list[float]] = []
        for row in rows:
            position, offset = 0.0, []
            for j, item in enumerate(row):
                if j:
                    before = row[j - 1]
                    both = before >= count and item >= count
                    gap = 2.0 if both else GAP_ACROSS * (0.6 if max(before, item) >= count else 1)
                    position += (self.width[before] + self.width[item]) / 2 + gap
                offset.append(position)
            offsets.append(offset)
        return places_across(
            rows, offsets, (self.above, self.above_shift), (self.below, self.below_shift), count
        )

    def _along(self, rows: list[list[int]], x: list[float]) -> list[float]:
        heights = [self.height[i] for i in range(self.count) if self.kinds[i] == CHILD]
        uneven = heights and max(heights) > 1.5 * min(heights)
        return self._skyline(rows, x) if uneven else self._rows(rows)

    def _rows(self, rows: list[list[int]]) -> list[float]:
        y = [0.0] * len(self.rank)
        top = 0.0
        for row in rows:
            height = max(self.height[i] for i in row)
            for item in row:
                lane = item >= self.count or self.kinds[item] != CHILD
                y[item] = top + (height / 2 if lane else (height - self.height[item]) / 2)
            ports = all(i < self.count and self.kinds[i] != CHILD for i in row)
            top += height + (GAP_ALONG * 0.6 if ports else GAP_ALONG)
        for item in range(self.count):
            if self.kinds[item] == OUT:
                y[item] = max(y)
        return y

    def _skyline(self, rows: list[list[int]], x: list[float]) -> list[float]:
        count = self.count
        left = min(x[i] - self.width[i] / 2 for i in range(len(x))) - GAP_ACROSS
        right = max(x[i] + self.width[i] / 2 for i in range(len(x))) + GAP_ACROSS
        cells = int((right - left) / _BUCKET) + 2
        sky = [0.0] * cells
        y = [0.0] * len(x)

        def span(item: int) -> tuple[int, int]:
            # Narrower than the distances kept across, so that neighbours never touch.
            half = self.width[item] / 2 + 2 if item < count else 1.0
            start = int((x[item] - half - left) / _BUCKET)
            return start, int((x[item] + half - left) / _BUCKET) + 1

        for row in rows:
            # A box at the end of a lane comes first and keeps the lane free down to itself.
            for item in sorted(row, key=lambda i: not any(a >= count for a in self.above[i])):
                if item < count and self.kinds[item] == IN:
                    continue
                start, end = span(item)
                where = max(sky[start:end])
                for link in self.above[item]:
                    port = link < count and self.kinds[link] == IN
                    gap = GAP_ALONG * 0.6 if port else GAP_ALONG if link < count else 12.0
                    where = max(where, y[link] + self.height[link] + gap)
                y[item] = where
                gap = 6.0 if item >= count else GAP_ALONG
                sky[start:end] = [where + self.height[item] + gap] * (end - start)
                for link in self.above[item]:
                    if link >= count and item < count:
                        a, b = span(link)
                        for cell in range(a, b):
                            sky[cell] = max(sky[cell], where - 4.0)
        self._sink_sources(y, x, span, cells)
        bottom = max(
            (y[i] + self.height[i] for i in range(len(x)) if i >= count or self.kinds[i] != OUT),
            default=0.0,
        )
        for item in range(count):
            if self.kinds[item] == OUT:
                y[item] = bottom + GAP_ALONG * 0.6
        return y

    def _sink_sources(
        self, y: list[float], x: list[float], span: Callable[[int], tuple[int, int]], cells: int
    ) -> None:
        """Bring boxes that read nothing down to their first reader, as far as there is room."""
        count = self.count
        roof = [float("inf")] * cells
        for item in sorted(range(len(x)), key=lambda i: (-y[i], i)):
            start, end = span(item)
            if item < count and self.kinds[item] == CHILD and not self.above[item]:
                links = self.below[item]
                reach = min((y[b] for b in links), default=float("-inf")) - GAP_ALONG
                lowest = min(reach, min(roof[start:end])) - self.height[item]
                if lowest > y[item] and lowest != float("inf"):
                    y[item] = lowest
            limit = y[item] - (6.0 if item >= count else GAP_ALONG)
            for cell in range(start, end):
                roof[cell] = min(roof[cell], limit)


def _ranks(count: int, kinds: Sequence[int], edges: Sequence[tuple[int, int, int]]) -> list[int]:
    below: list[list[int]] = [[] for _ in range(count)]
    above: list[list[int]] = [[] for _ in range(count)]
    for source, target, _ in edges:
        below[source].append(target)
        above[target].append(source)
    first = 1 if IN in kinds else 0
    rank = [0 if kind == IN else first for kind in kinds]
    try:
        order = list(TopologicalSorter(dict(enumerate(above))).static_order())
    except CycleError:
        raise ValueError("the boxes of one container must not form a cycle") from None
    for item in order:
        rank[item] = max([rank[item], *(rank[a] + 1 for a in above[item])])
    # What depends on nothing that changes (a weight, a weight's transpose) stands by its reader.
    still = [kind == CHILD for kind in kinds]
    for item in order:
        still[item] = still[item] and all(still[a] for a in above[item])
    for item in reversed(order):
        if still[item] and below[item] and len(above[item]) <= 1:
            rank[item] = max(rank[item], min(rank[b] for b in below[item]) - 1)
    last = max(rank)
    if OUT in kinds:
        last = max([rank[i] for i in range(count) if kinds[i] != OUT], default=0) + 1
        for i in range(count):
            if kinds[i] == OUT:
                rank[i] = last
    used = sorted(set(rank))
    index = {r: i for i, r in enumerate(used)}
    return [index[r] for r in rank]


def _sweep(
    rows: list[list[int]], place: list[float], near: list[list[int]], order: Sequence[int]
) -> None:
    """Sort each row by the mean place of its neighbours; places are set as it goes."""
    for r in order:
        row = rows[r]
        if len(row) > 1:
            keys = {}
            for j, item in enumerate(row):
                links = near[item]
                keys[item] = sum(place[i] for i in links) / len(links) if links else place[item]
                if not links and not place[item]:
                    keys[item] = j / len(row)
            row.sort(key=keys.__getitem__)
        step = 1.0 / len(row)
        for j, item in enumerate(row):
            place[item] = (j + 0.5) * step


def _crossings(rows: list[list[int]], below: list[list[int]]) -> int:
    """How many pairs of edges between neighbouring rows cross."""
    where = {item: j for row in rows for j, item in enumerate(row)}
    total = 0
    for row in rows:
        seen: list[int] = []
        for item in row:
            ends = [where[b] for b in below[item]]
            for end in ends:
                total += len(seen) - bisect_right(seen, end)
            for end in ends:
                insort(seen, end)
    return total
