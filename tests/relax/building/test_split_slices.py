"""Fields of tuples are read where kernels are fused."""

import torch
import tvm
from torch import nn
from tvm import relax

from edge_values import forward_agrees
from relascope.engine.building.options import BuildOptions
from relascope.engine.relax.building import runtime
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


def test_indices_that_are_computed_are_read_where_kernels_are_fused():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([5], "float32"))
    i = relax.Var("i", relax.TensorType([5], "int64"))
    with builder.function("main", [x, i]):
        with builder.dataflow():
            behind = builder.emit(relax.op.add(i, relax.const(5, "int64")))
            below = builder.emit(relax.op.less(i, relax.const(0, "int64")))
            at = builder.emit(relax.op.where(below, behind, i))
            made = builder.emit_output(builder.emit(relax.op.index_tensor(x, [at])))
        builder.emit_func_output(made)
    built = runtime.make(builder.get(), BuildOptions("llvm -schedules=relascope"))
    given = map(tvm.runtime.from_dlpack, (torch.arange(5.0), torch.tensor([0, -1, 2, -5, 4])))
    made = relax.VirtualMachine(built, tvm.cpu())["main"](*given)
    assert made.numpy().tolist() == [0.0, 4.0, 2.0, 0.0, 4.0]
