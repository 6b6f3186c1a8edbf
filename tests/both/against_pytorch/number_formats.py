"""Models in 16 bits, whole or under autocast, and in int8: values and gradients are PyTorch's."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.nn import functional as F

from answers import quiet
from edge_values import backward, drawn, live_of, program
from limits import ELEMENTWISE, rounding
from quick import combinations, first_in_relay
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import ModelSource, source_from_file, with_tensors
from relascope.engine.pytorch.model import load_model, model_from_module
from relascope.engine.pytorch.trace_to_fx import trace_to_fx
from traces import Parts, save

HALVES = (torch.bfloat16, torch.float16)
LENGTH = 2**4
"""Roundings to 16 bits on the longest way through these models and back that may fall otherwise:
both sides round each operator's result, and only sums differ before."""
AXES = ("block", "net"), HALVES, (True, False), (".pt", ".pt2")


def block():
    def run(m, places):
        x = m.table(places)
        heads = m.heads(m.norm(x)).reshape(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*heads.unbind(0)).transpose(1, 2)
        x = x + m.out(seen.reshape(2, 5, 16))
        return x + m.narrow(F.gelu(m.wide(m.norm(x))))

    sizes = {"heads": (16, 48), "out": (16, 16), "wide": (16, 32), "narrow": (32, 16)}
    layers = {name: nn.Linear(*size) for name, size in sizes.items()}
    return Parts(run, table=nn.Embedding(20, 16), norm=nn.LayerNorm(16), **layers)


def net():
    def run(m, x):
        x = F.avg_pool2d(F.silu(m.norm(m.conv(x))), 2)
        rows, _ = m.cell(x.mean(2).transpose(1, 2))
        return F.log_softmax(m.head(rows[:, -1]), -1)

    parts = {"conv": nn.Conv2d(3, 8, 3, bias=False), "norm": nn.BatchNorm2d(8)}
    return Parts(run, **parts, cell=nn.LSTM(8, 6, batch_first=True), head=nn.Linear(6, 4))


def autocast(inner, dtype):
    def run(m, x):
        with torch.autocast("cpu", dtype=dtype):
            y = m.inner(x)
            with torch.autocast("cpu", enabled=False):
                return y, y.float().square().sum()

    return Parts(run, inner=inner)


INT8 = {
    "mlp": lambda: (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (3, 8)),
    "encoder": lambda: (nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (2, 5, 8)),
    "recurrent": lambda: (recurrent(), (2, 2, 6)),
}
STEPS = 127


def recurrent():
    parts = {"both": nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True), "one": nn.GRU(10, 4)}
    return Parts(lambda m, x: m.head(m.one(m.both(x)[0])[0]), **parts, head=nn.Linear(4, 3))


class Steps(torch.fx.Interpreter):
    """Runs a trace in PyTorch, and sees how near a value is to the border of two steps."""

    nearest = 0.5

    def run_node(self, node):
        if node.target is torch.ops.aten.round.default:
            given = self.env[node.args[0]]
            off = (given - given.floor() - 0.5).abs().min().item()
            self.nearest = min(self.nearest, off)
        return super().run_node(node)


@pytest.mark.parametrize(("kind", "ending"), combinations(tuple(INT8), (".pt", ""), relay=1))
def test_dynamic_int8(kind, ending, tmp_path, monkeypatch):
    """Of inputs of which rounding moves no value over the border of two steps."""
    # PyTorch's fused encoder layer takes no quantized weights.
    monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", False)
    for seed in range(100):
        torch.manual_seed(seed)
        module, size = INT8[kind]()
        linear = {nn.Linear, nn.LSTM, nn.GRU}
        module, x = torch.ao.quantization.quantize_dynamic(module.eval(), linear), torch.randn(size)
        model = model_from_module(module, ("x",), (x,), ModelSource("own"), quiet)
        trace = trace_to_fx(model, lambda name: True)
        run = Steps(GraphModule(trace.constants, trace.graph))
        agree(run.run(x, *model.flat.tensors.values()), model.forward(), ELEMENTWISE)
        if run.nearest > STEPS * ELEMENTWISE:
            break
    else:
        raise AssertionError("no inputs are far from all borders")
    if ending:
        save(module, x, path := tmp_path / f"model{ending}")
        model = load_model(source_from_file(path), quiet)
        model = replace(model, inputs=(x,))
    values = {model.input_names[0]: x, **model.parameters, **model.buffers}
    agree(live_of(model).forward(values), model.forward(), ELEMENTWISE)


def case(kind, dtype, whole):
    torch.manual_seed(0)
    if kind == "block":
        module, x = block(), torch.randint(0, 20, (2, 5))
    else:
        module, x = net(), torch.randn(4, 3, 8, 8)
    if whole:
        return module.to(dtype), x if kind == "block" else x.to(dtype)
    return autocast(module, dtype), x


def saved(module, x, path):
    save(module, (x,), path)
    torch.save([x], inputs := path.with_suffix(".inputs.pt"))
    return with_tensors(source_from_file(path, training=True), [inputs])


def runs(path, x):
    """Whether PyTorch runs its own file. A trace of an LSTM under autocast does not cast weights,
    and oneDNN, which PyTorch uses where a processor has bfloat16, refuses them."""
    with torch.no_grad(), suppress(RuntimeError):
        torch.jit.load(path)(x)
        return True
    return False


def agree(ours, theirs, limit):
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert (a.double() - b.double()).abs().max() <= limit * b.double().abs().max()


@pytest.mark.parametrize(("kind", "dtype", "whole", "ending"), combinations(*AXES, relay=1))
def test_values_and_gradients_in_16_bits(kind, dtype, whole, ending, tmp_path):
    module, x = case(kind, dtype, whole)
    source = saved(module, x, path := tmp_path / f"model{ending}")
    if ending == ".pt" and not runs(path, x):
        with pytest.raises(EngineError, match="does not run with these inputs"):
            load_model(source, quiet)
        return
    model = load_model(source, quiet)
    live = live_of(model)
    assert any("compute in float32 and round" in n for n in model.notes)
    values = dict(zip(model.input_names, model.inputs, strict=True))
    values |= model.parameters | model.buffers
    limit, gradients = rounding(dtype, LENGTH), model.gradients()
    agree(live.forward(values)[: len(model.outputs_flat)], model.forward(), limit)
    found = backward(live, values, gradients, model.grad_outs())
    agree([found[n] for n in gradients], gradients.values(), limit)


@pytest.mark.parametrize("dtype", first_in_relay(HALVES), ids=str)
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
    outs = [torch.ones_like(t) for t in theirs]
    found = backward(live, values, values, outs)
    leaves = [v.clone().requires_grad_() for v in inputs]
    torch.autograd.backward(chain(*leaves), outs)
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
