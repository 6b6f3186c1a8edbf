"""Chapter 5 by hand: a schedule with a random choice in it, and a search among its draws."""

import time

import numpy as np
import tvm
from tvm import relax, s_tir, tirx

from relascope.passes.relax.ir.rewrite import with_mod

IR = "relax"


def _scheduled(kernel, seed):
    """A product's kernel in tiles of columns, whose size is drawn."""
    schedule = s_tir.Schedule(kernel, seed=seed)
    block = schedule.get_sblock("matmul")
    _, columns, inner = schedule.get_loops(block)
    sizes = schedule.sample_perfect_tile(columns, n=2, max_innermost_factor=32)
    tiles, tile = schedule.split(columns, sizes)
    schedule.reorder(tiles, inner, tile)
    schedule.vectorize(tile)
    schedule.decompose_reduction(block, inner)
    return schedule.mod["main"]


def _milliseconds(kernel):
    """The shortest of some runs on random numbers."""
    run = tvm.compile(kernel.with_attr("global_symbol", "main"), target="llvm")
    shapes = [[int(n) for n in p.ty.shape] for p in kernel.params]
    given = [tvm.runtime.tensor(np.random.rand(*s).astype("float32")) for s in shapes]
    times = []
    for _ in range(9):
        before = time.perf_counter()
        run(*given)
        times.append(time.perf_counter() - before)
    return min(times) * 1e3


def tiles_by_hand(program, seed: int = 1, tries: int = 1):
    """Computes each product in tiles of columns of a drawn size.

    seed: of the first draw
    tries: draws of which the fastest is kept, measured here
    """
    mod = relax.transform.LegalizeOps()(program.mod)
    for var, kernel in mod.functions.items():
        if isinstance(kernel, tirx.PrimFunc) and var.name_hint.startswith("matmul"):
            drawn = [_scheduled(kernel, s) for s in range(seed, seed + tries)]
            best = min(drawn, key=_milliseconds) if tries > 1 else drawn[0]
            mod.update_func(var, best.with_attrs(kernel.attrs))
    return with_mod(program, mod)
