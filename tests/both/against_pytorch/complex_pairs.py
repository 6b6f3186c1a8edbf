"""Complex tensors as pairs, and Fourier transforms: values and gradients are PyTorch's."""

import copy

import pytest
import torch
from torch import nn

from answers import quiet, refused
from edge_values import backward, drawn, forwards_agree, gradients_agree_of, live_of, program
from limits import ELEMENTWISE, close
from quick import ENGINE, QUICK, rare
from relascope.engine.dispatch import add_tvm_dispatch
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.model import flat_tensors, load_model, model_from_module
from traces import save


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
