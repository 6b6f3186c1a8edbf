"""What PyTorch keeps of small modules, where a head can count it."""

import pytest
import torch

from engine.rivals import eager_bytes, min_cut_bytes
from samples import build

X = torch.ones(8, 4)


class Two(torch.nn.Module):
    """tanh(x @ w), twice reshaped, and dropped out."""

    def __init__(self, drop=0.0):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.drop = torch.nn.Dropout(drop)

    def forward(self, x):
        t = torch.tanh(self.linear(x))
        return self.drop(t.view(2, 16) * t.reshape(2, 16))


def test_views_of_one_storage_count_once_and_inputs_and_parameters_not():
    # autograd saves t for tanh, and two views of t for the product
    assert eager_bytes(Two(), [X]) == 8 * 4 * 4
    assert min_cut_bytes(Two(), [X]) == 8 * 4 * 4


def test_masks_are_left_out():
    torch.manual_seed(0)
    assert eager_bytes(Two(0.5), [X]) == 8 * 4 * 4
    assert min_cut_bytes(Two(0.5), [X]) == 8 * 4 * 4


def test_a_bert_layer_keeps_what_its_operators_save():
    wide, long, heads = 768, 14, 12
    hidden, scores = wide * long * 4, heads * long * long * 4
    # q, k, v; softmax and what is left of it after dropout; the attention's result; both sums
    # before the layer norms, with their means and deviations; the first norm's result; the
    # feed-forward's inner values before and after gelu
    expected = 3 * hidden + 2 * scores + hidden + 2 * hidden + 4 * long * 4 + hidden + 8 * hidden
    module, inputs = build("bert_layer", training=True)
    assert eager_bytes(module, inputs) == expected == 664_160


@pytest.mark.parametrize("name", ["mlp", "bert_self_attention"])
def test_the_partitioner_keeps_no_more_than_eager(name):
    module, inputs = build(name, training=True)
    assert 0 < min_cut_bytes(module, inputs) <= eager_bytes(module, inputs)


def test_measuring_leaves_the_inputs_alone():
    x = torch.ones(8, 4)
    eager_bytes(Two(), [x])
    min_cut_bytes(Two(), [x])
    assert not x.requires_grad
    assert x.grad is None
