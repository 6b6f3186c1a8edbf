"""Convolutions of one input, joined."""

import pytest
import torch
from torch import nn

from relascope.passes.relax.combine_conv2d import combine_conv2d
from relascope.passes.relax.ir.rewrite import bindings, op_name
from relax_modules import LIMIT, errors, imported
from training import passes


class Branches(nn.Module):
    """Three 1x1 convolutions of one input, and three that cannot join them."""

    def __init__(self):
        super().__init__()
        self.one = nn.ModuleList(nn.Conv2d(4, width, 1) for width in (2, 3, 5))
        self.wider = nn.Conv2d(4, 3, 3, padding=1)
        self.strided = nn.Conv2d(4, 3, 1, stride=2)
        self.grouped = nn.Conv2d(4, 4, 1, groups=2)
        self.after = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        first, second, third = (conv(x) for conv in self.one)
        rest = self.wider(x), self.strided(x), self.grouped(x)
        return self.after(first), torch.relu(second), third, *rest


def operators(made):
    return [op_name(value) for _, value in bindings(made.main)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bound", [False, True])
def test_those_alike_are_joined_and_numbers_stay(bound, dtype):
    torch.manual_seed(0)
    model, before = imported(Branches(), torch.randn(2, 4, 6, 6), dtype=dtype)
    if bound:
        before = passes(before, "bind")
    assert operators(before).count("nn.conv2d") == 7
    after = passes(before, "combine_conv2d")
    assert operators(after).count("nn.conv2d") == 5
    assert operators(after).count("split") == 1
    assert max(errors(model, after).values()) <= LIMIT[dtype]


def test_fewer_than_asked_for_stay():
    _, before = imported(Branches(), torch.randn(2, 4, 6, 6))
    assert combine_conv2d(before, branches=4) is before
    assert operators(combine_conv2d(before, branches=3)).count("nn.conv2d") == 5


def test_a_layout_with_channels_last():
    torch.manual_seed(0)
    model, before = imported(Branches(), torch.randn(2, 4, 6, 6), dtype="float64")
    after = passes(before, "bind|convert_layout|fold|cse|combine_conv2d")
    assert operators(after).count("nn.conv2d") < 7
    assert max(errors(model, after).values()) <= LIMIT["float64"]
