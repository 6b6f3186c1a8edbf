"""Schedules for what TVM's passes leave as plain loops on the CPU.

After fusion a kernel still writes each step of the group to memory and reads it back in a loop of
its own. Here steps are computed where they are read, reductions run along memory, and large
kernels are shared out among threads. LLVM makes vectors of the inner loops, for which the target
lets it add in another order than the program's (`engine.relax.targets`).

The primitives are those of TVM's schedules (Feng et al., "TensorIR", ASPLOS 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.relax.backend.cpu_generic import pipeline as cpu

_PARALLEL = 1 << 15
"""Elements from which a kernel is worth waking other threads for."""

_CHUNK = 512
"""Columns that a thread sums at a time: their sums stay in the nearest cache."""

_NARROWEST = 64
"""Columns below which chunks would leave vectors half empty."""

_DEAR = frozenset(
    f"tirx.{n}" for n in ("exp", "erf", "tanh", "sigmoid", "log", "pow", "sin", "cos", "rsqrt")
)
"""What is not to be computed once for each of several readers."""


def pipeline(target: Any) -> Any:
    """TVM's default pipeline for the CPU, with the kernels scheduled."""

    @tvm.transform.module_pass(opt_level=0, name="relascope.cpu_pipeline")
    def run(mod: Any, context: Any) -> Any:
        with target:
            return tvm.transform.Sequential([
                *cpu.library_dispatch_passes(target),
                *cpu.legalize_passes(target),
                schedule_kernels,
                *cpu.dataflow_lower_passes(target),
                *cpu.finalize_passes(target),
            ])(mod)  # fmt: skip

    return run


@tvm.transform.module_pass(opt_level=0, name="relascope.schedule_kernels")
def schedule_kernels(mod: Any, context: Any) -> Any:
    """Schedule every kernel of a module whose shapes are known."""
    made = {}
    for name, function in mod.functions.items():
        scheduled = isinstance(function, tirx.PrimFunc) and not function.attrs.get(
            "tirx.is_scheduled", False
        )
        made[name] = scheduled_kernel(function) if scheduled else function
    return tvm.IRModule(made, attrs=mod.attrs)


def scheduled_kernel(function: Any) -> Any:
    """One kernel, scheduled; one of another form than these rules know comes back as it is."""
    sch = s_tir.Schedule(tvm.IRModule({"main": function}))
    try:
        if not all(_plain(sch, b) for b in _blocks(sch)):
            return function
        _schedule(sch)
    except s_tir.ScheduleError:  # it has no root, or a primitive refused: that is not the same
        return function
    return sch.mod["main"].with_attrs(dict(function.attrs))


def _plain(sch: Any, block: Any) -> bool:
    """Whether a block is one statement in as many loops of known length as it has axes."""
    loops = sch.get_loops(block)
    known = all(isinstance(sch.get(loop).extent, tirx.IntImm) for loop in loops)
    kinds = {int(v.iter_type) for v in sch.get(block).iter_vars}
    same = len(loops) == len(sch.get(block).iter_vars)
    return known and same and kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}


def _schedule(sch: Any) -> None:
    _inline(sch)
    blocks = _blocks(sch)
    if _row_by_row(sch, blocks):
        return
    for block in blocks:
        if _is_reduction(sch, block):
            _reduction(sch, block)
        else:
            _pointwise(sch, block)


def _blocks(sch: Any) -> list[Any]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _outputs(sch: Any) -> frozenset[str]:
    return frozenset(str(sch.get(b).name_hint) for b in sch.get_output_blocks("root"))


def _inline(sch: Any) -> None:
    """Compute each step of a group where it is read, unless that repeats dear work."""
    outputs = _outputs(sch)
    for block in _blocks(sch):
        made = sch.get(block)
        if str(made.name_hint) in outputs or _is_reduction(sch, block):
            continue
        if _is_dear(made) and _repeated(sch, block):
            continue
        try:
            sch.compute_inline(block)
        except s_tir.ScheduleError:
            continue  # a gather, say, whose reader needs the value at another place


def _repeated(sch: Any, block: Any) -> bool:
    """Whether a step would be computed for several readers, or for many elements of one."""
    readers = sch.get_consumers(block)
    return len(readers) != 1 or _steps(sch, readers[0]) > _steps(sch, block)


def _steps(sch: Any, block: Any) -> int:
    """How often the innermost statement of a block runs."""
    return math.prod(int(sch.get(loop).extent) for loop in sch.get_loops(block))


def _is_reduction(sch: Any, block: Any) -> bool:
    return any(_reduces(v) for v in sch.get(block).iter_vars)


def _reduces(axis: Any) -> bool:
    return int(axis.iter_type) == tirx.IterVar.CommReduce


def _is_dear(block: Any) -> bool:
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        if isinstance(node, tvm.ir.Call) and isinstance(node.op, tvm.ir.Op):
            found = found or node.op.name in _DEAR

    tvm_ffi.structural_walk(block.body, visit)
    return found


def _row_by_row(sch: Any, blocks: Sequence[Any]) -> bool:
    """Compute all steps of one row before the next: a softmax, a layer norm; whether it is one.

    The last step has the rows as its outer loops, and each before it has the same.
    """
    *before, last = blocks
    loops = sch.get_loops(last)
    steps = _steps(sch, last)
    rows = [int(sch.get(loop).extent) for loop in loops[:-1]]
    if not before or _is_reduction(sch, last) or math.prod(rows) < 2:
        return False
    outputs = _outputs(sch)
    for block in before:
        mine = [int(sch.get(loop).extent) for loop in sch.get_loops(block)]
        axes = sch.get(block).iter_vars
        same = mine[: len(rows)] == rows and not any(_reduces(v) for v in axes[: len(rows)])
        if not same or str(sch.get(block).name_hint) in outputs:
            return False
    row = sch.fuse(*loops[:-1]) if len(rows) > 1 else loops[0]
    if steps >= _PARALLEL:
        sch.parallel(row)
    for block in reversed(before):
        sch.compute_at(block, row)
    for block in before:
        if _is_reduction(sch, block):
            sch.decompose_reduction(block, sch.get_loops(block)[1])
    return True


def _reduction(sch: Any, block: Any) -> None:
    """Run a reduction along memory, where it reads most; share what it does apart.

    Of one that sums rows up, columns are chunked, so that threads can share them.
    """
    axes, loops = sch.get(block).iter_vars, sch.get_loops(block)
    fastest = _fastest(sch.get(block))
    outer = [x for x, v in zip(loops, axes, strict=True) if not _reduces(v)]
    reduced = [x for x, v in zip(loops, axes, strict=True) if _reduces(v)]
    count = _steps(sch, block)
    inner = []
    if fastest is not None and not _reduces(axes[fastest]):
        column = loops[fastest]
        outer.remove(column)
        inner.append(column)
        columns = int(sch.get(column).extent)
        width = next(w for w in range(min(columns, _CHUNK), 0, -1) if columns % w == 0)
        if columns > width >= _NARROWEST:
            chunk, inner[0] = sch.split(column, factors=[None, width])
            outer.append(chunk)
    sch.reorder(*outer, *reduced, *inner)
    if outer:
        _share(sch, outer, count)
    sch.decompose_reduction(block, reduced[0])


def _pointwise(sch: Any, block: Any) -> None:
    """Share the outer loops; the innermost is left to LLVM."""
    loops = sch.get_loops(block)
    if len(loops) > 1:
        _share(sch, loops[:-1], _steps(sch, block))


def _share(sch: Any, loops: Sequence[Any], count: int) -> None:
    """Have threads share loops that lie side by side, where that is worth waking them."""
    loop = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if count >= _PARALLEL and int(sch.get(loop).extent) > 1:
        sch.parallel(loop)


def _fastest(block: Any) -> int | None:
    """Which axis of a block runs along memory where it reads most; None where none does."""
    axes = {v.var: k for k, v in enumerate(block.iter_vars)}
    largest = max(block.reads, key=lambda r: _elements(r.source.shape), default=None)
    if largest is None or not largest.region:
        return None
    return axes.get(largest.region[-1].min)


def _elements(shape: Sequence[Any]) -> int:
    return math.prod(int(d) for d in shape)
