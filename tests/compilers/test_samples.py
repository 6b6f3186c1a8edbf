"""The samples: what they promise, and that weights cannot hide an error."""

import pytest
import torch

from relascope.samples import SAMPLES, build


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_is_what_its_entry_says(name):
    sample = SAMPLES[name]
    module, inputs = build(name)
    assert sum(p.numel() for p in module.parameters()) == sample.parameters
    assert len(inputs) == len(sample.inputs) and not module.training
    assert inputs[0].shape[0] == sample.default_batch
    if sample.default_tokens is not None:
        assert inputs[0].shape[1] == sample.default_tokens
    for parameter_name, parameter in module.named_parameters():
        numbers = parameter if parameter.numel() > 1 else torch.stack([parameter, -parameter])
        assert numbers.std() > 1e-3, f"{parameter_name} is constant"


def test_same_seed_same_numbers_in_both_dtypes_and_global_generator_untouched():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, inputs = build("mlp", seed=3)
    assert torch.equal(torch.rand(3), expected)
    second, same = build("mlp", seed=3)
    other, _ = build("mlp", seed=4)
    assert torch.equal(first.hidden.weight, second.hidden.weight)
    assert torch.equal(inputs[0], same[0])
    assert not torch.equal(first.hidden.weight, other.hidden.weight)
    single, (x,) = build("mlp")
    double, (y,) = build("mlp", dtype="float64")
    assert torch.equal(single.norm.weight.double(), double.norm.weight)
    assert y.dtype == torch.float64 and torch.equal(x.double(), y)


def test_sizes_and_training():
    module, (hidden, mask) = build("bert_layer", batch=2, tokens=5, training=True)
    assert (hidden.shape, mask.shape) == ((2, 5, 768), (2, 1, 1, 5))
    assert (mask[..., -1] < -1000).all() and (mask[..., 0] == 0).all()
    assert module.training


def test_the_gradients_of_micrograd_are_those_of_its_lecture():
    module, inputs = build("micrograd", batch=3, dtype="float64")
    x, y = (i.requires_grad_() for i in inputs)
    out = module(x, y)
    g = torch.randn(3, dtype=torch.float64)
    out.backward(g)
    w0, w1, b, v0, v1, c, u0, u1, d = (p.detach() for p in module.parameters())
    left, right = torch.tanh(w0 * x + w1 * y + b), torch.tanh(v0 * x + v1 * y + c)
    assert torch.allclose(out, u0 * left + u1 * right + d)
    p, q = g * u0 * (1 - left**2), g * u1 * (1 - right**2)
    of_weights = p * x, p * y, p, q * x, q * y, q, g * left, g * right, g
    for parameter, rows in zip(module.parameters(), of_weights, strict=True):
        assert torch.allclose(parameter.grad, rows.sum())
    assert torch.allclose(x.grad, p * w0 + q * v0) and torch.allclose(y.grad, p * w1 + q * v1)


WRONG = [("mlp", "tokens", 4), ("mlp", "batch", 0), ("bert_layer", "tokens", -1)]


@pytest.mark.parametrize(("name", "word", "size"), WRONG)
def test_sizes_that_cannot_be(name, word, size):
    with pytest.raises(ValueError, match=word):
        build(name, **{word: size})
