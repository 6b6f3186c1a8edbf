"""Products of a matrix of few rows, or with a weight that is known at build time.

Such a weight is packed once, at build time, into panels of columns that a product reads
sequentially. `engine.cpu_kernels.schedules` sums a tile, some rows of a panel, in registers (Goto
and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34, 2008).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

PRODUCT = "packed_product"
"""Name of the stage that sums, by which the schedule knows it."""

ROWS = "packed_rows"
"""Name of the stage that puts the rows of the left operand into tiles."""

DOTS = "row_products"
"""Name of the stage that multiplies rows with rows, a vector of sums of each pair at a time."""

OUTER = "outer_products"
"""Name of the stage that sums a few outer products: the gradient of a weight, from few rows."""

TILE_ROWS, TILE_COLUMNS = "relascope.tile_rows", "relascope.tile_columns"
TILE_LANES = "relascope.tile_lanes"
"""Annotations of these stages: the size of a tile, and of the vectors in its rows."""

AHEAD = "relascope.ahead"
"""Annotation of a loop over a weight that may prefetch what comes next: the stage's name."""

STRIPS = "strip_product"
"""Name of the stage that multiplies with some rows of a weight that is not packed."""

DTYPE = "float32"
"""The dtype that the tiles are made for."""

LANES = 8
"""float32 numbers in a vector register of 32 bytes."""


@dataclass(frozen=True)
class Registers:
    """The vector registers of a processor: how many LLVM makes good use of, and how many float32
    numbers each holds."""

    count: int
    lanes: int = LANES


AVX2, AVX512 = Registers(16), Registers(32, 2 * LANES)

_TILES = {
    LANES: {(4, 3): 1.0, (5, 2): 1.0, (6, 2): 1.04, (3, 3): 1.1, (2, 3): 1.4, (4, 2): 1.2},
    2 * LANES: {(4, 3): 1.0, (7, 2): 1.0, (6, 2): 1.06, (3, 4): 1.07, (5, 2): 1.13, (14, 1): 1.14},
}
"""By the lanes of a register, rows and vectors of tiles whose sums and operands fit into the
registers, with the cost of an element of the result relative to the best. Fewer sums than 8 wait
for each other, and more than 14 are no faster."""


_FEW = 160
"""Rows up to which libraries lose most by packing the weight in each call."""


_VERY_FEW = 48
"""Rows up to which a weight is best read without packing it."""

_ROW_TILES = {
    LANES: {(3, 3): 1.0, (5, 2): 1.5},
    2 * LANES: {(7, 2): 1.0, (4, 3): 1.04, (3, 3): 1.1, (5, 2): 1.2},
}
"""The same for products of rows with rows of a weight."""

ROW_BLOCK = 4
"""Tiles of a weight's rows that serve all rows of the left operand before the next tiles."""

_STRIPS = (128, 96, 64)
"""Rows of a weight that are read side by side: with more, address translation slows the reads."""


class MatmulTile(NamedTuple):
    """A part of the result that is summed up in registers, of `lanes` float32 numbers each: `rows`
    by `columns`."""

    rows: int
    columns: int
    lanes: int = LANES

    @property
    def notes(self) -> dict[str, int]:
        return {TILE_ROWS: self.rows, TILE_COLUMNS: self.columns, TILE_LANES: self.lanes}

    @staticmethod
    def noted(notes: Mapping[str, Any]) -> "MatmulTile":
        return MatmulTile(*(int(notes[name]) for name in (TILE_ROWS, TILE_COLUMNS, TILE_LANES)))

    def within(self, outer: Sequence[int]) -> bool:
        """Whether no tile crosses an edge of the axes that hold the rows, except the last edge."""
        *more, last = [d for d in outer if d > 1] or [1]
        return not more or last % self.rows == 0


def tile(rows: int, columns: int, registers: Registers = AVX2) -> MatmulTile | None:
    """The tile for a product of that many rows and columns; None if a library serves it better.

    Rows are padded with zeros to whole tiles; columns must be whole panels. LLVM 10 spills the sums
    of tiles that take more than 13 of 16 `registers`; smaller tiles only pay for few rows."""
    if rows < 2 or (registers.count < 16 and rows > _FEW):
        return None
    for lanes in _lanes(registers):
        costs = {
            (high, wide): cost * _filled(rows, high)
            for (high, wide), cost in _TILES[lanes].items()
            if columns % (wide * lanes) == 0 and (high + 1) * wide < registers.count
        }
        if costs:
            high, wide = min(costs, key=lambda t: costs[t])
            return MatmulTile(high, wide * lanes, lanes)
    return None


def _lanes(registers: Registers) -> tuple[int, ...]:
    """The lanes of tiles' vectors, the best first: half a register if no tile has whole ones."""
    return tuple(dict.fromkeys((registers.lanes, LANES)))


def _filled(rows: int, high: int) -> float:
    """The ratio of the rows of whole tiles to the given rows."""
    return -(-rows // high) * high / rows


def strip(rows: int, inner: int) -> int | None:
    """How many rows of an unpacked weight (inner, columns) to read at a time. None if a library,
    which packs a weight in every call, serves such a product better."""
    if rows > _VERY_FEW:
        return None
    return next((s for s in _STRIPS if inner % s == 0), None)


def parts(panels: int) -> int:
    """The number of parts that the panels of an unpacked weight are divided into."""
    return next(p for p in (4, 3, 2, 1) if panels % p == 0)


def row_tile(rows: int, columns: int, inner: int, registers: Registers = AVX2) -> MatmulTile | None:
    """The tile for a weight of shape (columns, inner) that is unknown at build time; None if a
    library, which packs the weight in every call, serves it better."""
    if not 2 <= rows <= _VERY_FEW:
        return None
    for lanes in _lanes(registers):
        costs = {
            (high, wide): cost * _filled(rows, high)
            for (high, wide), cost in _ROW_TILES[lanes].items()
            if columns % (wide * ROW_BLOCK) == 0 and inner % lanes == 0
        }
        if costs:
            return MatmulTile(*min(costs, key=lambda t: costs[t]), lanes)
    return None


def outer_tile(
    rows: int, columns: int, inner: int, registers: Registers = AVX2
) -> MatmulTile | None:
    """The tile for transposed (inner, rows) times (inner, columns), for a small inner; None if a
    library serves it better."""
    if inner > _VERY_FEW or rows % 4:
        return None
    fitting = (
        MatmulTile(4, wide * lanes, lanes)
        for lanes in _lanes(registers)
        for wide in (3, 2)
        if 5 * wide < registers.count and columns % (wide * lanes) == 0
    )
    return next(fitting, None)


def panels(weight: np.ndarray, tile: MatmulTile) -> np.ndarray:
    """A weight of shape (inner, columns) as (columns / width, inner, width), without gaps."""
    inner, columns = weight.shape
    split = weight.reshape(inner, columns // tile.columns, tile.columns)
    return np.ascontiguousarray(split.transpose(1, 0, 2))


def product(
    te: Any, tir: Any, data: Any, weight: Any, tile: MatmulTile, outer: Sequence[int]
) -> Any:
    """The product in TVM's tensor expressions. Raises ValueError if a tile would cross an edge of
    `outer`.

    `data` is of shape (rows, inner), or has several axes in place of the rows; `weight` is as
    `panels` returns it, or of shape (inner, columns) if `strip` is not None. `outer` are the
    result's axes in place of its rows, (*outer, columns); a tile must not cross their edges, which
    TVM's schedule primitives lose."""
    rows, inner, high, tiles, read = _rows_of(data, tile, outer)
    packed = len(weight.shape) == 3
    wide = tile.columns
    columns = int(weight.shape[0]) * wide if packed else int(weight.shape[1])
    if rows % high:
        # Rows beyond the end are zeros.
        def row(t: Any, k: Any, i: Any) -> Any:
            at, zero = t * high + i, tir.const(0, data.dtype)
            return tir.if_then_else(at < rows, read(at, k), zero)

        filled = te.compute((tiles, inner, high), row, name=ROWS)
    deep = inner if packed else strip(1, inner) or inner
    k = te.reduce_axis((0, deep), name="k")
    notes = tile.notes

    def one(i: Any, k: Any) -> Any:
        return filled[i // high, k, i % high] if rows % high else read(i, k)

    shape = tiles * high, columns
    if packed:

        def total(i: Any, j: Any) -> Any:
            return te.sum(one(i, k) * weight[j // wide, k, j % wide], axis=k)
    else:

        def strips(s: Any, i: Any, j: Any) -> Any:
            return te.sum(one(i, s * deep + k) * weight[s * deep + k, j], axis=k)

        stripped = te.compute((inner // deep, *shape), strips, name=STRIPS, attrs=notes)
        s = te.reduce_axis((0, inner // deep), name="s")

        def total(i: Any, j: Any) -> Any:
            return te.sum(stripped[s, i, j], axis=s)

    summed = te.compute(shape, total, name=PRODUCT, attrs=notes)
    whole = (*outer, columns)
    return te.compute(whole, lambda *at: summed[_row(at, outer), at[-1]], name="product")


def dots(te: Any, tir: Any, data: Any, weight: Any, tile: MatmulTile, outer: Sequence[int]) -> Any:
    """The product with a weight of shape (columns, inner), read row by row. Raises ValueError if a
    tile would cross an edge of `outer`. The result is of shape (*outer, columns); `tile` is from
    `row_tile`, the others are those of `product`."""
    rows, inner, high, tiles, read = _rows_of(data, tile, outer)
    columns = int(weight.shape[0])
    if rows % high:
        filled = te.compute(
            (tiles * high, inner),
            lambda i, k: tir.if_then_else(i < rows, read(i, k), tir.const(0, data.dtype)),
            name=ROWS,
        )
    k = te.reduce_axis((0, inner // tile.lanes), name="k")
    lane = te.reduce_axis((0, tile.lanes), name="lane")

    def part(i: Any, j: Any, v: Any) -> Any:
        at = k * tile.lanes + v
        return te.sum((filled[i, at] if rows % high else read(i, at)) * weight[j, at], axis=k)

    def whole(*at: Any) -> Any:
        return te.sum(lanes[_row(at, outer), at[-1], lane], axis=lane)

    lanes = te.compute((tiles * high, columns, tile.lanes), part, name=DOTS, attrs=tile.notes)
    return te.compute((*outer, columns), whole, name="row_sums")


def outer_products(te: Any, left: Any, right: Any, tile: MatmulTile) -> Any:
    """The sum of outer products of rows, in TVM's tensor expressions: from `left` (inner, rows) and
    `right` (inner, columns) to the shape (rows, columns)."""
    inner, rows = (int(d) for d in left.shape)
    k = te.reduce_axis((0, inner), name="k")

    def total(i: Any, j: Any) -> Any:
        return te.sum(left[k, i] * right[k, j], axis=k)

    return te.compute((rows, int(right.shape[1])), total, name=OUTER, attrs=tile.notes)


def _rows_of(data: Any, tile: MatmulTile, outer: Sequence[int]) -> tuple[int, int, int, int, Any]:
    """Rows, elements of each, rows of a tile, number of tiles, and a function that reads one."""
    if not tile.within(outer):
        raise ValueError(f"tiles of {tile.rows} rows cross edges of {tuple(outer)}")
    *given, inner = (int(d) for d in data.shape)
    rows = math.prod(given)

    def read(row: Any, k: Any) -> Any:
        place = [k]
        for extent in given[:0:-1]:
            place.insert(0, row % extent)
            row = row // extent
        position = (row, *place)
        return data[position]

    return rows, inner, tile.rows, -(-rows // tile.rows), read


def _row(index: Sequence[Any], outer: Sequence[int]) -> Any:
    """The row number of an element, from its place on these axes and a last one."""
    row: Any = 0
    for position, extent in zip(index[:-1], outer, strict=True):
        row = row if extent == 1 else row * extent + position
    return row
