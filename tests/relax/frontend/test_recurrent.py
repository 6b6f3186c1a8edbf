"""LSTM, GRU and RNN written out are what PyTorch computes, and their gradients."""

from functools import partial
from itertools import product

import pytest
import torch
from torch import nn

from limits import close, rounding
from relascope.engine.pytorch.operators.recurrent import recurrent

KINDS = {
    "lstm": nn.LSTM,
    "projected": partial(nn.LSTM, proj_size=3),
    "gru": nn.GRU,
    "rnn_tanh": nn.RNN,
    "rnn_relu": partial(nn.RNN, nonlinearity="relu"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_pytorchs(kind):
    torch.manual_seed(0)
    for layers, *given in product((1, 2), (False, True), (False, True), (False, True)):
        bias, both, first = given
        about = {"bias": bias, "bidirectional": both, "batch_first": first, "dtype": torch.float64}
        module = KINDS[kind](5, 7, layers, **about)
        x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
        states = [(1 + both) * layers, x.shape[0 if first else 1]]
        state = [torch.randn(*states, n, dtype=torch.float64) for n in (3, 7)]
        if kind != "projected":
            state[0] = torch.randn(*states, 7, dtype=torch.float64)
        begin = tuple(state) if isinstance(module, nn.LSTM) else state[0]
        y, ends = module(x, begin)
        wanted = (y, *(ends if isinstance(ends, tuple) else (ends,)))
        base, weights = kind.replace("projected", "lstm"), module._flat_weights
        made = recurrent(base, x, begin, weights, bias, layers, 0.0, True, both, first)
        leaves = (x, *module.parameters())
        one, other = (
            (*r, *torch.autograd.grad(sum((t.cos() * 2).sum() for t in r), leaves))
            for r in (wanted, made)
        )
        torch.testing.assert_close(other, one, **close(rounding("float64", 2**10, 10)))
