"""Attention as one call of PyTorch's: what is recognised, what is not, and the numbers."""

import math

import pytest
import torch
from torch import nn

from gradients import Fn, imported
from quick import combinations
from relascope.engine.cpu_kernels.openblas import OPENBLAS
from relascope.engine.relax.building import runtime
from relascope.engine.relax.building.targets import BLAS, SCHEDULES
from relascope.engine.relax.kernels import attention
from relax_modules import check

LIBRARY = f"llvm {BLAS} {SCHEDULES}"
SHAPE = (2, 60, 4, 16)  # batch, tokens, heads, size


def brought(x):
    return x.transpose(1, 2)


def plain(q, k, v):
    return (brought(q) @ brought(k).mT / math.sqrt(16)).softmax(-1) @ brought(v)


def back(q, k, v):
    return (brought(q) @ brought(k).mT * 0.25).softmax(-1).matmul(brought(v)).transpose(1, 2)


def masked(q, k, v, mask):
    return (mask + 0.3 * (brought(q) @ k.permute(0, 2, 3, 1))).softmax(-1) @ brought(v)


def fused(q, k, v):
    return nn.functional.scaled_dot_product_attention(brought(q), brought(k), brought(v))


def unscaled(q, k, v):
    q, k, v = (t.reshape(2, 4, 60, 16) for t in (q, k, v))
    return (q @ k.mT).softmax(3) @ v


ATTENTIONS = {
    "plain": (plain, 3, "ttth"),
    "heads back": (back, 3, "tttt"),
    "mask": (masked, 4, "ttth"),
    "fused": (fused, 3, "ttth"),
    "heads first, no scale": (unscaled, 3, "hhhh"),
}


def symbols(mod):
    words = str(mod).split('"')
    return [w for w in words if w.startswith(attention._NAME)]


def dispatched(function, *inputs, target=LIBRARY):
    _, program = imported(Fn(function), *inputs)
    mod = runtime.module_of(program, "main", program.mod["main"])
    return runtime.dispatched(mod, target)


def inputs(count):
    torch.manual_seed(0)
    return [*(torch.randn(SHAPE) for _ in range(3)), torch.randn(2, 1, 1, 60)][:count]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_an_attention_is_one_call(name):
    function, count, letters = ATTENTIONS[name]
    mod = dispatched(function, *inputs(count))
    (symbol,) = symbols(mod)
    assert symbol.endswith(f" {letters}")
    assert "softmax" not in str(mod)
    assert "permute_dims" not in str(mod)


@pytest.mark.parametrize(("name", "dtype"), combinations(list(ATTENTIONS), ["float32", "float64"]))
def test_the_numbers_are_pytorchs(name, dtype):
    function, count, _ = ATTENTIONS[name]
    check(Fn(function), *inputs(count), dtype=dtype, target=LIBRARY)


def both(q, k, v):
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


OTHERS = {
    "weights are results": both,
    "another axis": lambda q, k, v: (q @ k.mT).softmax(-2) @ v,
    "a scale of each head": lambda q, k, v: (q @ k.mT * q[:1, :, :1, :1]).softmax(-1) @ v,
    "two masks": lambda q, k, v: (q @ k.mT + k.mean() + v.mean()).softmax(-1) @ v,
    "keys as they lie": lambda q, k, v: (q @ k.reshape(2, 4, 16, 60)).softmax(-1) @ v,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_stay_apart(name):
    given = [brought(t).contiguous() for t in inputs(3)]
    assert symbols(dispatched(OTHERS[name], *given)) == []


def test_few_keys_other_libraries_and_dropout_keep_the_parts():
    few = [torch.randn(1, 3, 2, 16) for _ in range(3)]
    assert symbols(dispatched(plain, *few)) == []
    long = [torch.randn(1, 512, 1, 64) for _ in range(3)]
    assert len(symbols(dispatched(plain, *long))) == 1
    assert symbols(dispatched(plain, *long, target=f"llvm {OPENBLAS}")) == []
    assert symbols(dispatched(plain, *long, target=f"llvm {SCHEDULES}")) == []
    dropped = Fn(lambda q, k, v: nn.functional.dropout((q @ k.mT).softmax(-1)) @ v)
    _, program = imported(dropped, *inputs(3), training=True)
    mod = runtime.module_of(program, "main", program.mod["main"])
    assert symbols(runtime.dispatched(mod, LIBRARY)) == []
