"""TVM in training code, against the same code without it: the tests that every engine passes."""

import collections
import copy
import dataclasses
import pickle
import re
import warnings
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import BaseModelOutput

from answers import answer, refused
from limits import GRADIENT, OUTPUT, close
from quick import ENGINE, QUICK
from relascope.core.errors import EngineError
from relascope.engine import dispatch
from relascope.engine.building.executables import TrainingExecutable, tensor_of
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.dispatch import remove_tvm_dispatch
from relascope.engine.in_process import LiveProgram
from traces import Fn, Parts


def add_tvm_dispatch(module, *samples, **options):
    dispatch.add_tvm_dispatch(module, *samples, **{"engine": ENGINE, "target": QUICK, **options})


class Net(nn.Module):
    def __init__(self, rate=0.3):
        super().__init__()
        self.a, self.drop, self.norm = nn.Linear(8, 16), nn.Dropout(rate), nn.LayerNorm(16)
        self.b = nn.Linear(16, 4)

    def forward(self, x, scale=1.0):
        hidden = self.drop(F.gelu(self.a(x)))
        return {"y": self.b(self.norm(hidden)) * scale, "words": "kept", "h": (hidden, None)}


def sample():
    return torch.randn(5, 8, generator=torch.Generator().manual_seed(9))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


class Own(torch.Tensor):
    """A tensor that may do more than a tensor."""


def counted(module):
    return module.forward.calls["tvm"], module.forward.calls["own"]


def near(ours, theirs):
    """Tensors that are not 0 are alike, relative to the largest element of each."""
    for a, b in zip(ours, theirs, strict=True):
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= GRADIENT * b.abs().max()


def test_train_eval_and_no_grad_each_do_what_the_module_does(net):
    add_tvm_dispatch(net, sample())
    x = sample()
    for training in (True, False):
        net.train(training)
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                torch.manual_seed(1)
                ours = net(x)["y"]
                after = torch.rand(1)
                torch.manual_seed(1)
                theirs = net.forward.own(x)["y"]
                assert torch.equal(after, torch.rand(1))  # as many random numbers are used up
                assert ours.requires_grad == grad
                assert torch.allclose(ours, theirs, atol=OUTPUT)
    assert counted(net) == (4, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda n, x: n(torch.cat([x, x])),
        lambda n, x: n(x, scale=2.0),
        lambda n, x: n.double()(x.double()),
        lambda n, x: n(x.as_subclass(Own)),
        lambda n, x: torch.func.functional_call(n, {"b.bias": torch.zeros(7, 4)[0:1, :]}, (x,)),
    ],
    ids=["shape", "argument", "dtype", "subclass", "parameter"],
)
def test_any_other_call_goes_to_the_modules_own_forward(net, call):
    net.eval()
    add_tvm_dispatch(net, sample())
    own = copy.deepcopy(net)
    remove_tvm_dispatch(own)
    ours, theirs = call(net, sample())["y"], call(own, sample())["y"]
    assert torch.equal(ours, theirs)
    assert counted(net) == (0, 1)


def test_calls_like_any_of_the_samples_are_served_by_name_and_with_defaults_too(net):
    add_tvm_dispatch(net, sample())
    add_tvm_dispatch(net, sample()[:2])
    net(x=sample())
    net(sample(), 1.0)
    assert net(sample(), scale=1.0)["y"].shape == (5, 4)
    assert net(sample()[:2])["y"].shape == (2, 4)
    assert counted(net) == (4, 0)


Point = collections.namedtuple("Point", "left right")


@dataclasses.dataclass
class Plain:
    tensor: torch.Tensor
    word: str = "as it was"


class Nests(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x, cache=(), *rest, batch, plain=None, power=1, flag=None, **more):
        y = self.a(x) ** power
        for keys, values in cache:
            y = y + keys * values
        y = y * batch["image"][0] + batch["point"].right + sum(rest)
        y = y * (1 if plain is None else plain.tensor) + more.get("last", 0)
        hidden = BaseModelOutput(last_hidden_state=y * 2)
        return {"y": y, "rows": x.shape[0], "out": hidden, "rest": (Plain(x + y), Point(y, None))}


def nested():
    draw = torch.Generator().manual_seed(3)
    a, b, c, d, e, f, g = (torch.randn(3, 4, generator=draw) for _ in range(7))
    batch = {"image": [e], "point": Point(f, g)}
    words = {"batch": batch, "plain": Plain(a * 2), "power": 2, "last": b * 3}
    return (a, ((b, c),), d), words


def test_inputs_and_outputs_nest_as_they_do_in_the_module():
    torch.manual_seed(0)
    module = Nests()
    args, words = nested()
    add_tvm_dispatch(module, args, words)
    names = "x cache_0_0 cache_0_1 rest_0 batch_image_0 batch_point_left batch_point_right"
    assert module.forward.routes[0].names == (*names.split(), "plain_tensor", "last")
    found = []
    for forward in (module, module.forward.own):
        x = args[0].clone().requires_grad_()
        out = forward(x, *args[1:], **words)
        assert out["rows"] == 3 and type(out["rows"]) is int
        assert type(out["out"]) is BaseModelOutput and type(out["rest"][1]) is Point
        assert out["rest"][1].right is None and out["rest"][0].word == "as it was"
        tensors = out["y"], out["out"].last_hidden_state, out["rest"][0].tensor
        ends = sum((t * (i + 1)).sum() for i, t in enumerate(tensors))
        found.append([*tensors, *torch.autograd.grad(ends, [x, *module.parameters()])])
    torch.testing.assert_close(*found, atol=GRADIENT, rtol=GRADIENT)
    module(*args, **dict(reversed(words.items())), flag=None)
    assert counted(module) == (2, 0)


OTHERS = [
    {"power": 2.0},  # what a number is, too
    {"flag": True},
    {"batch": {"image": [torch.ones(3, 4)] * 2, "point": Point(*[torch.ones(3, 4)] * 2)}},
    {"more": torch.ones(3, 4)},
    {"power": 3},
    {"plain": None},
]


def test_other_constants_and_another_nesting_make_another_program():
    module = Nests().eval()
    args, words = nested()
    add_tvm_dispatch(module, args, words)
    expected = [module(*args, **words | change)["y"] for change in OTHERS]
    assert counted(module) == (0, len(OTHERS))
    for change, theirs in [*zip(OTHERS, expected, strict=True)][-2:]:
        add_tvm_dispatch(module, args, words | change)
        assert torch.allclose(module(*args, **words | change)["y"], theirs, atol=OUTPUT)
    assert counted(module) == (2, len(OTHERS))


class Opaque:
    """What nobody can look into."""


@pytest.mark.parametrize(
    ("run", "second", "message", "where"),
    [
        (lambda x, y: x * 2, Opaque(), "input y is of type Opaque: neither", "y"),
        (lambda x, y: x * 2, [nn.Linear(2, 2)], "input y_0 is of type Linear", "y_0"),
        (lambda x, y: (x * 2, Opaque()), None, "value of type Opaque", "forward(): 1"),
        (lambda x, y: y.append(x) or x * 2, [], "changes its input y_0", "y_0"),
        (lambda x, y: y[0].add_(1) * 2, [torch.ones(5, 8)], "changes its input y_0", "y_0"),
    ],
)
def test_what_nests_and_cannot_be_right_is_refused(run, second, message, where):
    class Runs(nn.Module):
        forward = staticmethod(run)

    module = Runs()
    with refused(match=message, where=where):
        add_tvm_dispatch(module, (sample(), second))
    assert "forward" not in module.__dict__


def test_what_watches_pytorchs_operators_sees_them(net):
    net.eval()
    add_tvm_dispatch(net, sample())
    with torch.autocast("cpu", torch.bfloat16):
        assert net(sample())["y"].dtype is torch.bfloat16
    traced = torch.jit.trace(nn.Sequential(net.a), sample())
    assert traced(sample()).shape == (5, 16)
    jacobian = torch.func.jacrev(lambda x: net(x)["y"].sum())(sample())
    assert jacobian.shape == (5, 8)
    assert counted(net)[0] == 0


def test_frozen_parameters_get_no_gradient(net):
    net.a.requires_grad_(False)
    add_tvm_dispatch(net, sample())
    net(sample())["y"].sum().backward()
    assert net.a.weight.grad is None
    assert net.b.weight.grad.abs().max() > 0
    net.a.requires_grad_(True)  # is seen at the next call
    net(sample())["y"].sum().backward()
    assert net.a.weight.grad.abs().max() > 0


def test_what_changes_between_calls_or_before_a_backward_is_seen(net):
    add_tvm_dispatch(net, sample())
    net.drop.p = 0.9
    torch.manual_seed(2)
    ours = net(sample())["h"][0]
    torch.manual_seed(2)
    assert torch.allclose(ours, net.forward.own(sample())["h"][0], atol=OUTPUT)
    assert (ours == 0).float().mean() > 0.8
    net.drop.eval()
    assert (net(sample())["h"][0] == 0).float().mean() < 0.1
    x = sample().requires_grad_()
    loss = net(x)["y"].pow(2).sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(EngineError, match="differentiated twice"):
        gradient.sum().backward()
    loss = net(sample())["y"].sum()
    with torch.no_grad():
        net.b.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("hooked", [False, True])
def test_a_graph_that_is_kept_has_its_captures_for_every_backward(net, hooked):
    """Where it is not kept, they may go while the backward runs. Hooks see all that is saved."""
    plain, packed = copy.deepcopy(net), []
    ours = f"llvm {SCHEDULES}"
    add_tvm_dispatch(net, sample(), captures="keep_all", verify=False, target=ours)
    pack, found = lambda t: packed.append(t) or t, []
    for module in (plain, net):
        packed.clear()
        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(pack, pack) if hooked else nullcontext():
            x = sample().requires_grad_()
            loss = module(x)["y"].pow(2).sum()
        wanted = [x, module.a.weight]
        found += [torch.autograd.grad(loss, wanted, retain_graph=k) for k in (True, True, False)]
        with pytest.raises(RuntimeError, match="a second time"):
            torch.autograd.grad(loss, wanted)
    for gradients in found:
        torch.testing.assert_close(gradients, found[0], **close(GRADIENT))
    (step,) = net.forward.routes[0].mode().live._steps.values()
    assert not hooked or len(packed) >= len(step.read_by_backward - {*step.grad_outs})


def test_modules_share_memory_and_hold_nothing_after_their_backwards(monkeypatch):
    """Each is larger than those before it; parameters are not copied."""
    torch.manual_seed(0)
    kept, forward = [], TrainingExecutable.forward

    def watched(step, values):
        results, captures = forward(step, values)
        kept.extend(map(weakref.ref, captures.values()))
        return results, captures

    monkeypatch.setattr(TrainingExecutable, "forward", watched)
    plain = [nn.Sequential(nn.Linear(n, n), nn.Softmax(-1), nn.Linear(n, 2)) for n in (4, 64, 400)]
    ours = copy.deepcopy(plain)
    longer = torch.cat([torch.zeros(1), plain[0][0].weight.ravel()]).detach()
    ours[0][0].weight = nn.Parameter(longer[1:].view(4, 4))
    xs = [torch.randn(300, module[0].in_features) for module in plain]
    for module, x in zip(ours, xs, strict=True):
        add_tvm_dispatch(module, x, verify=False, captures="keep_all")
    found = []
    for modules in (plain, ours, ours):
        outs = [module(x).pow(2).sum() for module, x in zip(modules, xs, strict=True)]
        leaves = [p for module in modules for p in module.parameters()]
        found.append(torch.autograd.grad(sum(outs), leaves))
    near(found[1], found[0])
    near(found[2], found[0])
    assert kept
    assert not any(ref() is not None for ref in kept)
    for module in ours:
        held = module.forward.routes[0].mode().live.program.params
        for name, value in module.named_parameters():
            aligned = value.data_ptr() % 64 == 0
            assert (tensor_of(held[name]).data_ptr() == value.data_ptr()) == aligned


def test_nested_dispatch_and_repeated_calls():
    def twice(m, x):
        first = m.out(m.inner(x)["y"])
        return m.out(m.inner(first)["y"]), first

    torch.manual_seed(0)
    plain = Parts(twice, inner=Net(), out=nn.Linear(4, 8))
    inner, both = copy.deepcopy(plain), copy.deepcopy(plain)
    add_tvm_dispatch(inner.inner, sample())
    add_tvm_dispatch(both.inner, sample())
    add_tvm_dispatch(both, sample())
    results = []
    for module in (plain, inner, both):
        torch.manual_seed(5)
        last, first = module(sample())
        (last.pow(2).sum() + first.sum()).backward()
        results.append([last, first, *(p.grad for p in module.parameters())])
    for other in results[1:]:
        near(other, results[0])
    assert counted(inner.inner) == (2, 0)
    assert counted(both) == (1, 0)
    assert counted(both.inner) == (0, 0)  # the outer one does it all


@pytest.mark.parametrize("place", [-1, 0])
def test_what_a_mask_chooses_is_pytorchs_however_many_it_are(place):
    def last(x, ids, weight, bias):
        """Of what a mask chooses of each row, the one at a place."""
        return F.linear(x, weight, bias)[ids.eq(2), :].view(2, -1, 4)[:, place, :].tanh()

    module, x = Fn(last, (4, 3), (4,)), torch.randn(2, 5, 3)
    (weight, _) = module.weights
    one, two = torch.tensor([[0, 2, 0, 1, 1], [2, 0, 0, 0, 1]]), torch.tensor([[0, 2, 0, 1, 2]] * 2)
    uneven = torch.tensor([[0, 0, 0, 1, 2], [2, 2, 2, 0, 0]])
    own = [module(x, ids) for ids in (one, two, uneven)]
    expected = [torch.autograd.grad(o.sum(), weight)[0] for o in own]
    add_tvm_dispatch(module, (x, one), verify=False)  # which other identifiers PyTorch does not run
    for ids, output, gradient in zip((one, two, uneven), own, expected, strict=True):
        found = module(x, ids)
        assert torch.allclose(found, output, atol=OUTPUT)
        (ours,) = torch.autograd.grad(found.sum(), weight)
        assert torch.allclose(ours, gradient, atol=GRADIENT)
    assert counted(module) == (3, 0)


def test_removed_means_restored(net):
    net.eval()  # which needs no gradient
    before = net.forward
    add_tvm_dispatch(net, sample())
    remove_tvm_dispatch(net)
    assert net.forward == before
    assert "forward" not in net.__dict__
    remove_tvm_dispatch(net)
    net.forward = lambda x: x * 2
    add_tvm_dispatch(net, sample())
    remove_tvm_dispatch(net)
    assert torch.equal(net(sample()), sample() * 2)


def test_a_copied_module_runs_its_own_parameters_and_hooks_run_once(net):
    net.eval()
    pre = net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    post = net.register_forward_hook(lambda module, args, out: {**out, "y": out["y"] * 3})
    theirs = net(sample())["y"]
    add_tvm_dispatch(net, sample())
    assert torch.allclose(net(sample())["y"], theirs, atol=OUTPUT)
    pre.remove()
    post.remove()
    other = copy.deepcopy(net)
    nn.init.zeros_(other.b.weight)
    nn.init.ones_(other.b.bias)
    assert torch.equal(other(sample())["y"], torch.ones(5, 4))
    assert not torch.equal(net(sample())["y"], torch.ones(5, 4))
    assert (counted(other), counted(net)) == ((1, 0), (2, 0))
    with pytest.raises(EngineError, match="pickled"):
        pickle.dumps(net)
    assert list(net.state_dict()) == list(Net().state_dict())


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        ((sample(),), {"engine": "xla"}, "xla"),
        ((sample(),), {"captures": "guess"}, "guess"),
        ((sample(),), {"captures": "min_cut", "budget": 0.5}, "not take a budget of 0.5"),
        ((sample(),), {"captures": "budget", "budget": -1}, "not take a budget of -1"),
        (({"x": sample()},), {}, "are a dict"),
        (((sample(),) * 3,), {}, "too many positional arguments"),
        (((), {"y": sample()}), {}, "'x'"),
    ],
)
def test_wrong_use_is_said(net, arguments, keywords, words):
    with refused("usage", words):
        add_tvm_dispatch(net, *arguments, **keywords)
    assert "forward" not in net.__dict__


def block(run):
    return Parts(run, a=nn.Linear(8, 8), b=nn.Linear(8, 8), mean=torch.ones(8))


def test_what_tvm_cannot_differentiate_is_said_at_once_in_train_mode():
    kernel = torch.ones(1, 1, 1, 1, 2)
    run = lambda m, x: F.conv_transpose3d(m.a(x)[None, None, None], kernel)  # noqa: E731
    module = nn.Sequential(block(run))
    with refused("pass", where="nn.conv3d_transpose from aten::_convolution in 0"):
        add_tvm_dispatch(module, sample())
    assert "forward" not in module.__dict__
    add_tvm_dispatch(module.eval(), sample())
    with torch.no_grad():
        assert torch.allclose(module(sample()), module.forward.own(sample()), atol=OUTPUT)
    assert counted(module) == (1, 0)


def largest(x):
    """Relax has no gradient of topk."""
    return x.topk(2, -1).values if ENGINE == "relay" else x.sort(-1).values[:, :2]


OF_EVAL = {
    "norm of zeros": lambda m, x: F.cosine_similarity(m.a(x) * (x > 9), m.b(x), -1),
    # More results than the program has values: each is saved for the backward as well.
    "results alone": lambda m, x: (x.sin(), x.cos(), x.sinh(), x.cosh()),
    "largest": lambda m, x: (largest(m.a(x)), m.b(x).max(-1)),
    "twice": lambda m, x: m.a(x) + F.dropout(m.a(x), training=m.training),
    "endless slope": lambda m, x: m.a(x) + (x * 0).sqrt().detach(),
    "detached in place": lambda m, x: (m.a(x) * 2).detach_() * m.b(x),
    "conv1d": lambda m, x: F.conv1d(x[None], m.a.weight[:, :5, None]),
    "clamp": lambda m, x: x.clamp(min=m.a(x).detach()),
    "resize": lambda m, x: F.interpolate(m.a(x)[None, None], scale_factor=2, mode="bilinear"),
}


@pytest.mark.parametrize("run", OF_EVAL.values(), ids=OF_EVAL)
def test_gradients_in_eval_mode_are_pytorchs(run):
    torch.manual_seed(0)
    module = block(run).eval()
    x = sample().requires_grad_()
    add_tvm_dispatch(module, x, verify=False)
    found = []
    for forward in (module.forward.own, module):
        flows = [o for o in pytree.tree_leaves(forward(x)) if o.requires_grad]
        leaves, ends = [x, *module.parameters()], [torch.ones_like(o) for o in flows]
        found.append(torch.autograd.grad(flows, leaves, ends, allow_unused=True))
    for theirs, ours in zip(*found, strict=True):
        assert (theirs is None) == (ours is None)
        assert theirs is None or torch.allclose(theirs, ours, atol=OUTPUT)
    assert counted(module) == (1, 0)


def hooked(m, x):
    y = m.a(x)
    y.register_hook(lambda grad: grad * 2)
    return y


def changed(m, x):
    y = m.a(x) * 1
    with torch.no_grad():
        y.mul_(2)
    return y


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 7


def input_changed(m, x):
    x.mul_(2)
    return m.a(x)


def counting(m, x):
    m.count = getattr(m, "count", 0) + 1
    return m.a(x)


def looked_up(m, x, **options):
    return m.a(x) + F.embedding(torch.arange(5), m.b.weight, **options)


REFUSED = {
    "i0e": lambda m, x: torch.special.i0e(m.a(x)),  # which TVM cannot import
    "register_hook": hooked,
    "mul_": changed,
    "Twice": lambda m, x: Twice.apply(m.a(x)),
    "input input": input_changed,
    "count": counting,
    "scale_grad_by_freq": lambda m, x: looked_up(m, x, scale_grad_by_freq=True),
    "embedding_renorm_": lambda m, x: looked_up(m, x, max_norm=0.1),
    "computes a gradient": lambda m, x: torch.autograd.grad(m.a(x).sum(), m.a.weight)[0],
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_no_program_does_is_refused(words):
    module = nn.Sequential(block(REFUSED[words]))
    with pytest.raises(EngineError, match=words) as raised:
        add_tvm_dispatch(module, sample())
    assert raised.value.kind == "operator" and raised.value.where
    assert "forward" not in module.__dict__


def test_a_hook_on_a_submodules_gradient_is_refused_with_its_name(net):
    net.b.register_full_backward_hook(lambda *_: None)
    with refused(match="hook on its gradient", where="b"):
        add_tvm_dispatch(net, sample())


class Off:
    def __init__(self, own):
        self.own = own

    def __getattr__(self, name):
        return getattr(self.own, name)

    def backward(self, values, spent):
        found = self.own.backward(values, spent)
        return {n: g * 1.1 if n == "a.weight" else g for n, g in found.items()}


@pytest.mark.parametrize("what", ["output 0", "gradient of a.weight", "generator"])
def test_what_differs_from_the_module_is_said_before_it_is_used(net, monkeypatch, what):
    net.drop.p = 0.3 if what == "generator" else 0.0
    forward, step = LiveProgram.forward, LiveProgram.step
    if what == "generator":
        draw = dispatch.draw_masks
        twice = lambda *about: (draw(*about), draw(*about))[0]  # noqa: E731
        monkeypatch.setattr(dispatch, "draw_masks", twice)
    elif what == "output 0":
        wrong = lambda *about: tuple(t * 1.01 for t in forward(*about))  # noqa: E731
        monkeypatch.setattr(LiveProgram, "forward", wrong)
    else:
        monkeypatch.setattr(LiveProgram, "step", lambda *about: Off(step(*about)))
    add_tvm_dispatch(net, sample())
    with torch.set_grad_enabled(what != "output 0"), refused("engine", what):
        net(sample())
    add_tvm_dispatch(net, sample(), verify=False)
    with torch.set_grad_enabled(what != "output 0"):
        net(sample())


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.BatchNorm1d])
def test_samples_from_the_seed_of_nobody_are_verified(norm):
    """The gradient of a norm is 0 where the result's is the sample itself."""
    torch.manual_seed(0)
    x = torch.randn(5, 8).requires_grad_()
    own = {"elementwise_affine": False} if norm is nn.LayerNorm else {"affine": False}
    module = norm(8, **own)
    add_tvm_dispatch(module, x)
    module(x)
    assert counted(module) == (1, 0)


KINDS = {
    "-100": (lambda m, x, t: F.cross_entropy(m.a(x), t), torch.tensor([0, 1, 2, 3, 4])),
    "False": (lambda m, x, t: m.a(x).masked_fill(t, 2.0), torch.ones(5, 8, dtype=torch.bool)),
    "small": (lambda m, x, t: m.a(x) * (x * t).tanh().expm1(), torch.ones(5, 8)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_other_kinds_are_verified(monkeypatch, kind):
    run, second = KINDS[kind]
    module = block(run)
    add_tvm_dispatch(module, (sample(), second))
    assert module(sample(), second).isfinite().all()
    forward = LiveProgram.step

    class Wrong(Off):
        def backward(self, values, spent):
            return self.own.backward(values, spent)

        def forward(self, values):
            outputs, captures = self.own.forward(values)
            x, t = values["inputs_0"], values["inputs_1"]
            meant = {"-100": t.min() == -100, "False": not t.all(), "small": x.abs().max() < 1e-3}
            return tuple(o * (1.1 if meant[kind] else 1) for o in outputs), captures

    monkeypatch.setattr(LiveProgram, "step", lambda *about: Wrong(forward(*about)))
    add_tvm_dispatch(module, (sample(), second))
    with refused("engine", kind):
        module(sample(), second)


def test_a_value_that_is_read_is_a_warning_of_the_dispatch_once():
    module = nn.Sequential(block(lambda m, x: m.a(x) * x.max().item())).eval()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        add_tvm_dispatch(module, sample())
        module(sample())
        module.train()(sample())
    words = [str(w.message) for w in caught if "item()" in str(w.message)]
    assert len(words) == 1
    assert re.match(r"item\(\) in 0 \(dispatching.py:\d+\)", words[0])


OTHER = {"relay": "import tvm", "relax": "from relascope.engine.relay.tvm.boot import boot; boot()"}
DISPATCHED = """
import json, torch
from relascope.core.errors import EngineError
from relascope.engine.dispatch import add_tvm_dispatch
try:
    add_tvm_dispatch(torch.nn.Linear(2, 2), torch.zeros(1, 2), engine=ENGINE)
except EngineError as error:
    print(json.dumps([error.kind, error.message]))
"""


def test_another_tvm_that_is_here_already_is_refused():
    kind, message = answer(f"ENGINE = {ENGINE!r}\n{OTHER[ENGINE]}{DISPATCHED}")
    relay = {"relay": "without", "relax": "with"}[ENGINE]
    assert kind == "engine" and message.startswith(f"A TVM {relay} Relay")
    assert "only one TVM" in message


def test_a_bert_classifier_trains_as_with_pytorch_under_the_same_seed():
    sizes = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_labels": 2}
    more = {"num_hidden_layers": 1, "num_attention_heads": 4, "attn_implementation": "eager"}
    labels, losses = torch.arange(8) % 2, []
    for dispatched in (True, False):
        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(**sizes, **more)).train()
        ids, mask = torch.randint(100, (8, 16)), torch.ones(8, 16, dtype=torch.int64)
        mask[::3, -4:] = 0
        if dispatched:
            add_tvm_dispatch(model, (ids, mask))
        optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
        torch.manual_seed(2)
        for _ in range(5):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(ids, mask).logits, labels)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert not dispatched or counted(model) == (5, 0)
    assert losses[:5] == pytest.approx(losses[5:], abs=GRADIENT)
    assert len(set(losses[5:])) == 5
