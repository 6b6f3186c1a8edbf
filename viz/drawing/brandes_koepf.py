"""Places across for layered rows: long straight runs, few bends.

The method is Brandes and Köpf's "Fast and simple horizontal coordinate assignment" (2001): items
are aligned with a median neighbour into vertical blocks, blocks are packed side by side, once for
each of the four combinations of up or down and left or right, and every item takes the mean of its
two middle answers. Edges may start and end beside their items' centres, so the items of a block
carry a shift. Packing is a longest path over the graph of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter
from itertools import pairwise

Links = Sequence[Sequence[int]]
Shifts = Sequence[Sequence[float]]


def places_across(
    rows: Sequence[Sequence[int]],
    offsets: Sequence[Sequence[float]],
    above: tuple[Links, Shifts],
    below: tuple[Links, Shifts],
    first_dummy: int,
) -> list[float]:
    """The centres of all items.

    Args:
        rows: the items, from the first row to the last, each row in its order.
        offsets: for each row rising positions whose differences are the least distances.
        above: for each item its neighbours in the row above, and how far right of each of them it
            has to be for the edge between them to be straight.
        below: the same for the row below.
        first_dummy: items from this number on are points of long edges.

    Returns:
        One number an item, in the unit of `offsets`. Rows keep their order and least distances.
    """
    count = len(above[0])
    place = [0] * count
    for row in rows:
        for j, item in enumerate(row):
            place[item] = j
    crossed = _crossed(rows, above[0], place, first_dummy)
    answers = []
    for upward in (False, True):
        links, shifts = below if upward else above
        order, gaps = (rows[::-1], offsets[::-1]) if upward else (rows, offsets)
        for mirrored in (False, True):
            root, shift = _align(order, links, shifts, place, crossed, upward, mirrored)
            answers.append(_pack(order, gaps, root, shift, mirrored))
    return _balance(answers)


def _crossed(
    rows: Sequence[Sequence[int]], above: Links, place: Sequence[int], first_dummy: int
) -> set[tuple[int, int]]:
    """Edges that cross a stretch of a long edge: those must bend, long edges stay straight."""
    crossed: set[tuple[int, int]] = set()
    for upper, row in pairwise(rows):
        left, start = -1, 0
        for j, item in enumerate(row):
            inner = next((u for u in above[item] if item >= first_dummy and u >= first_dummy), None)
            if inner is None and j < len(row) - 1:
                continue
            right = place[inner] if inner is not None else len(upper)
            for reader in row[start : j + 1]:
                for source in above[reader]:
                    at = place[source]
                    both = reader >= first_dummy and source >= first_dummy
                    if (at < left or at > right) and not both:
                        crossed.add((source, reader))
            left, start = right, j + 1
    return crossed


def _align(
    order: Sequence[Sequence[int]],
    links: Links,
    shifts: Shifts,
    place: Sequence[int],
    crossed: set[tuple[int, int]],
    upward: bool,
    mirrored: bool,
) -> tuple[list[int], list[float]]:
    """Join each item with a median neighbour where that crosses no other join of the row."""
    count = len(place)
    root = list(range(count))
    shift = [0.0] * count
    taken = [False] * count
    for row in order:
        last: float = float("inf") if mirrored else -1
        for item in reversed(row) if mirrored else row:
            near = links[item]
            by_place = sorted(range(len(near)), key=lambda k: place[near[k]])
            medians = by_place[(len(near) - 1) // 2 : len(near) // 2 + 1]
            for k in reversed(medians) if mirrored else medians:
                neighbour = near[k]
                pair = (item, neighbour) if upward else (neighbour, item)
                free = place[neighbour] < last if mirrored else place[neighbour] > last
                if free and not taken[neighbour] and pair not in crossed:
                    taken[neighbour] = True
                    root[item] = root[neighbour]
                    shift[item] = shift[neighbour] + shifts[item][k]
                    last = place[neighbour]
                    break
    return root, shift


def _pack(
    rows: Sequence[Sequence[int]],
    offsets: Sequence[Sequence[float]],
    root: Sequence[int],
    shift: Sequence[float],
    mirrored: bool,
) -> list[float]:
    """Blocks as far to one side as they go, then back towards what they are packed against."""
    count = len(root)
    after: dict[int, list[tuple[int, float]]] = {}
    before: dict[int, list[tuple[int, float]]] = {}
    for row, offset in zip(rows, offsets, strict=True):
        for j in range(1, len(row)):
            left, right = row[j - 1], row[j]
            gap = offset[j] - offset[j - 1] + shift[left] - shift[right]
            a, b = root[left], root[right]
            if mirrored:
                a, b = b, a
            after.setdefault(a, []).append((b, gap))
            before.setdefault(b, []).append((a, gap))
    against = {block: [other for other, _ in before.get(block, ())] for block in set(root)}
    sorted_blocks = list(TopologicalSorter(against).static_order())
    x: dict[int, float] = {}
    for block in sorted_blocks:
        x[block] = max((x[other] + gap for other, gap in before.get(block, ())), default=0.0)
    for block in reversed(sorted_blocks):
        if block in after:
            x[block] = max(x[block], min(x[other] - gap for other, gap in after[block]))
    sign = -1.0 if mirrored else 1.0
    return [sign * x[root[i]] + shift[i] for i in range(count)]


def _balance(answers: list[list[float]]) -> list[float]:
    """Move the four answers to the narrowest one's side, then take the mean of the middle two."""
    ends = [(min(a), max(a)) for a in answers]
    low, high = min(ends, key=lambda e: e[1] - e[0])
    for k, answer in enumerate(answers):
        move = high - ends[k][1] if k % 2 else low - ends[k][0]
        answers[k] = [v + move for v in answer]
    middle = []
    for four in zip(*answers, strict=True):
        _, second, third, _ = sorted(four)
        middle.append((second + third) / 2)
    return middle
