"""The way to the gradient: each training pass, every gradient against PyTorch, and both halves."""

from functools import reduce
from itertools import accumulate, pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from tvm import relay

import gradients as engine
import per_use
import small_models  # noqa: F401
from answers import quiet
from gradients import Fn, Many, compare, draw, joint, operators, split_by, step, trained
from joint_programs import *  # noqa: F403
from joint_programs import sample_in_train_mode_agrees
from limits import LIMITS, POINTWISE, rounding
from quick import QUICK, rare
from relascope.core.errors import EngineError
from relascope.engine.building.options import BuildOptions
from relascope.engine.cpu_kernels.schedules import SCHEDULES
from relascope.engine.protocol.source import source_from_file
from relascope.engine.pytorch.model import load_model
from relascope.engine.relay.frontend.importer import import_model
from relascope.passes.relay.ir.rewrite import op_name, post_order, shape, unbound
from relascope.passes.relay.training.gradient import keep_gradients
from relascope.passes.relay.training.operator_gradients import Recorder
from relay_functions import operators as operator_counts
from relay_functions import program_of, var
from splitting import *  # noqa: F403
from splitting import names
from traces import Parts, save

# Relax's are quicker.
pytest.mark.exhaustive(test_every_gradient_of_a_block_agrees_with_pytorch)  # noqa: F405
pytest.mark.exhaustive(test_gradients_and_running_statistics_agree)  # noqa: F405


def agree(functions, limits=None):
    inputs = [x for _, (x, *_) in functions]
    model, program = trained(Many(functions), *inputs, dtype="float64")
    compare(model, *step(model, joint(program)), limits)


MORE = "more in Relay", "in every engine, and by samples"


@pytest.mark.parametrize("section", ["in every engine", *map(rare, MORE)])
def test_gradients_of_operators_agree_with_autograd_in_float64(section):
    agree(list(operators()[section].values()))


@pytest.mark.parametrize("section", ["at edges", "pools at edges"])
def test_gradients_at_edges_are_those_of_autograd(section):
    limits = LIMITS["float64"][0], rounding("float32", 1)  # PyTorch has float32 constants
    agree(list(operators()[section].values()), limits)


def test_what_has_no_elements_has_no_gradient(tmp_path):
    """As registers are cut off and put before tokens of which there are none."""

    def cut_off(x):
        none, rest = x[:, :0], x[:, 0:]
        return torch.cat([none, rest.sin(), none], 1), torch.cat([none, x], 1)

    path = save(Fn(cut_off), (torch.ones(2, 4),), tmp_path / "cut.pt")
    model = load_model(source_from_file(path, "2x4:float32", training=True), quiet)
    compare(model, *step(model, joint(import_model(model, quiet))))


@pytest.mark.parametrize(
    ("sample", "dtype"),
    [
        ("mlp", "float32"),  # in float64: test_accuracy.py
        *(rare("bert_layer", dtype) for dtype in LIMITS),
        rare("small_bert", "float64"),
    ],
)
def test_samples_in_train_mode_agree_with_pytorch(sample, dtype):
    sample_in_train_mode_agrees(sample, dtype)


def test_masks_stand_in_the_order_of_execution():
    def run(m, x):
        late = m.first(m.fc(x))
        return m.none(m.second(torch.tanh(m.fc(x)))) - late

    drops = {n: nn.Dropout(rate) for n, rate in (("first", 0.2), ("second", 0.7), ("none", 0.0))}
    model, program = trained(Parts(run, fc=nn.Linear(6, 6), **drops), torch.randn(4, 6))
    found = [e for e in post_order(program.main.body) if op_name(e) == "nn.dropout"]
    assert [round(float(c.attrs.rate), 1) for c in found][:2] == [0.7, 0.0]  # the walk's order
    made = engine.passes(program, "externalize_dropout")
    assert [round(m.rate, 1) for m in made.masks] == [0.2, 0.7]  # and nothing for the rate 0
    assert all(m.shape == (4, 6) and m.dtype == "float32" for m in made.masks)
    assert [p.name_hint for p in made.main.params][-2:] == [m.name for m in made.masks]
    assert "nn.dropout" not in operator_counts(made)
    compare(model, *step(model, joint(program)))


@pytest.mark.parametrize(
    ("axis", "scale", "center"),
    [(-1, True, True), (1, False, True), (0, True, False), (2, False, False)],
)
def test_layer_norm_is_exact_on_every_axis(axis, scale, center):
    size = (2, 3, 4)[axis]
    given = {"x": draw(2, 3, 4), "weight": draw(size) + 1, "bias": draw(size) * 3}
    x, weight, bias = (var(n, *t.shape, dtype="float64") for n, t in given.items())
    body = relay.nn.layer_norm(x, weight, bias, axis, 0.01, center, scale)
    made = engine.passes(program_of(body, x, weight, bias), "decompose_layer_norm")
    assert "nn.layer_norm" not in operator_counts(made)
    (ours,) = engine.runtime.build(made, BuildOptions(QUICK)).run(given)
    parts = given["weight"] if scale else None, given["bias"] if center else None
    theirs = F.layer_norm(given["x"].movedim(axis, -1), (size,), *parts, 0.01).movedim(-1, axis)
    assert (ours - theirs).abs().max() < rounding("float64", POINTWISE)


def test_the_gradient_of_an_adaptive_pool_is_of_its_dtype():
    model, program = trained(torch.nn.AdaptiveAvgPool2d(1), draw(2, 3, 4, 4), dtype="float64")
    compare(model, *step(model, joint(program)))


@pytest.mark.parametrize(("groups", "one_node"), [(1, True), (2, False), (4, True)])
def test_the_gradient_of_a_weight_is_an_operator_that_tvm_has_right(groups, one_node):
    module = torch.nn.Conv2d(4, 8, 3, groups=groups)
    model, program = trained(module, draw(2, 4, 6, 5), dtype="float64")
    whole = joint(program)
    assert ("nn.conv2d_backward_weight" in operator_counts(whole)) == one_node
    compare(model, *step(model, whole))


def test_clean_ups_leave_nothing_to_clean():
    layer, inputs = engine.bert_layer()
    steps = "externalize_dropout|decompose_layer_norm|linear_to_dense|root_grad_out|gradient"
    before = engine.passes(trained(layer, *inputs)[1], f"{steps}|graph_normal_form")
    after = engine.passes(before, "static_like|drop_zeros|drop_ones|transpose_dedup")
    one, other = operator_counts(before), operator_counts(after)
    assert one["zeros_like"] and other.total() < 0.6 * one.total()
    assert not [n for n in other if n.endswith("_like") or n in ("zeros", "ones")]
    for call in (e for e in post_order(after.main) if op_name(e)):
        if op_name(call) in ("collapse_sum_to", "broadcast_to"):
            assert shape(call) != shape(call.args[0])
        assert op_name(call) != "transpose" or op_name(call.args[0]) != "transpose"


def test_a_walk_in_another_order_is_noticed_and_a_chain_of_bindings_is_a_graph():
    x = relay.var("x", shape=(2,))
    recorder = Recorder([relay.tanh(x)], lambda call: None)
    with pytest.raises(EngineError, match=r"exp where tanh was expected"):
        recorder.use(lambda call, grad: [grad], relay.exp(x), x)
    # TVM's own pass needs a larger stack for such a chain.
    names = [relay.Var("x", relay.TensorType((2,))), *(relay.Var(f"v{i}") for i in range(10_000))]
    body = relay.Tuple([names[-1], names[1]])
    for before, variable in reversed([*pairwise(names)]):
        body = relay.Let(variable, relay.tanh(before), body)
    deep, first = unbound(body).fields
    calls = [e for e in post_order(deep) if op_name(e) == "tanh"]
    assert len(calls) == 10_000
    assert first.same_as(calls[0])
    assert first.args[0].same_as(names[0])


# Relax's take half the time.
pytest.mark.exhaustive(test_totals_of_every_strategy_are_what_is_held_of_captures_and_masks)  # noqa: F405


def test_a_gradient_wanted_alone_needs_fewer_captures(net):
    model, program = net
    alone = keep_gradients(program, {"fc.bias", "no such name"})
    assert alone.gradients == ("fc.bias",)
    _, gradients = step(model, alone)
    theirs = model.gradients()["fc.bias"]
    assert (gradients["fc.bias"] - theirs).abs().max() < LIMITS["float64"][1] * theirs.abs().max()
    assert "x0" not in names(split_by(alone).backward.mod["backward"])


def test_a_deep_chain_is_split_without_recursion():
    x, g = var("x", 2), var("grad_out_0", 2)
    forward = [*accumulate([x] * 1501, lambda value, _: relay.tanh(value))]
    backward = reduce(relay.multiply, reversed(forward[1:]), g)
    body = relay.Tuple([forward[-1], backward])
    parts = split_by(program_of(body, x, g, grad_outs=("grad_out_0",), gradients=("x",)))
    assert len(parts.captures) == 1500
    assert names(parts.backward.mod["backward"]) == ["grad_out_0", *parts.capture_names]


OURS = f"llvm {SCHEDULES}"


@pytest.mark.parametrize("target", [QUICK, OURS])
def test_gradients_have_the_same_bits_and_are_pytorchs(target):
    per_use.check_layers(target)
