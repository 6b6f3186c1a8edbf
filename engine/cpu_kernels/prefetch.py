"""Prefetch weights in products that `engine.cpu_kernels.schedules` laid out.

Each step that computes tiles of one part of a weight prefetches a few lines of the next (Mowry, Lam
and Gupta, ASPLOS 1992).
"""

from collections.abc import Sequence
from typing import Any

from relascope.engine.cpu_kernels import packed_matmul as packed
from relascope.engine.cpu_kernels.packed_matmul import MatmulTile
from relascope.engine.cpu_kernels.schedules import Dialect

_LINE = 16  # float32 numbers in a line of the cache


def read_ahead(dialect: Dialect, function: Any) -> Any:
    """A scheduled kernel in which loops marked with `packed.AHEAD` prefetch what comes next."""
    tir = dialect.tir
    prefix = tir.__name__.rpartition(".")[2]
    found = False

    def fetch(buffer: Any, place: Sequence[Any]) -> Any:
        address = tir.call_intrin("handle", f"{prefix}.address_of", tir.BufferLoad(buffer, place))
        read, keep, data = 0, 3, 1
        asked = tir.call_intrin("void", f"{prefix}.prefetch", address, read, keep, data)
        return tir.Evaluate(asked)

    def visit(loop: Any) -> Any:
        nonlocal found
        if packed.AHEAD not in loop.annotations:
            return None
        found = True
        kept = {k: v for k, v in loop.annotations.items() if k != packed.AHEAD}
        weight, places = _asked(dialect, loop)
        body = tir.stmt_seq(*(fetch(weight, place) for place in places), loop.body)
        return tir.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, kept)

    body = dialect.loops(function.body, visit)
    return function.with_body(body) if found else function


Places = list[list[Any]]


def _asked(dialect: Dialect, loop: Any) -> tuple[Any, Places]:
    """The weight that a loop reads, and the places of the lines that a step prefetches."""
    nodes = dialect.nodes(loop.body)
    inner = [(n.loop_var, n.min) for n in nodes if isinstance(n, dialect.tir.For)]
    (made,) = (n for n in nodes if hasattr(n, "iter_values"))
    notes = made.block.annotations
    find = {packed.PRODUCT: _panel, packed.STRIPS: _strip, packed.DOTS: _rows}
    at = [dialect.put(value, inner) for value in made.iter_values]
    extents = [int(v.dom.extent) for v in made.block.iter_vars]
    places = find[str(loop.annotations[packed.AHEAD])](at, extents, MatmulTile.noted(notes), loop)
    return dialect.buffer(made.block.reads[-1]), places


def _panel(at: Sequence[Any], extents: Sequence[int], tile: MatmulTile, loop: Any) -> Places:
    """The share of the next panel of a packed weight for each step of each tile."""
    (rows, _, inner), (row, column, _) = extents, at
    panel = column // tile.columns + 1
    step = row // tile.rows * loop.extent + loop.loop_var
    lines = _share(inner * tile.columns // _LINE, rows // tile.rows * int(loop.extent), step)
    return [[panel, 0, line * _LINE] for line in lines]


def _strip(at: Sequence[Any], extents: Sequence[int], tile: MatmulTile, loop: Any) -> Places:
    """The share for each step of the next columns in a strip, or of the first in the next strip."""
    (_, rows, columns, deep), (strip, row, column, _) = extents, at
    step = row // tile.rows * loop.extent + loop.loop_var
    part = columns // packed.parts(columns // tile.columns)
    following = column % part + tile.columns
    strip += following // part
    column += following % part - column % part
    lines = _share(deep, rows // tile.rows * int(loop.extent), step)
    return [
        [strip * deep + line, column + first]
        for line in lines
        for first in range(0, tile.columns, _LINE)
    ]


def _rows(at: Sequence[Any], extents: Sequence[int], tile: MatmulTile, loop: Any) -> Places:
    """The share of the next rows of a transposed weight for each step of each tile."""
    (rows, _, lanes, inner), (row, column, _, _) = extents, at
    block = tile.columns * packed.ROW_BLOCK
    pair = column % block // tile.columns
    step = (row // tile.rows * packed.ROW_BLOCK + pair) * loop.extent + loop.loop_var
    steps = rows // tile.rows * packed.ROW_BLOCK * int(loop.extent)
    first = (column // block + 1) * block
    return [[first, line * _LINE] for line in _share(block * inner * lanes // _LINE, steps, step)]


def _share(lines: int, steps: int, step: Any) -> list[Any]:
    """The lines that a step prefetches, so that all steps together prefetch all of them."""
    each = -(-lines // steps)
    return [step * each + k for k in range(each)]
