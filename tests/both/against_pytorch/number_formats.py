"""Models in 16 bits, in int8 and of complex pairs: values and gradients are PyTorch's."""

import copy
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.nn import functional as F

from answers import quiet, refused
from edge_values import backward, drawn, forwards_agree, gradients_agree_of, live_of, program
from limits import ELEMENTWISE, close, rounding
from quick import ENGINE, QUICK, combinations, first_in_relay, rare
from relascope.core.errors import EngineError
from relascope.engine.dispatch import add_tvm_dispatch
from relascope.engine.protocol.source import ModelSource, source_from_file, with_tensors
from relascope.engine.pytorch.model import flat_tensors, load_model, model_from_module
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


def mixed(x):
    """FNet's mixing of tokens."""
    return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real


def filtered(x, weight):
    """GFNet's filter, with an axis of even length."""
    spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(weight)
    return torch.fft.irfft2(spectrum, s=x.shape[1:3], dim=(1, 2), norm="ortho")


def low_modes(x, weight, other):
    """A Fourier layer, which writes its modes into zeros; an axis of odd length."""
    spectrum = torch.fft.rfft(x)
    out = torch.zeros(2, 4, spectrum.shape[-1], dtype=torch.cfloat)
    out[:, :, :3] = torch.einsum("bix,iox->box", spectrum[..., :3], torch.view_as_complex(weight))
    last = torch.complex(other[..., 0], other[..., 1])
    out[:, :, -2:] = torch.einsum("bix,iox->box", spectrum[..., -2:], last)
    return torch.fft.irfft(out, n=x.shape[-1])


def turned(x, angles):
    """Rotary positions as products with numbers on the unit circle."""
    pairs = torch.view_as_complex(x.reshape(2, 5, 4, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(2)


def around(x):
    """What stands around a transform."""
    z = torch.fft.rfft(x, n=8, norm="forward")
    less, squares = (z.conj() * (1 + 2j) - x[:, :5]).imag, (z * z / 3 + 1).real.sum(-1)
    moved = torch.cat([z.flip(1), torch.fft.fftshift(z, 1)], 1)[:, 2:7].reshape(-1)
    whole = torch.where(torch.arange(5) > 2, z, z.exp()).masked_fill(torch.arange(5) == 0, 4.0)
    parts = z.abs(), torch.view_as_real(moved), whole.real + whole.imag
    return less, squares, (2 - z.mean(0)).real, *parts


def inverse(x):
    z = torch.fft.fftn(x, dim=(0, 2))
    halves = torch.fft.hfft(z, n=9, dim=0), torch.fft.irfft(z, n=7, dim=1)
    back = torch.view_as_real(torch.fft.ihfft(x, dim=1).resolve_conj())
    return torch.fft.ifft(z, dim=2).imag, *halves, back, torch.fft.irfft(x, n=10)


def alone(function, index):
    return lambda *inputs: function(*inputs)[index]


CASES = {
    "mixed": (mixed, drawn(2, 6, 8)),
    "filtered": (filtered, drawn(2, 6, 6, 5), drawn(6, 4, 5, 2)),
    "low modes": (low_modes, drawn(2, 3, 9), drawn(3, 4, 3, 2), drawn(3, 4, 2, 2)),
    "turned": (turned, drawn(2, 5, 8), drawn(5, 4)),
    **{f"around {i}": (alone(around, i), drawn(3, 9)) for i in range(6)},
    **{f"inverse {i}": (alone(inverse, i), drawn(2, 4, 6)) for i in range(5)},
}


def test_transforms_and_what_stands_around_them():
    forwards_agree(CASES, QUICK)


FEW = {n: CASES[n] for n in ("filtered", "around 3")}
FEW["size of zero"] = lambda x: torch.view_as_complex(x).abs(), torch.zeros(3, 2)


@pytest.mark.parametrize("cases", [FEW, rare(CASES)], ids=["few", "all"])
def test_gradients_of_transforms(cases):
    gradients_agree_of(cases)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: (1 / torch.fft.rfft(x)).real, "reciprocal is not supported for complex"),
        (lambda x: torch.fft.rfft(x, n=4096).real, "4096 elements is longer than 2048"),
        (lambda x: torch.fft.rfft(x).tanh().real, "tanh is not supported for complex"),
    ],
)
def test_what_has_no_form_is_refused_by_name(function, match):
    with refused(match=match):
        program(function, (drawn(3, 8),), training=False)


class Fourier(nn.Module):
    """A layer of a Fourier operator and Llama's rotary positions: complex numbers are an input, a
    parameter, a buffer, and outputs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, 2, 3, dtype=torch.cfloat))
        angles = torch.outer(torch.arange(5.0), 10.0 ** -torch.arange(0, 4))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x, queries, z):
        spectrum = torch.fft.rfft2(x)
        out = torch.zeros(2, 4, *spectrum.shape[2:], dtype=torch.cfloat)
        low = spectrum[:, :, :2, :3]
        out[:, :, :2, :3] = torch.einsum("bixy,ioxy->boxy", low, self.weight)
        pairs = torch.view_as_complex(queries.float().reshape(2, 5, 4, 2))
        turned = torch.view_as_real(pairs * self.turns.view(1, 5, 4)).flatten(2).type_as(queries)
        return torch.fft.irfft2(out, s=x.shape[-2:]), turned, {"low": low, "z": (z * 2j).conj()}


def fourier():
    torch.manual_seed(0)
    return Fourier(), (drawn(2, 3, 6, 7), drawn(2, 5, 8), torch.complex(drawn(3), drawn(3) + 1))


@pytest.mark.parametrize("ending", [pytest.param("", marks=pytest.mark.exhaustive), ".pt", ".pt2"])
def test_complex_arguments_and_results_are_pairs(ending, tmp_path):
    module, inputs = fourier()
    if ending:
        path = save(module, inputs, tmp_path / f"fourier{ending}", strict=False)
        model = load_model(source_from_file(path, training=True), quiet)
        assert str(dict(model.source.inputs)["z"]) == "complex64[3]"
        inputs = model.own_inputs(model.inputs)
    else:
        source = ModelSource("fourier", training=True)
        model = model_from_module(module, ("x", "queries", "z"), inputs, source, quiet)
    said = "Complex tensors are pairs of floats, with real and imaginary part on a last axis of 2: "
    assert any(n.startswith(said) and "weight" in n and "output 3" in n for n in model.notes)
    live = live_of(model)
    pairs = map(torch.view_as_real, (inputs[2], module.weight.detach(), module.turns))
    values = dict(zip(("z", "weight", "turns"), pairs, strict=True))
    values |= {"x": inputs[0], "queries": inputs[1]}
    leaves = [*(t.clone().requires_grad_() for t in inputs)]
    outputs = flat_tensors(module(*leaves))
    theirs = [torch.view_as_real(o.resolve_conj()) if o.is_complex() else o for o in outputs]
    torch.testing.assert_close(model.forward(), tuple(t.detach() for t in theirs))
    ours = live.forward(values)
    torch.testing.assert_close(ours, tuple(t.detach() for t in theirs), **close(ELEMENTWISE))
    gradients = torch.autograd.grad(theirs, [*leaves, module.weight], model.grad_outs())
    expected = dict(zip(("x", "queries", "z", "weight"), gradients, strict=True))
    expected |= {n: torch.view_as_real(expected[n].resolve_conj()) for n in ("z", "weight")}
    torch.testing.assert_close(model.gradients(), expected)
    found = backward(live, values, expected, model.grad_outs())
    torch.testing.assert_close(found, expected, **close(ELEMENTWISE))


def test_a_module_with_complex_numbers_trains_through_a_dispatch():
    module, inputs = fourier()
    plain = copy.deepcopy(module)
    add_tvm_dispatch(module, inputs, engine=ENGINE, target=QUICK)
    for one in (module, plain):
        out, turned, rest = one(*inputs)
        (out.sum() + turned.sum() + (rest["z"] * 1j).real.sum()).backward()
    assert module.forward.calls["tvm"] == 1
    torch.testing.assert_close(rest["z"], module(*inputs)[2]["z"], **close(ELEMENTWISE))
    torch.testing.assert_close(module.weight.grad, plain.weight.grad, **close(ELEMENTWISE))


def test_a_complex_argument_that_is_changed_in_place_is_refused_by_name():
    with refused(match="aten::mul_ changes the complex tensor x0 in place"):
        program(lambda x: x.mul_(2).real, (torch.ones(2, dtype=torch.complex64),), training=False)
