"""Changes in place of parts of tensors that something else sees, from a file, against PyTorch."""

import copy

import pytest
import torch
from torch import nn

from answers import quiet, refused
from edge_values import backward, live_of
from limits import ELEMENTWISE, close
from quick import ENGINE
from relascope.engine.protocol.source import source_from_file, with_tensors
from relascope.engine.pytorch.model import load_model
from traces import save

ROW = torch.tensor([0.5, -1.0, 2.0, 3.0])


def two_views(y, table):
    first, second = y[:, 0], y[:, 1]
    first[:] = second * 2
    second[:] = y[:, 2]
    return y


def unbound(y, table):
    rows = y.unbind(0)
    y[1].copy_(rows[2] * 3)
    return y * 1, y[1] + 1


def view_of_a_view(y, table):
    rows = y[1:3]
    column = rows[:, 2]
    y[1] = 7.0
    rows[1].mul_(2)
    return column * 3, y


def listed(y, table):
    rows = [y[0], y[1]]
    y[0] = 5.0
    return torch.stack(rows)


def read_in_a_list(y, table):
    first, second = y * 2, y + 1
    first.div_(3)
    return torch.einsum("ij,kj->ik", first, second), second.view(-1) * 2


def turned_in_place(y, table):
    mask = y > 0
    mask[:, 0] = False
    mask.unsqueeze_(2)
    return y.unsqueeze(2) * mask


def overlapping(y, table):
    y[:, 1:4] += y[:, 2:5].clone()
    return y


def turned(y, table):
    z = y.view(2, 2, 6).permute(2, 0, 1)
    z[3] = 1.0
    z.select(1, 0).exp_()
    return z * 1, y


def of_the_same(y, table):
    same = torch.ops.aten.alias(y)
    same[:, 1] *= 2
    same.T[0] = 4.0
    return y + 1


def narrowed(y, table):
    y.narrow(1, 2, 3).sigmoid_()
    return y + y[:1]


def integers(y, table):
    z = (y * 3).long()
    z[1:] = y[1:] * 2
    z[0] //= 2
    z[2, 1] = 2.7
    return z.float() + y


def of_bools(y, table):
    y[1].gt_(0.0)
    return y * 2


def part_of_a_buffer(y, table):
    table[1] = y[0].detach()
    return table * y


def whole_buffer_then_a_part(y, table):
    table.mul_(0.5)
    table[:, 0].zero_()
    return table + y


def through_view(y, table):
    y.view(-1).add_(0.5)
    return y * 2


def through_transposed(y, table):
    y.t().mul_(ROW)
    return y + y[0]


def diagonal(y, table):
    y.diagonal().fill_(3.0)
    return y * y


def squeezed(y, table):
    y[None].squeeze(0)[2].sub_(1)
    return y * y[1:].numel()


WRITES = [
    *(two_views, unbound, view_of_a_view, listed, read_in_a_list, turned_in_place, overlapping),
    *(turned, narrowed, integers, of_bools, part_of_a_buffer, whole_buffer_then_a_part),
    *(through_view, through_transposed, diagonal, squeezed, of_the_same),
]


class Written(nn.Module):
    """All functions, each of an input and a buffer of its own: a build costs more than a write."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions
        for function in functions:
            table = torch.arange(24.0).reshape(4, 6)
            self.register_buffer(f"table_{function.__name__}", table)

    def forward(self, *inputs):
        tables = self.buffers()
        made = [f(x * 1.5, t) for f, x, t in zip(self.functions, inputs, tables, strict=True)]
        return tuple(r for rs in made for r in (rs if isinstance(rs, tuple) else (rs,)))


def through_what_may_be_a_copy(y, table):
    y.flatten()[3:] = 0
    return y * 1


def opened(module, inputs, path):
    torch.save(list(inputs), saved := path.with_suffix(".inputs.pt"))
    save(copy.deepcopy(module), inputs, path)
    model = load_model(with_tensors(source_from_file(path, training=True), [saved]), quiet)
    return model, live_of(model)


def test_a_write_through_what_may_be_a_copy_is_refused(tmp_path):
    """A file does not say whether memory lets `flatten` be a view; a program does."""
    module, inputs = Written([through_what_may_be_a_copy]), (torch.randn(4, 6),)
    with refused(match="aten::fill_ changes a tensor in place"):
        opened(module, inputs, tmp_path / "written.pt")


ALL = [(".pt", WRITES), (".pt2", [*WRITES, through_what_may_be_a_copy])]
# Writes are taken out before an engine imports a program: by PyTorch, or out of a trace by us.
FEW = [(".pt", WRITES[::4])] if ENGINE == "relay" else [ALL[0], (".pt2", ALL[1][1][::3])]
FEW += [pytest.param(*a, marks=pytest.mark.exhaustive) for a in ALL if a not in FEW]


@pytest.mark.parametrize(("ending", "functions"), FEW)
def test_writes_into_parts_are_as_in_pytorch(ending, functions, tmp_path):
    torch.manual_seed(0)
    module, inputs = Written(functions), tuple(torch.randn(len(functions), 4, 6))
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
