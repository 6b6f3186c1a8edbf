"""A submodule alone, on what it really gets: of modules, traces and exported programs."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from answers import quiet, refused
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.model import Opened, model_from_module, open_model
from relascope.engine.pytorch.submodules import cut_out, load, module_rows
from traces import Parts, save


@dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor | None = None


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, hidden, pairs, mask=None, *, flag=False, names=()):
        hidden = self.linear(hidden) * (2 if flag else 1)
        for pair in pairs["all"]:
            hidden = hidden + pair.left
        return Pair(hidden if mask is None else hidden + mask, None)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
        self.again = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)

    def forward(self, x, y):
        x = self.again(x)
        for part in self.parts:
            pairs = {"all": (Pair(y), Pair(x)), "none": None}
            x = part(x, pairs, flag=True, names=("a", "b")).left
        x = x.relu_()
        return self.again(x), y


def whole(*inputs):
    torch.manual_seed(3)
    return Opened(Whole().eval(), ("x", "y"), inputs or (torch.randn(2, 4), torch.randn(4)))


def cut(opened, module, call=1):
    return cut_out(opened, ModelSource("own", module=module, call=call))


def test_a_submodule_gets_what_the_whole_gives_it_at_each_call():
    opened = whole()
    x, y = opened.inputs
    before = {n: dict(m.__dict__) for n, m in opened.module.named_modules()}
    found = cut(opened, "parts.1")
    assert found.names == ("hidden", "pairs_all_0_left")
    (note,) = found.notes
    assert "flag=True" in note and "names=('a', 'b')" in note
    first, second = opened.module.parts
    hidden = opened.module.again(x)
    given = first(hidden, {"all": (Pair(y), Pair(hidden))}, flag=True)
    assert torch.equal(found.inputs[0], given.left) and torch.equal(found.inputs[1], y)
    (made,) = found.module(*found.inputs)
    pairs = {"all": (Pair(y), Pair(given.left))}
    assert torch.equal(made, second(given.left, pairs, flag=True).left)
    assert found.module.linear is second.linear
    after = {n: dict(m.__dict__) for n, m in opened.module.named_modules()}
    assert before == after and not second._forward_pre_hooks
    model = model_from_module(found.module, found.names, found.inputs, ModelSource("own"), quiet)
    assert {o.scope for o in model.flat.origins.values()} == {"", "linear"}
    assert torch.equal(model.forward()[0], made)
    opened = whole()
    first, second = (cut(opened, "again", n) for n in (1, 2))
    assert torch.equal(first.inputs[0], opened.inputs[0]) and second.calls == 2
    assert torch.equal(second.module(*second.inputs)[0], opened.module(*opened.inputs)[0])
    assert "2 times" in second.notes[0]


@pytest.mark.parametrize(
    ("module", "call", "message", "hint"),
    [
        ("part.1", 1, "no module 'part.1'", "parts.1"),
        ("parts", 1, "never calls forward() of this ModuleList", "parts.0 or parts.1"),
        ("unused", 1, "never calls forward() of this Linear", "the whole"),
        ("again", 3, "calls this module 2 times; there is no call 3", "1 to 2"),
        ("again", 0, "there is no call 0", "1 to 2"),
    ],
)
def test_what_cannot_be_cut_is_refused(module, call, message, hint, tmp_path):
    opened = whole()
    traced = torch.jit.trace(opened.module, opened.inputs)
    for one in (opened.module, traced):
        with refused("input", where=module, says=message, hint=hint):
            cut(Opened(one, opened.names, opened.inputs), module, call)


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(4, 4)

    def forward(self, x):
        if bool(x.sum() > 0):
            x = self.inside(x)
        return x


def test_a_module_behind_control_flow_is_refused_with_its_name():
    scripted = torch.jit.script(Branch())
    with pytest.raises(EngineError, match=r"module inside cannot be cut out.*branch or loop"):
        cut(Opened(scripted, ("x",), (torch.ones(2, 4),)), "inside")


class Decorated(nn.Module):
    def forward(self, *anything, deep=None):
        return {"sum": anything[0] + anything[1].left, "flag": True, "deep": [deep.left, None]}


def strange(m, x):
    made = m.part(x, Pair(x, x + 1), deep=Pair(x))
    m.given(3)
    return made["sum"]


def test_a_tensor_that_is_given_twice_is_one_input_and_outputs_are_flat():
    module = Parts(strange, part=Decorated(), given=nn.Identity()).eval()
    opened = Opened(module, ("x",), (torch.ones(2, 2),))
    found = cut(opened, "part")
    assert found.names == ("anything_0", "anything_1_right") and len(found.inputs) == 2
    left, also = found.module(*found.inputs)
    assert torch.equal(left, torch.full((2, 2), 2.0)) and torch.equal(also, torch.ones(2, 2))
    with pytest.raises(EngineError, match="gets no tensor"):
        cut(opened, "given")


@pytest.mark.parametrize("kind", ["pt", "pt2"])
def test_of_files_as_of_modules(kind, tmp_path):
    opened = whole()
    path = save(opened.module, opened.inputs, tmp_path / f"whole.{kind}")
    source = source_from_file(path, "" if kind == "pt2" else "x=2x4, y=4")
    read = open_model(source, quiet)
    like = Opened(opened.module, opened.names, read.inputs)
    for module, call in (("parts.0", 1), ("parts.1", 1), ("parts.1.linear", 1), ("again", 2)):
        own = cut(like, module, call)
        of = ModelSource(**{**vars(source), "module": module, "call": call})
        model = load(of, quiet, lambda: read)
        assert len(model.inputs) == len(own.inputs) or kind == "pt"  # a trace has one per reader
        assert torch.equal(model.forward()[0], own.module(*own.inputs)[0]), module
        assert set(model.parameters) == {n for n, _ in own.module.named_parameters()}
        assert model.calls == own.calls
    rows = {r.path: r for r in module_rows(read, source)}
    theirs = {r.path: r for r in module_rows(like, source)}
    for module in ("", "parts.0", "parts.1.linear", "again"):
        row, own = rows[module], theirs[module]
        assert (row.calls, row.parameters) == (own.calls, own.parameters)
        assert row.outputs == own.outputs and row.seconds > 0
    assert theirs["parts"].calls == theirs["unused"].calls == 0
    assert theirs["parts.0"].kind == rows["parts.0"].kind == "Part"
