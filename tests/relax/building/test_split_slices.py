"""Fields of tuples are read where kernels are fused."""

import numpy as np
import torch
import tvm
from tvm import relax

from edge_values import drawn, forward_agrees
from relascope.engine.relax.building.split_slices import split_slices
from relax_modules import compiled, program


def split(x):
    first, second, _ = x.split([1, 4, 2], 1)
    return torch.cat([second * 2, first], 1) * x.chunk(3, -1)[2].sum()


def test_splits_are_slices_where_kernels_are_made():
    live, _ = forward_agrees(split, drawn(2, 7, 12))
    before, after = (str(m) for m in (live.program.mod, split_slices(live.program.mod)))
    assert "R.split" in before
    assert "R.split" not in after
    assert after.count("R.strided_slice") == 3

    def parts(x):
        across, along = relax.op.split(x, 3, axis=-1), relax.op.split(x, [2], axis=0)
        return relax.Tuple([relax.TupleGetItem(across, 2), relax.TupleGetItem(along, 1)])

    rows = tvm.tirx.Var("n", "int64")
    after = str(split_slices(program(parts, ([rows, 6], "float32"))))
    assert (after.count("R.strided_slice"), after.count("R.split")) == (1, 1)


def test_indices_that_are_computed_are_read_where_kernels_are_fused():
    def taken(x, i):
        behind = relax.op.add(i, relax.const(5, "int64"))
        at = relax.op.where(relax.op.less(i, relax.const(0, "int64")), behind, i)
        return relax.op.index_tensor(x, [at])

    run = compiled(program(taken, ([5], "float32"), ([5], "int64")), "llvm -schedules=relascope")
    made = run(np.arange(5, dtype="float32"), np.array([0, -1, 2, -5, 4]))
    assert made.tolist() == [0.0, 4.0, 2.0, 0.0, 4.0]
