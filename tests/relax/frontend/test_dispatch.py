"""TVM in training code, through Relax."""

import copy
import math

import torch

from dispatching import *  # noqa: F403
from dispatching import add_tvm_dispatch, counted, sample
from traces import Fn


def masked(x, w):
    hidden = torch.where(x > 0, x.clone().fill_(-math.inf), x).softmax(-1)
    scores = (x + hidden) @ w @ x.T
    return scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf).softmax(-1)


def test_infinite_fills_are_trained_as_with_pytorch():
    torch.manual_seed(0)
    plain, weights = Fn(masked, (8, 8)), torch.randn(5, 5)
    ours = copy.deepcopy(plain)
    add_tvm_dispatch(ours, sample(), verify=False)
    (plain(sample()) * weights).sum().backward()
    (ours(sample()) * weights).sum().backward()
    assert counted(ours) == (1, 0)
    torch.testing.assert_close(ours.weights[0].grad, plain.weights[0].grad)
