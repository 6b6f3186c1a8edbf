"""Tests of the kernel that draws dropout masks, for the engine of the folder that takes them."""

import random
from copy import deepcopy
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from limits import GRADIENT, close
from quick import ENGINE, QUICK
from relascope.engine.cpu_kernels import mersenne_twister
from relascope.engine.cpu_kernels.dropout_masks import DRAWING, MaskDrawing, draw_masks
from relascope.engine.dispatch import add_tvm_dispatch
from relascope.passes.program import Mask

COUNTS = (1, 2, 311, 312, 313, 1000, 5000)


@pytest.fixture
def kernel():
    return import_module(f"relascope.engine.{ENGINE}.building.runtime").mask_kernel()


@pytest.mark.parametrize("before", [0, 1, 2, 3, 310, 311, 623, 624, 625])
def test_the_kernel_draws_the_numbers_of_pytorchs_generator(kernel, before):
    """It draws what Python's Mersenne Twister gives from the same state, pair by pair."""
    for count in COUNTS:
        for keep in (0.9, 0.5, 1e-4):
            torch.manual_seed(count)
            torch.rand(before)
            raw, layout = torch.get_rng_state().numpy(), mersenne_twister._LAYOUT
            (state,) = np.frombuffer(raw, layout, count=1)
            place = 624 if state["left"] == 1 else int(state["next"])
            theirs = random.Random()
            theirs.setstate((3, (*map(int, state["words"]), place), None))
            words = [theirs.getrandbits(32) for _ in range(2 * count)]
            halves = zip(words[::2], words[1::2], strict=True)
            pairs = [(a << 32 | b) & ((1 << 53) - 1) for a, b in halves]
            expected = torch.tensor([p / 2**53 < keep for p in pairs])
            mask = mersenne_twister.draw(kernel, torch.empty(count, dtype=torch.uint8), keep)
            assert torch.equal(mask, expected.to(torch.uint8))
            # The generator goes on behind them.
            following = theirs.getrandbits(32) % (1 << 24) / (1 << 24)
            assert torch.rand(1).item() == following


def test_masks_are_those_of_dropout(kernel):
    shapes = [(3, 5), (64, 1000), (7,), (8, 100, 50), (32769,)]
    masks = [Mask(str(i), 0.1 * (i + 1), s, "float32") for i, s in enumerate(shapes)]
    assert (DRAWING.kernel() is not None) == mersenne_twister.agrees(kernel)
    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)  # which is the caller's, and says nothing of masks
    try:
        found = draw_masks(masks, None)
    finally:
        torch.set_default_dtype(torch.float32)
    after = torch.rand(3)
    torch.manual_seed(5)
    for mask in masks:
        ones = torch.ones(mask.shape)
        assert found[mask.name].dtype == torch.uint8
        scaled = found[mask.name] * torch.tensor(mask.scale)
        assert torch.equal(scaled, torch.nn.functional.dropout(ones, mask.rate))
    assert torch.equal(torch.rand(3), after)


def test_bits_are_those_of_the_bytes_eighth_by_eighth():
    for shape, order in (((16, 5), ()), ((3, 5, 7), (2, 0, 1)), ((3,), ())):
        mask = Mask("mask", 0.4, shape, "float32", order)
        (drawn,) = draw_masks([mask], 3).values()
        ((name, bits),) = draw_masks([mask.in_bits()], 3).items()
        padded = np.zeros(8 * bits.shape[1], np.uint8)
        padded[: drawn.numel()] = drawn.flatten().numpy()
        expected = np.packbits(padded.reshape(8, -1), axis=0, bitorder="little")
        assert (name, bits.dtype) == ("mask_bits", torch.uint8)
        assert np.array_equal(bits.numpy(), expected)


def test_nan_stays_where_a_dropout_keeps_nothing():
    module, x = torch.nn.Dropout(1.0), torch.tensor([[1.0, float("nan")], [float("inf"), -2.0]])
    expected = module(x).isnan()
    add_tvm_dispatch(module, (torch.ones(2, 2),), engine=ENGINE)
    assert torch.equal(module(x).isnan(), expected)


def test_masks_drawn_again_are_those_of_the_forward():
    """In two calls before one backward, between draws of PyTorch's own, and in a second backward;
    39,000 numbers are drawn by the kernel, and 9,600 by PyTorch."""
    torch.manual_seed(0)
    layers = nn.Linear(8, 65), nn.Dropout(0.4), nn.Tanh(), nn.Linear(65, 16), nn.Dropout(0.1)
    own = nn.Sequential(*layers)
    x, net = torch.randn(600, 8), deepcopy(own)
    about = {"captures": "budget", "budget": 12_000, "verify": False}
    add_tvm_dispatch(net, (x,), engine=ENGINE, target=QUICK, **about)

    def step(module):
        torch.manual_seed(3)
        inputs = [(x + k).requires_grad_() for k in range(2)]
        results = [torch.nn.functional.dropout(module(i)).exp() for i in inputs]
        found, loss = list(results), results[0].sum() + 2 * results[1].sum()
        for _ in range(2):
            torch.rand(5)
            leaves = [*inputs, *module.parameters()]
            found += torch.autograd.grad(loss, leaves, retain_graph=True)
        return [*found, module.eval()(x), module.train()(x), torch.get_rng_state()]

    for ours, theirs in zip(step(net), step(own), strict=True):
        torch.testing.assert_close(ours, theirs, **close(GRADIENT))
    dispatch = net.__dict__["forward"]
    assert dispatch.calls == {"tvm": 4, "own": 0}
    steps = [s for m in dispatch.routes[0].modes.values() for s in m.live._steps.values()]
    masks = [m for s in steps for m in s.drawn_again]
    assert {m.elements for m in masks} == {39_000, 9_600}
    assert not any(m.name in s.read_by_backward for s in steps for m in masks)


def test_a_kernel_that_draws_other_numbers_is_not_used():
    drawing = MaskDrawing()
    assert drawing.kernel() is None
    drawing.provide(lambda: lambda tensors: tensors[3].fill_(1))
    assert drawing.kernel() is None
