"""Models in 16 bits, whole or under autocast: values and gradients are PyTorch's."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from answers import quiet
from edge_values import drawn, program
from limits import rounding
from quick import ENGINE, QUICK, combinations
from relascope.engine.in_process import LiveProgram, load_engine
from relascope.engine.protocol.source import source_from_file, with_tensors
from relascope.engine.pytorch.model import load_model

HALVES = (torch.bfloat16, torch.float16)
LENGTH = 2**4
"""Roundings to 16 bits on the longest way through these models and back that may fall otherwise:
both sides round each operator's result, and only sums differ before."""
AXES = ("block", "net"), HALVES, (True, False), (".pt", ".pt2")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.heads, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, places):
        x = self.table(places)
        heads = self.heads(self.norm(x)).reshape(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*heads.unbind(0)).transpose(1, 2)
        x = x + self.out(seen.reshape(2, 5, 16))
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.cell, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, x):
        x = F.avg_pool2d(F.silu(self.norm(self.conv(x))), 2)
        rows, _ = self.cell(x.mean(2).transpose(1, 2))
        return F.log_softmax(self.head(rows[:, -1]), -1)


class Autocast(nn.Module):
    def __init__(self, inner, dtype):
        super().__init__()
        self.inner, self.dtype = inner, dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            y = self.inner(x)
            with torch.autocast("cpu", enabled=False):
                return y, y.float().square().sum()


def case(kind, dtype, whole):
    torch.manual_seed(0)
    module, x = (
        (Block(), torch.randint(0, 20, (2, 5)))
        if kind == "block"
        else (Net(), torch.randn(4, 3, 8, 8))
    )
    if whole:
        return module.to(dtype), x if kind == "block" else x.to(dtype)
    return Autocast(module, dtype), x


def saved(module, x, path):
    if path.suffix == ".pt":
        torch.jit.trace(module, x, check_trace=False).save(str(path))
    else:
        torch.export.save(torch.export.export(module, (x,)), path)
    torch.save([x], inputs := path.with_suffix(".inputs.pt"))
    return with_tensors(source_from_file(path, training=True), [inputs])


def agree(ours, theirs, limit):
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert (a.double() - b.double()).abs().max() <= limit * b.double().abs().max()


@pytest.mark.parametrize(("kind", "dtype", "whole", "ending"), combinations(*AXES))
def test_values_and_gradients_in_16_bits(kind, dtype, whole, ending, tmp_path):
    model = load_model(saved(*case(kind, dtype, whole), tmp_path / f"model{ending}"), quiet)
    live = LiveProgram(load_engine(ENGINE), model, ("min_cut", None), QUICK)
    assert any("compute in float32 and round" in n for n in model.notes)
    values = dict(zip(model.input_names, model.inputs, strict=True))
    values |= model.parameters | model.buffers
    limit, gradients = rounding(dtype, LENGTH), model.gradients()
    agree(live.forward(values)[: len(model.outputs_flat)], model.forward(), limit)
    step = live.step(gradients)
    _, captures = step.forward(values)
    values |= dict(zip(step.grad_outs, model.grad_outs(), strict=True))
    found = step.backward({**values, **captures})
    agree([found[n] for n in gradients], gradients.values(), limit)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rounding_is_where_pytorch_has_it(dtype):
    def chain(x, y):
        given = x.to(dtype), y.to(dtype)
        product = given[0] * given[1] + 0.1
        total = torch.ones(8, 4096, dtype=dtype) * given[0][:, :1].round()
        return x.to(dtype).float() * 3, product, (product / 3 - given[1]).float(), total.sum(1)

    inputs = drawn(8, 32), drawn(8, 32).flip(0).contiguous()
    live, values = program(chain, inputs)
    theirs = chain(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(live.forward(values), theirs, strict=True))
    step = live.step(values)
    _, captures = step.forward(values)
    outs = dict(zip(step.grad_outs, (torch.ones_like(t) for t in theirs), strict=True))
    found = step.backward({**values, **captures, **outs})
    leaves = [v.clone().requires_grad_() for v in inputs]
    torch.autograd.backward(chain(*leaves), list(outs.values()))
    agree([found[n] for n in values], [v.grad for v in leaves], rounding(dtype, 4))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_is_no_number_or_at_the_ends_of_the_format_is_cast_as_pytorch_does(dtype):
    ends = [torch.nan, torch.inf, -torch.inf, -0.0, 3.4e38, 1e-40, 65519, 65520, 3e-8, 8e-8, 1e-5]

    def cast(x):
        return (x * 1.0).to(dtype).float() * 1.0, x.to(dtype)

    live, values = program(cast, (torch.tensor(ends),))
    for ours, theirs in zip(live.forward(values), cast(torch.tensor(ends)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(ours.signbit()[1:], theirs.signbit()[1:])
