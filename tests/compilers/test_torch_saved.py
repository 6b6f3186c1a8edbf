"""What PyTorch keeps of small modules, where a head can count it."""

import pytest
import torch

from quick import rare
from relascope.engine.pytorch.baselines.saved import eager_bytes, torch_saved
from relascope.samples import build
from traces import Fn, Parts

X = torch.ones(8, 4)


def two(drop=0.0):
    def product(m, x):
        t = torch.tanh(m.linear(x))
        return m.drop(t.view(2, 16) * t.reshape(2, 16))

    return Parts(product, linear=torch.nn.Linear(4, 4), drop=torch.nn.Dropout(drop))


def _min_cut(module, inputs):
    return torch_saved(module, inputs, (1.0,)).within(1.0)


def test_views_of_one_storage_count_once_and_masks_with_what_is_held():
    # autograd saves t for tanh, and two views of t for the product
    assert eager_bytes(two(), [X]) == 8 * 4 * 4
    assert _min_cut(two(), [X]) == 8 * 4 * 4
    program = torch.export.unflatten(torch.export.export(two(), (X,)))
    assert _min_cut(program, [X]) == 8 * 4 * 4
    torch.manual_seed(0)
    assert eager_bytes(two(0.5), [X]) == 8 * 4 * 4 + 2 * 16 * 4  # in float32
    assert _min_cut(two(0.5), [X]) == 8 * 4 * 4 + 2 * 16  # a byte each


def test_a_bert_layer_keeps_what_its_operators_save():
    wide, long, heads = 768, 14, 12
    hidden, scores = wide * long * 4, heads * long * long * 4
    # q, k, v; softmax and what is left of it after dropout; the attention's result; both sums
    # before the layer norms, with their means and deviations; the first norm's result; the
    # feed-forward's inner values before and after gelu
    expected = 3 * hidden + 2 * scores + hidden + 2 * hidden + 4 * long * 4 + hidden + 8 * hidden
    masks = scores + 2 * hidden  # of the attention's dropout, and of two more
    module, inputs = build("bert_layer", training=True)
    assert eager_bytes(module, inputs) == expected + masks == 759_584


def test_the_partitioner_has_torch_compiles_operators_and_at_its_best_keeps_less():
    module, inputs = build("mlp", training=True)
    # as a whole, gelu could not be computed again, nor could layer norm
    mask = 8 * 256
    assert _min_cut(module, inputs) == 16_448 + mask
    assert eager_bytes(module, inputs) == 24_640 + 4 * mask
    module, inputs = build("bert_layer", training=True)
    found = torch_saved(module, inputs, estimated=True)
    default, best = (cut.bytes for cut in found.cuts)
    # Among them is a norm's deviation over its size, which only the backward reads.
    assert default == 687_960
    # No matrix product is computed again: each is a tenth of the forward's time or more.
    assert all(abs(cut.net_share) < 0.1 for cut in found.cuts)
    assert best < 0.8 * default < found.eager_bytes
    assert torch._functorch.config.activation_memory_budget == 1.0


def test_both_are_measured_and_module_inputs_and_generator_are_left_as_they_were():
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Tanh(), torch.nn.Dropout(0.5))
    before = {n: b.clone() for n, b in module.named_buffers()}
    torch.manual_seed(3)
    state, x = torch.get_rng_state(), X + torch.arange(4.0)
    found = torch_saved(module, [x])
    # The partitioner computes the normed values again, from the input, and keeps the mask.
    assert found.eager_bytes > found.within(1.0) == X.numel()
    assert found.note == "" and not x.requires_grad and x.grad is None
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(b, before[n]) for n, b in module.named_buffers())


def test_cuts_within_budgets_are_estimated_on_pytorchs_graph_and_say_which_draw_masks_anew():
    module, inputs = build("mlp", training=True)
    asked = []
    found = torch_saved(module, inputs, (1.0, 0.8, 0.0), True, asked.append)
    assert asked == [0, 1, 2]
    default, best, least = found.cuts
    assert (default.bytes, best.bytes, least.bytes) == (18_496, 10_304, 0)
    assert default.net_share < best.net_share < least.net_share < 1
    # At most the forward's two inputs are held besides the gradients, of 19,722 numbers.
    assert all(4 * 19_722 < c.peak_bytes < 4 * 30_000 for c in found.cuts)
    assert [c.drawn_anew for c in found.cuts] == [0, 0, 1]
    plain = torch_saved(module, inputs, (0.0,)).cuts[0]
    assert plain.net_share is plain.peak_bytes is None and plain.drawn_anew == 1


@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", rare("inductor")])
def test_a_mask_that_the_backward_draws_anew_is_another(backend):
    """What `drawn_anew` says of PyTorch's partitioner: its gradients are of another mask."""
    from torch._functorch import config

    module = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Dropout(0.5))
    for budget, right in ((1.0, True), (0.0, False)):
        x = torch.linspace(-1, 1, 256, requires_grad=True)
        assert (torch_saved(module, [x], (budget,)).cuts[0].drawn_anew == 0) is right
        torch.manual_seed(0)
        torch._dynamo.reset()
        with config.patch(activation_memory_budget=budget):
            y = torch.compile(module, backend=backend)(x)
            y.sum().backward()
        assert torch.equal(x.grad != 0, y != 0) is right


def test_what_the_partitioner_does_not_take_is_said():
    found = torch_saved(torch.jit.trace(two(), X), [X])
    assert found.cuts == () and "TorchScript" in found.note
    assert found.eager_bytes == 8 * 4 * 4
    valued = Fn(lambda x: x * float(x.sum()))  # its value is asked for: no graph of it
    found = torch_saved(valued, [X])
    assert found.within(1.0) is None and "cannot handle this module" in found.note
