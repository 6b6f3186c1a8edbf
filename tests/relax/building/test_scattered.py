"""What slices are put back by, where several become one kernel."""

import pytest
import torch
from torch import nn

from answers import quiet
from edge_values import backward
from relascope.engine.building.devices import default_target
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module


class Strided(nn.Module):
    def forward(self, x):
        return torch.cat([x[:, ::2, ::2], x[:, 1::2, ::2]], -1) * 2


@pytest.mark.parametrize("target", ["llvm -opt-level=0", ""], ids=["plain", "default"])
def test_the_gradient_of_slices_of_two_axes_with_steps(target):
    """TVM's own slice_scatter reads behind the end of what it puts back."""
    x = torch.randn(1, 16, 16, 16, generator=torch.Generator().manual_seed(0))
    source = ModelSource(model="strided", training=True)
    model = model_from_module(Strided(), ("x",), (x,), source, quiet)
    engine = load_engine("relax")
    target = target or default_target(engine.describe().targets, torch.device("cpu"))
    live = LiveProgram(engine, model, ("min_cut", None), target)
    found = backward(live, {"x": x}, ["x"], model.grad_outs())
    torch.testing.assert_close(found, {"x": model.gradients()["x"]})
