"""Changes in place of parts of tensors, and modules that draw random numbers, against PyTorch."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from answers import quiet, refused
from edge_values import backward, live_of
from limits import ELEMENTWISE, close
from quick import ENGINE, combinations
from relascope.engine.cpu_kernels.dropout_masks import draw_masks
from relascope.engine.protocol.source import ModelSource, source_from_file, with_tensors
from relascope.engine.pytorch.model import flat_tensors, load_model, model_from_module, seeded
from traces import Parts, save

# Bodies of functions of y, which is computed and has 4 rows of 6, and of a buffer alike.
BODIES = """
two_views: first, second = y[:, 0], y[:, 1]; first[:] = second * 2; second[:] = y[:, 2]; return y
unbound: rows = y.unbind(0); y[1].copy_(rows[2] * 3); return y * 1, y[1] + 1
view_of_a_view: r = y[1:3]; column = r[:, 2]; y[1] = 7.0; r[1].mul_(2); return column * 3, y
listed: rows = [y[0], y[1]]; y[0] = 5.0; return torch.stack(rows)
in_a_list: a, b = y * 2, y + 1; a.div_(3); return torch.einsum("ij,kj->ik", a, b), b.view(-1) * 2
turned_in_place: mask = y > 0; mask[:, 0] = False; mask.unsqueeze_(2); return y.unsqueeze(2) * mask
overlapping: y[:, 1:4] += y[:, 2:5].clone(); return y
turned: z = y.view(2, 2, 6).permute(2, 0, 1); z[3] = 1.0; z.select(1, 0).exp_(); return z * 1, y
narrowed: y.narrow(1, 2, 3).sigmoid_(); return y + y[:1]
integers: z = (y * 3).long(); z[1:] = y[1:] * 2; z[0] //= 2; z[2, 1] = 2.7; return z.float() + y
of_bools: y[1].gt_(0.0); return y * 2
part_of_a_buffer: table[1] = y[0].detach(); return table * y
whole_buffer_then_a_part: table.mul_(0.5); table[:, 0].zero_(); return table + y
through_view: y.view(-1).add_(0.5); return y * 2
through_transposed: y.t().mul_(torch.tensor([0.5, -1.0, 2.0, 3.0])); return y + y[0]
diagonal: y.diagonal().fill_(3.0); return y * y
squeezed: y[None].squeeze(0)[2].sub_(1); return y * y[1:].numel()
of_the_same: z = torch.ops.aten.alias(y); z[:, 1] *= 2; z.T[0] = 4.0; return y + 1
through_what_may_be_a_copy: y.flatten()[3:] = 0; return y * 1
"""


def _written(line):
    name, _, body = line.partition(": ")
    exec(f"def {name}(y, table): {body}", made := {"torch": torch})
    return made[name]


*WRITES, COPIED = map(_written, BODIES.strip().splitlines())


def together(functions):
    """All functions, each of an input and a buffer of its own: a build costs more than a write."""

    def run(m, *inputs):
        made = [f(x * 1.5, t) for f, x, t in zip(functions, inputs, m.buffers(), strict=True)]
        return tuple(r for rs in made for r in (rs if isinstance(rs, tuple) else (rs,)))

    tables = {f"table_{f.__name__}": torch.arange(24.0).reshape(4, 6) for f in functions}
    return Parts(run, **tables)


def opened(module, inputs, path):
    torch.save(list(inputs), saved := path.with_suffix(".inputs.pt"))
    save(copy.deepcopy(module), inputs, path)
    model = load_model(with_tensors(source_from_file(path, training=True), [saved]), quiet)
    return model, live_of(model)


def test_a_write_through_what_may_be_a_copy_is_refused(tmp_path):
    """A file does not say whether memory lets `flatten` be a view; a program does."""
    module, inputs = together([COPIED]), (torch.randn(4, 6),)
    with refused(match="aten::fill_ changes a tensor in place"):
        opened(module, inputs, tmp_path / "written.pt")


ALL = [(".pt", WRITES), (".pt2", [*WRITES, COPIED])]
# Writes are taken out before an engine imports a program: by PyTorch, or out of a trace by us.
FEW = [(".pt", WRITES[::4])] if ENGINE == "relay" else [ALL[0], (".pt2", ALL[1][1][::3])]
FEW += [pytest.param(*a, marks=pytest.mark.exhaustive) for a in ALL if a not in FEW]


@pytest.mark.parametrize(("ending", "functions"), FEW)
def test_writes_into_parts_are_as_in_pytorch(ending, functions, tmp_path):
    torch.manual_seed(0)
    module, inputs = together(functions), tuple(torch.randn(len(functions), 4, 6))
    model, live = opened(module, inputs, tmp_path / f"written{ending}")
    for name, buffer in model.buffers.items():  # which tracing has changed already
        module.get_buffer(name).copy_(buffer)
    plain = copy.deepcopy(module)
    expected = module(*(x.clone().requires_grad_() for x in inputs))
    updated = [n for n in model.buffers if "buffer" in n]
    assert updated
    values = {**dict(zip(model.input_names, inputs, strict=True)), **model.buffers}
    outputs = live.forward(values)
    expected = *expected, *map(module.get_buffer, updated)
    for ours, theirs in zip(outputs, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    ours = backward(live, values, model.input_names, model.grad_outs())
    leaves = [x.clone().requires_grad_() for x in inputs]
    theirs = torch.autograd.grad(plain(*leaves), leaves, model.grad_outs())
    for name, gradient in zip(model.input_names, theirs, strict=True):
        torch.testing.assert_close(ours[name], gradient, **close(ELEMENTWISE))


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


def drawing(run, ending, folder):
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
    model = drawing(run, ending, tmp_path)
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
