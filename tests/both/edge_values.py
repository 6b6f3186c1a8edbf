"""Values at the edges of what operators take, in both engines: outputs and gradients are PyTorch's.

Each engine's folder runs these tests by importing them, in a process that holds its TVM.
"""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradients import quiet
from quick import QUICK
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import model_from_module


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def program(function, inputs, target=None):
    """A function, imported by the engine whose TVM this process holds."""
    backend = load_engine("relay" if "tvm.relay" in sys.modules else "relax")
    names, source = [f"x{i}" for i in range(len(inputs))], ModelSource("own", training=True)
    model = model_from_module(Applied(function), tuple(names), inputs, source, quiet)
    return LiveProgram(backend, model, ("min_cut", None), target), dict(
        zip(names, inputs, strict=True)
    )


def forward_agrees(function, *inputs, target=None):
    live, values = program(function, inputs, target)
    (ours, *_), theirs = live.forward(values), function(*inputs)
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-5, atol=1e-6)
    return live, values


def gradients_agree(function, *inputs):
    """The gradient of every floating input, with that of the output drawn."""
    live, values = program(function, inputs)
    leaves = {n: v.clone().requires_grad_() for n, v in values.items() if v.is_floating_point()}
    out = function(*{**values, **leaves}.values())
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    out.backward(weights)
    step = live.step(leaves)
    _, captures = step.forward(values)
    found = step.backward({**values, **captures, step.grad_outs[0]: weights})
    for name, leaf in leaves.items():
        torch.testing.assert_close(found[name], leaf.grad, equal_nan=True, rtol=1e-5, atol=1e-6)


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


# Attention of which a row sees no key.

SEEN = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()


@pytest.mark.parametrize("mask", [SEEN, torch.where(SEEN, drawn(3, 4), -torch.inf)])
def test_a_row_that_hides_all_keys_is_zero(mask):
    heads = [drawn(2, 2, rows, 4) for rows in (3, 4, 4)]
    forward_agrees(F.scaled_dot_product_attention, *heads, mask)
    if not mask.is_floating_point():
        gradients_agree(F.scaled_dot_product_attention, *heads, mask)


# NaN and infinity in maxima, minima, comparisons and reductions.

STRANGE = torch.tensor([torch.nan, 1, torch.nan, 2, 0, -torch.inf, torch.inf, -3, 0.25, -0.0])
KEEPING = {
    "relu": F.relu,
    "relu6": F.relu6,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "maximum": lambda x: torch.maximum(x.exp(), x.flip(0)),
    "minimum": lambda x: torch.minimum(x, x.flip(0)),
    "amax": lambda x: torch.stack([x, x * 2, -x.abs()]).amax(0),
    "amin": lambda x: torch.stack([x, x * 2, x.abs()]).amin(0),
    "max_pool": lambda x: F.max_pool2d(x.expand(1, 1, 4, -1), (2, 1)),
    "softmax": lambda x: torch.stack([x, x.clamp(-3, 3), -x], -1).softmax(-1),
    "ne": lambda x: x != x.flip(0),
    "eq": lambda x: x == x,
    "lt": lambda x: x < x.flip(0),
    "ge": lambda x: x >= 0,
    "bool": lambda x: x.bool(),
}


@pytest.mark.parametrize("target", [QUICK, None])
@pytest.mark.parametrize("length", [1, 10])
@pytest.mark.parametrize("name", KEEPING)
def test_nan_and_infinity_are_kept(name, length, target):
    forward_agrees(KEEPING[name], STRANGE[:length], target=target)


def test_the_largest_of_nothing_but_minus_infinity():
    forward_agrees(lambda x: x.amax(0), torch.full((5, 3), -torch.inf))
    forward_agrees(lambda x: x.amin(0), torch.full((5, 3), torch.inf))
