"""The forward and the backward program of a joint program, in the engine whose TVM is here."""

import pytest
import torch
from torch import nn

import gradients as engine
from answers import refused
from gradients import bert_layer, compare, joint, passes, small_net, total, trained, values_of
from quick import QUICK, first_in_relay, rare
from relascope.core.graph import Kind
from relascope.engine.building.options import BuildOptions
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut


@pytest.fixture(scope="module")
def net():
    model, program = trained(small_net().double(), torch.randn(3, 4).double(), dtype="float64")
    return model, joint(program)


@pytest.fixture(scope="module")
def layer():
    module, inputs = bert_layer()
    model, program = trained(module, *inputs)
    return model, joint(program)


def names(function):
    return [str(getattr(p, "name_hint", None) or p.name) for p in function.params]


def type_of(value):
    return getattr(value, "checked_type", None) or value.ty


def results(function):
    return (getattr(function, "ret_type", None) or function.ret_ty).fields


def test_arguments_and_results_stand_in_order_and_halves_add_up(net):
    _, program = net
    parts = engine.split_by(program)
    forward, backward = parts.forward.mod["forward"], parts.backward.mod["backward"]
    assert names(forward) == ["x0", "fc.weight", "fc.bias", "dropout_mask_0"]
    # The mask is captured as the forward scales it.
    assert names(backward) == ["x0", "fc.weight", "grad_out_0", *parts.capture_names]
    assert len(results(forward)) == 1 + len(parts.captures)
    of = zip(names(program.main), program.main.params, strict=True)
    wanted = [str(type_of(p)) for name, p in of if name in program.gradients]
    assert [str(t) for t in results(backward)] == wanted
    graph, _ = engine.to_graph(program)
    assert parts.captures == cut(graph, "keep_all").ids
    calls = sum(n.kind is Kind.CALL for n in graph)
    halves = (parts.forward, "forward"), (parts.backward, "backward")
    both = [engine.to_graph(p, n)[0] for p, n in halves]
    assert sum(n.kind is Kind.CALL for g in both for n in g) == calls
    assert {c.id for c in parts.cut.captures if c.is_output}  # sigmoid's gradient reads its result


@pytest.mark.parametrize("strategy", first_in_relay(["min_cut", "keep_all", "inputs_only"]))
def test_masks_in_bits_are_the_same_masks(strategy):
    model, program = trained(small_net().double(), torch.randn(3, 3, 4).double(), dtype="float64")
    whole = joint(program)
    bits = passes(whole, "masks_as_bits")
    (mask,), (before,) = bits.masks, whole.masks
    assert (mask.input_shape, before.input_shape) == ((1, 5), (3, 3, 4))
    again = passes(bits, "masks_as_bits")  # where there is nothing to do
    assert engine.to_graph(again)[0] == engine.to_graph(bits)[0] and again.masks == bits.masks
    (kept, *_), outputs, gradients = total(model, bits, strategy)
    compare(model, outputs, gradients)
    saved = total(model, whole, strategy)[0][0]
    assert kept == saved - (0 if strategy == "keep_all" else 36 - 5)


RARE = "frontier", "peak", "recompute_pointwise"
"""What these choose is as others choose it: some values, and products of none."""


@pytest.mark.parametrize("strategy", [rare(s) if s in RARE else s for s in STRATEGIES])
def test_totals_of_every_strategy_are_what_is_held_of_captures_and_masks(layer, strategy):
    model, program = layer
    whole = cut(engine.to_graph(program)[0], strategy)
    scaled = strategy == "keep_all"  # which saves what the forward makes of each mask
    assert len(whole.masks) == (0 if scaled else 3)
    assert (whole.bytes == whole.mask_bytes) == (not whole.ids)
    assert not whole.ids or strategy != "inputs_only"
    (held, handed, taken), outputs, gradients = total(model, program, strategy)
    assert held == whole.bytes == handed + taken
    elements = 2 * 2 * 5 * 5 + 2 * 2 * 5 * 32  # of the attention, of two sums
    assert taken == (0 if scaled else elements)  # a byte each
    compare(model, outputs, gradients)


def test_any_set_of_captures_gives_pytorchs_gradients(net):
    model, program = net
    graph, exprs = engine.to_graph(program)
    whole = Joint(graph)
    may = [n.id for n in graph if whole.may_be_captured(n.id)]
    assert len(may) > 3
    for chosen in (may, may[::2], may[1::2]):
        parts = engine.split(program, graph, exprs, chosen)
        built = engine.runtime.assemble(program, parts, BuildOptions(QUICK))
        values = values_of(model, program)
        outputs, captures = built.forward(values)
        assert len(captures) == len(chosen)
        compare(model, outputs, built.backward({**values, **captures}))


def test_what_cannot_be_captured_or_split_is_refused(layer):
    graph, exprs = engine.to_graph(layer[1])
    for node in {n.kind: n for n in graph if n.kind is not Kind.CALL}.values():
        with refused("usage", "parameter" if node.kind is Kind.PARAMETER else ""):
            engine.split(layer[1], graph, exprs, [node.id])
    _, program = trained(nn.Linear(2, 2), torch.randn(1, 2))
    graph, exprs = engine.to_graph(program)
    with refused(match="not a joint graph"):
        engine.split(program, graph, exprs, [])
