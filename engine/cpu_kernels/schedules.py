"""Schedules for kernels that TVM's passes leave as plain loops on the CPU, for either IR's TVM.

Steps are inlined, reductions run along memory, large kernels run on threads, and products of
`engine.cpu_kernels.packed_matmul` are computed in register tiles. LLVM vectorises the inner loops;
the target permits reassociation. The primitives are TVM's (Feng et al., "TensorIR", ASPLOS 2023).
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from relascope.engine.cpu_kernels import max_pool, packed_matmul
from relascope.engine.cpu_kernels.packed_matmul import LANES

SCHEDULES = "-schedules=relascope"
"""A CPU target's option for kernels scheduled here."""

FLAGS = ("fast-math-reassoc", "fast-math-contract", "fast-math-nsz")
"""What such a target allows LLVM: to sum in any order, and to join products with sums, which
vectors need. NaN and infinities stay intact."""

FEW_FLOPS = 1_000_000
"""Multiplications and additions below which a product of two results is small."""

_PARALLEL = 1 << 17
"""Elements from which a kernel is worth waking other threads for."""

_CHUNK = 512
"""Columns that a thread sums at a time: their sums stay in the L1 cache."""

_NARROWEST = 64
"""Columns below which chunks would leave vectors half empty."""

_SHARES = 16
"""Panels of a weight, or rows of tiles, from which each goes to one thread."""

_PRODUCTS = (packed_matmul.PRODUCT, packed_matmul.DOTS, packed_matmul.OUTER)
"""Stages that are laid out in tiles."""

_STEPS = 8
"""The most rows of a weight, or vectors of a row, between two prefetches."""

_DEAR = frozenset(("exp", "erf", "tanh", "sigmoid", "log", "pow", "sin", "cos", "rsqrt"))
"""Intrinsics that are too dear to compute anew for each of several readers."""

_CALLED = frozenset(("sin", "cos"))
"""Those that `vector_math` has functions of a library for, which LLVM cannot put into a loop."""

_DEEP = 3
"""Dear calls from which a step is not inlined: TVM's LLVM code generator writes out the operand of
a nested call, and would take minutes for four in a row."""
_LONG = 300
"""Expressions from which a step is long: each step that reads another twice would double them."""
_OPERANDS = "a", "b", "value"
"""Fields of TVM's expressions."""
_WRITTEN_OUT = 64
"""The most iterations of a loop to unroll."""
_MOST_PARTS = 128
"""Operands of a concatenation from which TVM would take seconds more to write each one's loop."""


@dataclass(frozen=True)
class Dialect:
    """What differs between the TVMs. `get_block` names a schedule's method that finds a block by
    its name, `region` a read region's attribute for its buffer. `walk` visits everything in a
    statement; `loops` returns a statement with other loops: its function returns a loop's
    replacement, or None; `put` returns an expression with values in place of variables, given as
    pairs."""

    tvm: Any
    tir: Any
    scheduling: Any
    call: Any
    get_block: str
    region: str
    walk: Callable[[Any, Callable[[Any], None]], Any]
    loops: Callable[[Any, Callable[[Any], Any | None]], Any]
    put: Callable[[Any, Sequence[tuple[Any, Any]]], Any]

    def open(self, function: Any) -> Any:
        return self.scheduling.Schedule(self.tvm.IRModule({"main": function}))

    def block(self, schedule: Any, name: str) -> Any:
        return getattr(schedule, self.get_block)(name)

    def buffer(self, region: Any) -> Any:
        return getattr(region, self.region)

    def nodes(self, statement: Any) -> list[Any]:
        found: list[Any] = []
        self.walk(statement, found.append)
        return found

    def reads(self, expression: Any, variables: Sequence[Any]) -> bool:
        return any(v.same_as(f) for f in self.nodes(expression) for v in variables)

    def divisors(self, statement: Any, variables: Sequence[Any]) -> set[int]:
        """The numbers by which a statement divides expressions of these variables."""
        kinds = self.tir.FloorDiv, self.tir.FloorMod
        divided = [n for n in self.nodes(statement) if isinstance(n, kinds)]
        known = [(n.a, int(n.b)) for n in divided if isinstance(n.b, self.tir.IntImm)]
        return {by for value, by in known if by > 1 and self.reads(value, variables)}

    def called(self, statement: Any) -> tuple[Counter[str], int]:
        """How often a statement calls each intrinsic (without the dialect's prefix), and its number
        of expressions."""
        nodes, op = self.nodes(statement), self.tvm.ir.Op
        called = [n.op for n in nodes if isinstance(n, self.call) and isinstance(n.op, op)]
        return Counter(str(c.name).partition(".")[2] for c in called), len(nodes)


def scheduled(dialect: Dialect, function: Any, sure: bool = False) -> Any | None:
    """A kernel's schedule; None for a kernel of a form that these rules do not know, or, if `sure`,
    where they may not beat TVM's own."""
    kernel = _Kernel(dialect, function)
    try:
        if sure and not kernel.suits():
            return None
        kernel.schedule()
        kernel.unfold()
        kernel.part()
    except dialect.scheduling.ScheduleError:  # it has no root block, or a primitive refused
        return None
    return kernel.sch


class _Kernel:
    def __init__(self, dialect: Dialect, function: Any) -> None:
        self.tvm, self.sch = dialect, dialect.open(function)

    def suits(self) -> bool:
        """Whether the rules do well here: no reduction over windows, or of two matrices."""
        ours = (*_PRODUCTS, packed_matmul.STRIPS)
        others = [b for b in self._blocks() if self._is_reduction(b) and self._name(b) not in ours]
        return not any(self._is_hard(self.sch.get(b)) for b in others)

    def _is_hard(self, block: Any) -> bool:
        kept = {v.var for v in block.iter_vars if not self._reduces(v)}
        places = {v.var for v in block.iter_vars}
        read: list[set[Any]] = []
        for region in block.reads:
            starts = [r.min for r in region.region]
            plain = {v for v in places if any(v.same_as(s) for s in starts)}
            numbers = sum(isinstance(s, self.tvm.tir.IntImm) for s in starts)
            if len(plain) + numbers != len(starts):
                return True
            read.append(plain & kept)
        return any(a - b and b - a for a in read for b in read)

    def schedule(self) -> None:
        ways = dict(zip(_PRODUCTS, (self._product, self._dots, self._outer), strict=True))
        blocks = self._blocks()
        # Relay makes blocks of a number. LLVM would reorder computations with one that it knows.
        numbers = [b for b in blocks if self._is_number(b)]
        if not ways.keys().isdisjoint(map(self._name, blocks)):
            for block in numbers:
                self.sch.compute_inline(block)
            numbers = []
        opaque = {self._name(b) for b in self._but(*numbers) if not self._plain(b)}
        for name in map(self._name, self._blocks()):
            if name in ways and not opaque:
                ways[name]()
                return
        self._inline({*opaque, *map(self._name, numbers), *max_pool.STAGES})
        blocks = self._but(*numbers)
        if blocks and not opaque and self._row_by_row(blocks):
            return
        for block in blocks:
            if self._name(block) not in opaque:
                (self._reduction if self._is_reduction(block) else self._pointwise)(block)

    def unfold(self) -> None:
        """Split innermost loops where an index divides their counter, as a reshape's does.

        If the divisor is as long as the vector, LLVM 22 vectorises a loop that reads at k // 4 and
        k % 4 so that it reads past the end. A loop that the divisor does not divide, such as a
        reshape's after a slice that begins at 1, is unrolled.
        """
        for block in self._blocks():
            loops = self.sch.get_loops(block)
            loop = self.sch.get(loops[-1]) if loops else None
            if loop is None or int(loop.kind) != self.tvm.tir.ForKind.SERIAL:
                continue
            inside = getattr(loop.body, "iter_values", None)
            if inside is None or not isinstance(loop.extent, self.tvm.tir.IntImm):
                continue
            made = self.sch.get(block)
            counted = [
                v.var
                for v, value in zip(made.iter_vars, inside, strict=True)
                if self.tvm.reads(value, [loop.loop_var])
            ]
            rest, factors = int(loop.extent), []
            found = self.tvm.divisors(made.body, counted)
            for divisor in sorted(found, reverse=True):
                if divisor < rest and rest % divisor == 0:
                    factors.append(rest // divisor)
                    rest = divisor
            if factors:
                self.sch.split(loops[-1], factors=[*factors, rest])
            elif any(1 < d < rest for d in found):
                long = rest > _WRITTEN_OUT
                self.sch.unroll(self._split(loops[-1], 16)[-1] if long else loops[-1])
            elif rest % LANES == 0 and not self._is_reduction(block) and self._calls(made):
                self.sch.vectorize(self._split(loops[-1], LANES)[-1])

    def part(self) -> None:
        """Write a loop once for each operand of a concatenation, without conditions."""
        for block in self._blocks():
            made, loops = self.sch.get(block), self.sch.get_loops(block)
            inner = self.sch.get(loops[-1]).body if loops else None
            bounds = self._bounds(made.body) if len(made.reads) > 1 else []
            for axis, value in zip(made.iter_vars, getattr(inner, "iter_values", ()), strict=False):
                begins = {int(c.a) for c in bounds if axis.var.same_as(c.b)}
                over = [x for x in loops if self.sch.get(x).loop_var.same_as(value)]
                inside = sorted(b for b in begins if over and 0 < b < self._extent(*over))
                if 0 < len(inside) < _MOST_PARTS:
                    lengths = [b - a for a, b in pairwise([0, *inside])]
                    self.sch.loop_partition(*over, [*lengths, None])
                    break

    def _bounds(self, body: Any) -> list[Any]:
        """Conditions of a body's choices: that a place is some number or beyond."""
        tir, op = self.tvm.tir, self.tvm.tvm.ir.Op
        calls = [n for n in self.tvm.nodes(body) if isinstance(n, self.tvm.call)]
        chosen = [c for c in calls if isinstance(c.op, op) and c.op.name.endswith("if_then_else")]
        asked = [c.args[0] for c in chosen]
        return [a for a in asked if isinstance(a, tir.LE) and isinstance(a.a, tir.IntImm)]

    def _calls(self, made: Any) -> bool:
        return not _CALLED.isdisjoint(self.tvm.called(made.body)[0])

    def _name(self, block: Any) -> str:
        return str(self.sch.get(block).name_hint)

    def _blocks(self) -> list[Any]:
        return list(self.sch.get_child_blocks(self.tvm.block(self.sch, "root")))

    def _split(self, loop: Any, *extents: int) -> Any:
        """A loop as several nested ones, the inner ones of these lengths."""
        return self.sch.split(loop, factors=[None, *extents])

    def _extent(self, loop: Any) -> int:
        return int(self.sch.get(loop).extent)

    def _plain(self, block: Any) -> bool:
        """Whether a block is one statement in one loop of known length for each axis."""
        loops, known = self.sch.get_loops(block), self._known(block)
        axes = self.sch.get(block).iter_vars
        axis = self.tvm.tir.IterVar
        kinds = {int(v.iter_type) for v in axes} <= {axis.DataPar, axis.CommReduce}
        return known and 0 < len(loops) == len(axes) and kinds

    def _known(self, block: Any) -> bool:
        extents = (self.sch.get(loop).extent for loop in self.sch.get_loops(block))
        return all(isinstance(extent, self.tvm.tir.IntImm) for extent in extents)

    def _outputs(self) -> frozenset[str]:
        return frozenset(map(self._name, self.sch.get_output_blocks("root")))

    def _inline(self, kept: set[str]) -> None:
        """Inline each step into its readers, unless that repeats dear work."""
        outputs = self._outputs() | kept
        for block in self._blocks():
            made = self.sch.get(block)
            if str(made.name_hint) in outputs or self._is_reduction(block):
                continue
            called, size = self.tvm.called(made.body)
            dear = sum(called[name] for name in _DEAR)
            if dear >= _DEEP or ((dear or size > _LONG) and self._repeated(block)):
                continue
            try:
                self.sch.compute_inline(block)
            except self.tvm.scheduling.ScheduleError:
                continue  # such as a gather, whose reader needs the value at another place

    def _repeated(self, block: Any) -> bool:
        """Whether a step would be computed for several readers, or for many elements of one."""
        readers = self.sch.get_consumers(block)
        if len(readers) != 1 or not (self._known(readers[0]) and self._known(block)):
            return True
        return self._steps(readers[0]) > self._steps(block)

    def _is_number(self, block: Any) -> bool:
        made = self.sch.get(block)
        stored = isinstance(made.body, self.tvm.tir.BufferStore)
        return stored and not (self.sch.get_loops(block) or made.reads)

    def _steps(self, block: Any) -> int:
        return math.prod(map(self._extent, self.sch.get_loops(block)))

    def _is_reduction(self, block: Any) -> bool:
        return any(map(self._reduces, self.sch.get(block).iter_vars))

    def _reduces(self, axis: Any) -> bool:
        return int(axis.iter_type) == self.tvm.tir.IterVar.CommReduce

    def _row_by_row(self, blocks: Sequence[Any]) -> bool:
        """Compute all steps of a row before the next row, as in a softmax or layer norm, or of a
        plane of a pooling's gradient, so that little is held between them. Returns False if the
        kernel is not of this form: all steps' outer loops are the same rows, or planes.
        """
        sch = self.sch
        *before, last = blocks
        loops = sch.get_loops(last)
        steps = max(map(self._steps, blocks))
        outer = loops[: -2 if any(self._name(b) in max_pool.STAGES for b in before) else -1]
        rows = [self._extent(loop) for loop in outer]
        if not before or self._is_reduction(last) or math.prod(rows) < 2:
            return False
        outputs = self._outputs()
        for block in before:
            mine = [self._extent(loop) for loop in sch.get_loops(block)]
            axes = sch.get(block).iter_vars
            same = mine[: len(rows)] == rows and not any(map(self._reduces, axes[: len(rows)]))
            if not same or self._name(block) in outputs:
                return False
        row = sch.fuse(*outer) if len(rows) > 1 else outer[0]
        if steps >= _PARALLEL:
            sch.parallel(row)
        for block in reversed(before):
            sch.compute_at(block, row)
        for block in filter(self._is_reduction, before):
            if loops := sch.get_loops(block)[1:]:  # none if it reduces a single element
                sch.decompose_reduction(block, loops[0])
        return True

    def _reduction(self, block: Any) -> None:
        """Run a reduction along memory, and parallelise it; for that, sums of rows are split into
        chunks of columns."""
        sch = self.sch
        axes, count = sch.get(block).iter_vars, self._steps(block)
        fastest, loops = self._fastest(sch.get(block)), self._in_pieces(block)
        outer = [x for x, v in zip(loops, axes, strict=False) if not self._reduces(v)]
        reduced = [x for x, v in zip(loops, axes, strict=False) if self._reduces(v)]
        inner = []
        if fastest is not None and not self._reduces(axes[fastest]):
            column = loops[min(fastest, len(loops) - 1)]
            outer.remove(column)
            inner.append(column)
            columns = self._extent(column)
            width = next(w for w in range(min(columns, _CHUNK), 0, -1) if columns % w == 0)
            if columns > width >= _NARROWEST:
                chunk, inner[0] = self._split(column, width)
                outer.append(chunk)
        sch.reorder(*outer, *reduced, *inner)
        if outer:
            self._share(outer, count)
        sch.decompose_reduction(block, reduced[0])

    def _pointwise(self, block: Any) -> None:
        """Share the outer loops; the innermost is left to LLVM."""
        loops, steps = self._in_pieces(block), self._steps(block)
        if len(loops) > 1:
            self._share(loops[:-1], steps)

    def _in_pieces(self, block: Any) -> list[Any]:
        """A block's loops, of which the last are fused while they go through whole pieces of
        memory. LLVM would unroll a short loop, and gather vectors along the next."""
        made, loops = self.sch.get(block), list(self.sch.get_loops(block))
        axes, first = list(made.iter_vars), len(loops) - 1
        free = self._steps(block) < _PARALLEL
        while (
            first
            and (free or math.prod(map(self._extent, loops[: first - 1])) >= _SHARES)
            and self._is_piece(made, axes[first - 1 :])
        ):
            first -= 1
        return [*loops[:first], self.sch.fuse(*loops[first:])] if loops[first + 1 :] else loops

    def _is_piece(self, made: Any, axes: Sequence[Any]) -> bool:
        """Whether a block reduces all or none of some axes, does not compute with their places, and
        reads and writes them whole and last, or the same for all."""
        operands = [getattr(n, p, None) for n in self.tvm.nodes(made.body) for p in _OPERANDS]
        counts = any(v.var.same_as(n) for v in axes for n in operands)
        if counts or len({*map(self._reduces, axes)}) > 1:
            return False
        for region in (*made.reads, *made.writes):
            places = [r.min for r in region.region]
            if any(self.tvm.reads(place, [v.var for v in axes]) for place in places):
                last = list(zip(places, self.tvm.buffer(region).shape, strict=True))[-len(axes) :]
                extents = [getattr(n, "value", None) for _, n in last]
                same = [v.var.same_as(at) for v, (at, _) in zip(axes, last, strict=False)]
                if not all(same) or extents != [int(v.dom.extent) for v in axes]:
                    return False
        return True

    def _share(self, loops: Sequence[Any], count: int) -> None:
        """Let threads share adjacent loops, if that is worth waking them."""
        loop = self.sch.fuse(*loops) if len(loops) > 1 else loops[0]
        if count >= _PARALLEL and self._extent(loop) > 1:
            self.sch.parallel(loop)

    def _fastest(self, block: Any) -> int | None:
        """The axis of a block that runs along memory in its largest operand; None if none does."""
        axes = {v.var: k for k, v in enumerate(block.iter_vars)}
        sizes = [math.prod(map(int, self.tvm.buffer(r).shape)) for r in block.reads]
        largest = block.reads[sizes.index(max(sizes))] if sizes else None
        if largest is None or not largest.region:
            return None
        return axes.get(largest.region[-1].min)

    def _product(self) -> None:
        """Compute a product of `packed_matmul`, its weight packed or as given.

        Each panel of a packed weight serves all rows before the next panel.
        """
        self._inline({packed_matmul.PRODUCT, packed_matmul.ROWS, packed_matmul.STRIPS})
        product = self.tvm.block(self.sch, packed_matmul.PRODUCT)
        strips = [b for b in self._blocks() if self._name(b) == packed_matmul.STRIPS]
        if strips:
            self._streamed(product, *strips)
        else:
            self._tiled(product, panels_first=True)

    def _outer(self) -> None:
        """Sum outer products in the result's order in memory."""
        self._inline({packed_matmul.OUTER})
        self._tiled(self.tvm.block(self.sch, packed_matmul.OUTER), panels_first=False)

    def _tile(self, product: Any) -> packed_matmul.MatmulTile:
        return packed_matmul.MatmulTile.noted(self.sch.get(product).annotations)

    def _but(self, *blocks: Any) -> list[Any]:
        done = set(map(self._name, blocks))
        return [b for b in self._blocks() if self._name(b) not in done]

    def _tiled(self, product: Any, panels_first: bool) -> None:
        """Compute a product tile by tile, and what follows it on each tile.

        Loops of a tile are unrolled, as its sums stay in registers. Threads share the outermost
        loop, or the tiles if that is short.
        """
        sch = self.sch
        high, wide, lanes = self._tile(product)
        readers = list(sch.get_consumers(product))
        if not readers:
            readers = [sch.cache_write(product, 0, "global")]
        others = self._but(product, *readers)
        rows, columns, inner = sch.get_loops(product)
        tiles, row = self._split(rows, high)
        panels, vectors, lane = self._split(columns, wide // lanes, lanes)
        first, second = (panels, tiles) if panels_first else (tiles, panels)
        sch.reorder(first, second, inner, row, vectors, lane)
        for reader in readers:
            sch.reverse_compute_at(reader, second)
            *_, last = sch.get_loops(reader)
            if self._extent(last) % lanes == 0:
                _, last = self._split(last, lanes)
                sch.vectorize(last)
        sch.parallel(first if self._extent(first) >= _SHARES else sch.fuse(first, second))
        if panels_first:
            inner = self._ahead(inner, packed_matmul.PRODUCT)
        self._in_registers(product, inner, row, vectors, lane)
        for block in others:
            self._pointwise(block)

    def _ahead(self, loop: Any, stage: str) -> Any:
        """Split a loop into steps, before each of which the next data may be prefetched."""
        extent = self._extent(loop)
        step = next(n for n in range(min(extent, _STEPS), 0, -1) if extent % n == 0)
        steps, _ = self._split(loop, step)
        self.sch.annotate(steps, packed_matmul.AHEAD, stage)
        return steps

    def _in_registers(self, product: Any, inner: Any, row: Any, column: Any, lane: Any) -> None:
        """Unroll the loops of a tile, and set its sums to zero before the loop `inner`."""
        self.sch.vectorize(lane)
        self.sch.unroll(column)
        self.sch.unroll(row)
        self.sch.decompose_reduction(product, inner)

    def _dots(self) -> None:
        """Multiply rows with rows of a weight in registers, and sum each register.

        A few rows of the weight stay in cache for all rows of the left operand, so it is read once.
        """
        sch = self.sch
        self._inline({packed_matmul.DOTS, packed_matmul.ROWS})
        products = self.tvm.block(sch, packed_matmul.DOTS)
        (sums,) = sch.get_consumers(products)
        after = sch.get_consumers(sums)
        others = self._but(products, sums, *after)
        high, wide, _ = self._tile(products)
        rows, columns, lane, inner = sch.get_loops(products)
        tiles, row = self._split(rows, high)
        block, pair, column = self._split(columns, packed_matmul.ROW_BLOCK, wide)
        sch.reorder(block, tiles, pair, inner, row, column, lane)
        for reader in (sums, *after):
            sch.reverse_compute_at(reader, pair)
        sch.parallel(block)
        self._in_registers(products, self._ahead(inner, packed_matmul.DOTS), row, column, lane)
        for other in others:
            self._pointwise(other)

    def _streamed(self, product: Any, parts: Any) -> None:
        """Compute a product with an unpacked weight, some of its rows at a time; its readers follow
        at the end.

        Threads share the columns in a few wide parts, to read long runs of memory.
        """
        sch = self.sch
        high, wide, lanes = self._tile(product)
        others = self._but(product, parts)
        rows, columns, strips = sch.get_loops(product)
        tiles, row = self._split(rows, high)
        shares = packed_matmul.parts(self._extent(columns) // wide)
        factors = [shares, None, wide // lanes, lanes]
        part, panel, vectors, lane = sch.split(columns, factors=factors)
        sch.reorder(part, strips, panel, tiles, row, vectors, lane)
        sch.compute_at(parts, tiles)
        sch.vectorize(lane)
        sch.unroll(vectors)
        sch.unroll(row)
        *_, row, column, inner = sch.get_loops(parts)
        vectors, lane = self._split(column, lanes)
        sch.reorder(inner, row, vectors, lane)
        sch.parallel(part)
        sch.decompose_reduction(product, strips)
        self._in_registers(parts, self._ahead(inner, packed_matmul.STRIPS), row, vectors, lane)
        for block in others:
            self._pointwise(block)
