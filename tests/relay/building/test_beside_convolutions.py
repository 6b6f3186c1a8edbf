"""What stands behind convolutions, whose memory layout the build changes."""

import pytest
import torch
from torch import nn

from answers import quiet
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module


class Pooled(nn.Module):
    def __init__(self, unbiased):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.again = nn.Conv2d(8, 32, 2, 2), nn.Conv2d(32, 32, 1)
        self.norm, self.unbiased = nn.LayerNorm(32, eps=1e-12), unbiased

    def forward(self, x):
        y = self.conv(x)
        y = (y + self.again(y)).mean([-2, -1])
        return y.var(-1) if self.unbiased else self.norm(y)


class Dropped(nn.Module):
    """Aggregates tokens as CoaT does, in an axis that is then taken out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv1d(3, 1, 1)

    def forward(self, x):
        return self.conv(x.squeeze()).squeeze(1).tanh()


def agrees(module, *shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    model = model_from_module(
        module.eval(), ("x",), (x,), ModelSource("laid out", training=True), quiet
    )
    live = LiveProgram(load_engine("relay"), model, ("min_cut", None), "llvm")
    (found,) = live.forward({"x": x, **model.parameters})
    torch.testing.assert_close(found, model.forward()[0])


@pytest.mark.parametrize("unbiased", [False, True])
def test_a_layer_norm_of_what_a_convolution_makes(unbiased):
    """TVM lays out what `variance` subtracts as what it is subtracted from."""
    agrees(Pooled(unbiased), 1, 8, 2, 2)


def test_an_axis_of_channels_that_is_taken_out():
    """TVM leaves blocks of channels to `squeeze`, which has none."""
    agrees(Dropped(), 2, 1, 3, 32)
