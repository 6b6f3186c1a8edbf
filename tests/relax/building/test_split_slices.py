"""Fields of splits are read as slices."""

import torch
from torch import nn

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
