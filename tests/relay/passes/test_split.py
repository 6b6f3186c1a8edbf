"""The forward and the backward program of a joint program."""

import pytest
import torch
from torch import nn
from tvm import relay

from answers import refused
from gradients import Net, bert_layer, compare, total, values_of
from limits import LIMITS
from numerics import imported
from quick import QUICK
from relascope.core.errors import EngineError
from relascope.core.graph import Kind
from relascope.engine.building.options import BuildOptions
from relascope.engine.relay.building import runtime
from relascope.engine.relay.draw.to_graph import to_graph
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.training.keep_gradients import keep_gradients
from relascope.passes.relay.training.split import split
from training import RELAY, joint, split_by, step


@pytest.fixture(scope="module")
def net():
    model, program = imported(
        Net().double(), torch.randn(3, 4).double(), training=True, dtype="float64"
    )
    return model, joint(program)


def names(function):
    return [p.name_hint for p in function.params]


def test_arguments_and_results_stand_in_order(net):
    _, program = net
    parts = split_by(program)
    forward, backward = parts.forward.mod["forward"], parts.backward.mod["backward"]
    assert names(forward) == ["x0", "fc.weight", "fc.bias", "dropout_mask_0"]
    assert names(backward) == [
        "x0",
        "fc.weight",
        "dropout_mask_0",
        "grad_out_0",
        *parts.capture_names,
    ]
    assert len(forward.ret_type.fields) == 1 + len(parts.captures)
    types = [str(p.checked_type) for p in program.main.params if p.name_hint in program.gradients]
    assert [str(t) for t in backward.ret_type.fields] == types
    assert parts.captures == cut(to_graph(program)[0]).ids


def test_the_halves_add_up_to_the_whole(net):
    _, program = net
    graph, exprs = to_graph(program)
    parts = split(program, graph, exprs, cut(graph, "keep_all").ids)
    calls = sum(n.kind is Kind.CALL for n in graph)
    both = [
        to_graph(p, n)[0] for p, n in ((parts.forward, "forward"), (parts.backward, "backward"))
    ]
    assert sum(n.kind is Kind.CALL for g in both for n in g) == calls
    assert {c.id for c in parts.cut.captures if c.is_output}  # sigmoid's gradient reads its result


@pytest.mark.parametrize("strategy", ["keep_all", "inputs_only"])
def test_every_strategy_gives_pytorchs_gradients(net, strategy):
    model, program = net
    outputs, gradients = step(model, program, strategy)
    compare(model, outputs, gradients)


def test_any_set_of_captures_gives_pytorchs_gradients(net):
    model, program = net
    graph, exprs = to_graph(program)
    whole = Joint(graph)
    may = [n.id for n in graph if whole.may_be_captured(n.id)]
    assert len(may) > 3
    for chosen in (may, may[::2], may[1::2]):
        built = runtime.step(program, split(program, graph, exprs, chosen), BuildOptions(QUICK))
        values = values_of(model, program)
        outputs, captures = built.forward(values)
        assert len(captures) == len(chosen)
        compare(model, outputs, built.backward({**values, **captures}))


def test_a_gradient_wanted_alone_needs_fewer_captures(net):
    model, program = net
    alone = keep_gradients(program, {"fc.bias", "no such name"})
    assert alone.gradients == ("fc.bias",)
    _, gradients = step(model, alone)
    theirs = model.gradients()["fc.bias"]
    assert (gradients["fc.bias"] - theirs).abs().max() < LIMITS["float64"][1] * theirs.abs().max()
    assert "x0" not in names(split_by(alone).backward.mod["backward"])


def test_a_node_that_cannot_be_captured_is_named(net):
    _, program = net
    graph, exprs = to_graph(program)
    weight = next(n.id for n in graph if n.name == "fc.weight")
    with refused("usage", "parameter"):
        split(program, graph, exprs, [weight])


def test_a_program_without_gradient_is_refused():
    _, program = imported(nn.Linear(2, 2), torch.randn(1, 2), training=True)
    graph, exprs = to_graph(program)
    with pytest.raises(EngineError, match="no joint graph"):
        split(program, graph, exprs, [])


def test_bert_layer_is_split_with_inputs_only():
    layer, inputs = bert_layer()
    _, program = imported(layer, *inputs, training=True)
    made = joint(program)
    graph, _ = to_graph(made)
    everything, nothing = cut(graph, "keep_all"), cut(graph, "inputs_only")
    assert 10 < len(everything.captures) < 40
    assert everything.bytes > nothing.bytes == nothing.mask_bytes > 0
    assert len(nothing.recomputed) > len(everything.captures)
    assert len(everything.masks) == 3


def test_a_deep_chain_is_split_without_recursion():
    x, g = relay.var("x", shape=(2,)), relay.var("grad_out_0", shape=(2,))
    forward = [x]
    for _ in range(1500):
        forward.append(relay.tanh(forward[-1]))
    backward = g
    for value in reversed(forward[1:]):
        backward = relay.multiply(backward, value)
    import tvm

    body = relay.Tuple([forward[-1], backward])
    mod = tvm.IRModule.from_expr(relay.Function([x, g], body))
    program = RelayProgram(
        relay.transform.InferType()(mod), {}, ("x",), 1, grad_outs=("grad_out_0",), gradients=("x",)
    )
    parts = split_by(program)
    assert len(parts.captures) == 1500
    assert names(parts.backward.mod["backward"]) == ["grad_out_0", *parts.capture_names]


@pytest.mark.exhaustive  # Relax has the same, in half the time
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_totals_of_every_strategy_are_what_is_held_of_captures_and_masks(strategy):
    layer, inputs = bert_layer()
    model, program = imported(layer, *inputs, training=True)
    (held, handed, taken), outputs, gradients = total(RELAY, model, joint(program), strategy)
    assert held == handed + taken
    assert taken == 4 * (2 * 2 * 5 * 5 + 2 * 2 * 5 * 32)  # of the attention, of two sums
    compare(model, outputs, gradients)
