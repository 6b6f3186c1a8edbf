"""What is written out for a trace is what PyTorch computes, mask for mask."""

from functools import partial
from unittest.mock import patch

import pytest
import torch
from torch.nn import functional as F

from relascope.engine.pytorch import watch

WHOLE = F.scaled_dot_product_attention


def seeded(run):
    torch.manual_seed(3)
    return run()


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (watch._of_features, F.dropout1d, (2, 5, 7)),
        (watch._of_features, F.dropout2d, (2, 5, 3, 4)),
        (watch._of_features, F.dropout3d, (2, 5, 2, 3, 4)),
        (watch._of_alpha, F.alpha_dropout, (40, 5)),
    ],
)
@pytest.mark.parametrize(("rate", "training"), [(0.4, True), (0.4, False), (0.0, True)])
def test_what_drops_whole_features_or_by_alpha_draws_the_same(ours, theirs, shape, rate, training):
    x = torch.randn(shape)
    one, other = (seeded(partial(f, x, rate, training)) for f in (ours, theirs))
    torch.testing.assert_close(one, other)


MASKS = {
    "none": None,
    "booleans": torch.rand(4, 6) > 0.4,
    "numbers": torch.randn(4, 6),
    "all hidden": torch.zeros(4, 6, dtype=torch.bool),
}


@pytest.mark.parametrize(
    ("mask", "more"),
    [
        *((m, more) for m in MASKS for more in ({}, {"scale": 0.3}, {"enable_gqa": True})),
        ("none", {"is_causal": True}),
    ],
)
def test_attention_that_drops_is_that_of_pytorch_where_nothing_is_dropped(mask, more):
    torch.manual_seed(0)
    query = torch.randn(2, 4, 4, 8)
    key, value = (torch.randn(2, 2 if "enable_gqa" in more else 4, 6, 8) for _ in range(2))
    theirs = WHOLE(query, key, value, MASKS[mask], **more)
    with watch.written_out(), patch.object(F, "dropout", lambda x, rate: x):
        ours = F.scaled_dot_product_attention(query, key, value, MASKS[mask], 0.5, **more)
        plain = F.scaled_dot_product_attention(query, key, value, MASKS[mask], 0.0, **more)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert torch.equal(plain, theirs)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("var", [0.5, torch.rand(3), torch.rand(3, 4) * 1e-5])
def test_a_bounded_variance_has_the_same_loss_and_gradient(full, reduction, var):
    data, target = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    given = var.clone().requires_grad_() if isinstance(var, torch.Tensor) else var
    losses = [
        f(data, target, given, full=full, reduction=reduction)
        for f in (watch._gaussian_nll, F.gaussian_nll_loss)
    ]
    torch.testing.assert_close(*losses)
    if isinstance(given, torch.Tensor):
        mine, theirs = (torch.autograd.grad(loss.sum(), given)[0] for loss in losses)
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
