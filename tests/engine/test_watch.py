"""What is written out for a trace is what PyTorch computes, mask for mask."""

from functools import partial
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from limits import ELEMENTWISE, GRADIENT, close
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch import watch
from relascope.engine.pytorch.attention import attention
from relascope.engine.pytorch.draws import COMPOSED
from relascope.engine.pytorch.model import model_from_module
from traces import Parts

WHOLE = F.scaled_dot_product_attention


def seeded(run):
    torch.manual_seed(3)
    return run()


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        ("feature_dropout", F.dropout1d, (2, 5, 7)),
        ("feature_dropout", F.dropout2d, (2, 5, 3, 4)),
        ("feature_dropout", F.dropout3d, (2, 5, 2, 3, 4)),
        ("alpha_dropout", F.alpha_dropout, (40, 5)),
        ("feature_alpha_dropout", F.feature_alpha_dropout, (2, 5, 7)),
    ],
)
@pytest.mark.parametrize(
    ("rate", "training"), [(0.4, True), (0.4, False), (0.0, True), (1.0, True)]
)
def test_what_drops_whole_features_or_by_alpha_draws_the_same(ours, theirs, shape, rate, training):
    x = torch.randn(shape)
    written = COMPOSED[f"{ours}.default"]
    one, other = (seeded(partial(f, x, rate, training)) for f in (written, theirs))
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
    with patch.object(torch, "dropout", lambda x, rate, train: x):
        ours = attention(query, key, value, MASKS[mask], 0.5, **more)
    torch.testing.assert_close(ours, theirs, **close(ELEMENTWISE))


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
        torch.testing.assert_close(mine, theirs, **close(GRADIENT))


def filled(x, fill):
    made = torch.zeros(3)
    fill(made, x[0])
    return x * float(made.sum())


READS = {
    "item": lambda m, x: x * x.sum().item(),
    "item of a parameter": lambda m, x: x * m.scale.sum().item(),
    "float": lambda m, x: x * float(x.sum()),
    "int of a buffer": lambda m, x: x * int(m.mean.sum()),
    "bool": lambda m, x: x * 2 if x.sum() > 0 else x,
    "index": lambda m, x: x * range(9)[x.sum().long() % 9],
    "tolist": lambda m, x: x * sum(x[0].tolist()),
    "contains": lambda m, x: x * (3 in x),
    "equal": lambda m, x: x * torch.equal(x, x.flip(0)),
    "float of what was filled": lambda m, x: filled(x, torch.Tensor.copy_),
    "float of what was written": lambda m, x: filled(x, lambda made, row: made[:].add_(row)),
    "float of what is out": lambda m, x: filled(x, lambda made, row: torch.add(row, 1, out=made)),
    "local_scalar_dense": lambda m, x: x * torch.ops.aten._local_scalar_dense.default(x.sum()),
}
FIXED = {
    "shapes": lambda m, x: x.reshape(int(x.shape[0]) * x.size(1)) * len(x) * float(x.numel()),
    "constants": lambda m, x: x * torch.arange(3).max().item() + float(torch.tensor(2.0)),
    "decided by a shape": lambda m, x: x * 2 if x.shape[0] * 3 > x.numel() - 1 else x,
}


def read(run):
    reading = Parts(run, scale=nn.Parameter(torch.ones(3)), mean=torch.ones(3))
    module, source = nn.Sequential(reading), ModelSource("own")
    return model_from_module(module, ("x",), (torch.rand(2, 3),), source, silent)


@pytest.mark.parametrize("name", READS)
def test_a_value_that_is_read_out_of_a_tensor_is_named_with_its_line(name):
    model = read(READS[name])
    assert len(model.reads) == 1
    assert model.reads[0] in model.notes
    assert model.reads[0].startswith(f"{name.partition(' ')[0]}() in 0 (test_watch.py:")


@pytest.mark.parametrize("name", FIXED)
def test_what_depends_on_no_value_is_not_named_and_a_line_once(name):
    assert not read(FIXED[name]).reads
    assert len(read(lambda m, x: sum(x * x[i, 0].item() for i in range(2))).reads) == 1
