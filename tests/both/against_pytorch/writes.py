"""Changes in place of parts of tensors that something else sees, from a file, against PyTorch."""

import copy

import pytest
import torch

from answers import quiet, refused
from edge_values import backward, live_of
from limits import ELEMENTWISE, close
from quick import ENGINE
from relascope.engine.protocol.source import source_from_file, with_tensors
from relascope.engine.pytorch.model import load_model
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
