"""The forward and the backward program of Relay's joint programs."""

import pytest
from tvm import relay

from gradients import split_by, step
from limits import LIMITS
from relascope.engine.relay.draw.to_graph import to_graph
from relascope.passes.cuts.cut import cut
from relascope.passes.relay.training.gradient import keep_gradients
from relay_functions import program_of, var
from splitting import *  # noqa: F403
from splitting import names

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


def test_a_layer_is_split_with_inputs_only(layer):
    graph, _ = to_graph(layer[1])
    everything, nothing = cut(graph, "keep_all"), cut(graph, "inputs_only")
    assert 10 < len(everything.captures) < 40
    assert everything.bytes > nothing.bytes == nothing.mask_bytes > 0
    assert len(nothing.recomputed) > len(everything.captures)
    assert (len(everything.masks), len(nothing.masks)) == (0, 3)  # scaled, and as they are drawn


def test_a_deep_chain_is_split_without_recursion():
    x, g = var("x", 2), var("grad_out_0", 2)
    forward = [x]
    for _ in range(1500):
        forward.append(relay.tanh(forward[-1]))
    backward = g
    for value in reversed(forward[1:]):
        backward = relay.multiply(backward, value)
    body = relay.Tuple([forward[-1], backward])
    parts = split_by(program_of(body, x, g, grad_outs=("grad_out_0",), gradients=("x",)))
    assert len(parts.captures) == 1500
    assert names(parts.backward.mod["backward"]) == ["grad_out_0", *parts.capture_names]
