"""Complex tensors as pairs, and Fourier transforms: values and gradients are PyTorch's."""

import pytest
import torch

from answers import refused
from edge_values import drawn, forwards_agree, gradients_agree_of, program
from quick import QUICK
from relascope.core.errors import EngineError


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
    parts = (
        (z.conj() * (1 + 2j) - x[:, :5]).imag,
        (z * z / 3 + 1).real.sum(-1),
        (2 - z.mean(0)).real,
    )
    moved = torch.cat([z.flip(1), torch.fft.fftshift(z, 1)], 1)[:, 2:7].reshape(-1)
    whole = torch.where(torch.arange(5) > 2, z, z.exp()).masked_fill(torch.arange(5) == 0, 4.0)
    return *parts, z.abs(), torch.view_as_real(moved), whole.real + whole.imag


def inverse(x):
    z = torch.fft.fftn(x, dim=(0, 2))
    parts = (
        torch.fft.ifft(z, dim=2).imag,
        torch.fft.hfft(z, n=9, dim=0),
        torch.fft.irfft(z, n=7, dim=1),
    )
    return (
        *parts,
        torch.view_as_real(torch.fft.ihfft(x, dim=1).resolve_conj()),
        torch.fft.irfft(x, n=10),
    )


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


def test_gradients_of_transforms():
    gradients_agree_of({n: CASES[n] for n in ("filtered", "around 3")})


@pytest.mark.exhaustive
def test_gradients_of_what_stands_around_transforms():
    gradients_agree_of(CASES)


def test_the_size_of_zero_has_a_gradient_of_zero():
    zeros = torch.zeros(3, 2)
    gradients_agree_of({"abs": (lambda x: torch.view_as_complex(x).abs(), zeros)})


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: torch.fft.rfft(x), "The model returns complex numbers"),
        (lambda x: (1 / torch.fft.rfft(x)).real, "reciprocal has no form for pairs"),
        (lambda x: torch.fft.rfft(x, n=4096).real, "4096 elements is longer than 2048"),
        (lambda x: torch.fft.rfft(x).tanh().real, "tanh has no form for pairs"),
    ],
)
def test_what_has_no_form_is_refused_by_name(function, match):
    with pytest.raises(EngineError, match=match):
        program(function, (drawn(3, 8),), training=False)


def test_a_complex_argument_is_refused_by_name():
    with refused(match="has no complex numbers", where="x0"):
        program(lambda x: (x * 2).real, (torch.ones(2, dtype=torch.complex64),), training=False)
