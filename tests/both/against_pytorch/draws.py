"""Modules that draw random numbers in forward: each draw is an input that PyTorch fills."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from answers import quiet
from edge_values import backward, live_of
from limits import ELEMENTWISE, close
from quick import combinations
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.model import flat_tensors, load_model, model_from_module, seeded
from traces import Parts, save

SEED = 3
LIMIT = 100 * ELEMENTWISE  # one after the other, some hundred operators


def draws(m, x):
    """Every operator that draws, in and out of place, with dropouts in between."""
    y = m.drop(m.fc(x))
    y = F.gumbel_softmax(y, 0.7)
    y = y + torch.rand_like(y) * torch.randn(2, 3)
    y = m.drop(y) + torch.rand(2, 3) + torch.randint(-4, 5, (2, 3))
    y = y * torch.empty_like(y).uniform_(-1, 1) + torch.empty(2, 3).normal_(1, 2)
    y = y + torch.bernoulli(torch.sigmoid(x[:, :3])) + torch.empty(2, 3).bernoulli_(0.3)
    y = y * torch.empty(2, 3).log_normal_(0, 0.1) + torch.empty(3).cauchy_(0, 0.1).clamp(-2, 2)
    y = y[:, torch.randperm(3)] + torch.empty(2, 3).geometric_(0.4)
    return y * torch.randn_like(torch.zeros(3, 2).t()) + torch.randint_like(y.detach(), 7)


def composed(m, x):
    """Every operator that computes with what it draws; of each kind the outputs are read."""
    y = m.wide(x)
    p = y.softmax(-1)
    one, several = torch.multinomial(p.t(), 1), torch.multinomial(p, 3)  # in its memory's order
    again = torch.multinomial(p, 4, replacement=True)
    rare = torch.multinomial(p * (torch.arange(6) > 2), 3)  # what is impossible is never drawn
    half = torch.multinomial(p.bfloat16(), 2)
    z = y.gather(1, several).sum(1) + y.gather(1, again).sum(1) + one.sum()
    z = z + y.gather(1, rare).sum(1) * half.sum(1)
    y = y * torch.normal(y.detach(), 0.5) + torch.normal(y.detach(), p.detach())
    y = y * torch.normal(0.2, p.detach()) + torch.normal(0.5, 2.0, (2, 6))
    y = F.alpha_dropout(y.t(), 0.3, True).t().reshape(2, 3, 2)
    y = y + m.layers(y)[0]
    y = F.dropout1d(y, 0.4, True) + F.feature_alpha_dropout(y, 0.4, True)
    y = F.scaled_dot_product_attention(y, y, y, dropout_p=0.4)
    return y.sum((1, 2)) + z + torch.bernoulli(p.double()).sum(1)


def opened(run, ending, folder):
    torch.manual_seed(0)
    parts = {"fc": nn.Linear(4, 3), "drop": nn.Dropout(0.5)}
    if run is composed:
        layers = nn.RNN(2, 2, 2, dropout=0.4, batch_first=True)
        parts = {"wide": nn.Linear(4, 6), "layers": layers}
    module, x = Parts(run, **parts).train(), torch.randn(2, 4)
    if not ending:
        source = ModelSource("draws", seed=SEED, training=True)
        return model_from_module(module, ("x",), (x,), source, quiet)
    path = save(module, (x,), folder / f"draws{ending}")
    return load_model(source_from_file(path, seed=SEED, training=True), quiet)


@pytest.mark.parametrize(
    ("of", "ending"), combinations([(draws, 2), (composed, 1)], ["", ".pt2", ".pt"], relay=1)
)
def test_what_a_module_draws_is_an_input_that_pytorch_fills(of, ending, tmp_path):
    run, dropouts = of
    model = opened(run, ending, tmp_path)
    live = live_of(model)
    x = model.inputs[0]
    values = dict(zip(model.input_names, model.inputs, strict=True)) | model.parameters
    with seeded(SEED):
        expected = flat_tensors(model.run(x))[0]
        state = torch.get_rng_state()
    with seeded(SEED):
        masks = draw_masks(live.masks, None)
        assert torch.equal(torch.get_rng_state(), state)
    of_dropouts = [n for n in masks if n.startswith("dropout_mask")]
    assert of_dropouts == [f"dropout_mask_{i}" for i in range(dropouts)]
    output, *_ = live.forward({**values, **masks})
    torch.testing.assert_close(output, expected, **close(LIMIT))
    expected = model.gradients()
    gradients = backward(live, {**values, **masks}, expected, model.grad_outs())
    for name, theirs in expected.items():
        torch.testing.assert_close(gradients[name], theirs, **close(LIMIT))
