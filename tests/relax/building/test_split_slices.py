"""Fields of splits are read as slices."""

import torch
import tvm
from torch import nn
from tvm import relax

from edge_values import forward_agrees
from relascope.engine.relax.building.split_slices import split_slices


class Split(nn.Module):
    def forward(self, x):
        first, second, _ = x.split([1, 4, 2], 1)
        return torch.cat([second * 2, first], 1), x.chunk(3, -1)[2]


def test_splits_are_slices_where_kernels_are_made():
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))
    live, _ = forward_agrees(lambda x: Split()(x)[0] * Split()(x)[1].sum(), x)
    before, after = (str(m) for m in (live.program.mod, split_slices(live.program.mod)))
    assert "R.split" in before
    assert "R.split" not in after
    assert after.count("R.strided_slice") == 3


def test_of_an_open_size_only_splits_along_other_axes_are_slices():
    builder, rows = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([rows, 6], "float32"))
    with builder.function("main", [x]):
        across = builder.emit(relax.op.split(x, 3, axis=-1))
        along = builder.emit(relax.op.split(x, [2], axis=0))
        parts = relax.TupleGetItem(across, 2), relax.TupleGetItem(along, 1)
        builder.emit_func_output(builder.emit(relax.Tuple([builder.emit(p) for p in parts])))
    after = str(split_slices(builder.get()))
    assert (after.count("R.strided_slice"), after.count("R.split")) == (1, 1)
