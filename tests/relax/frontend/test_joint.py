"""PyTorch's joint graph in Relax: its numbers, its arguments, where its nodes come from."""

from functools import partial

import pytest
import torch
from torch import nn

import gradients as engine
import relax_modules
from answers import refused
from gradients import Fn, Many, bert_layer, compare, draw, operators, quiet, small_net
from limits import BACKWARD, GRADIENT
from relascope.core.errors import EngineError
from relascope.core.graph import Kind
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.frontend.importer import import_model
from relascope.passes.catalogue import check_gradient, default_pipeline, gradients, info
from relascope.passes.cuts.cut import cut
from relax_modules import errors

JOINT = {"training": True, "dtype": "float64", "gradient": "pytorch"}
imported = partial(engine.imported, **JOINT)
check = partial(relax_modules.check, length=BACKWARD, **JOINT)


@pytest.mark.parametrize("sections", ["in every engine", "PyTorch's"])
def test_gradients_of_operators(sections):
    found = [lines for section, lines in operators().items() if section.startswith(sections)]
    cases = [case for lines in found for case in lines.values()]
    check(Many(cases), *(inputs[0] for _, inputs in cases))


def test_a_small_bert_layer_split_in_two():
    layer, inputs = bert_layer(dtype=torch.float64)
    model, program = imported(layer, *inputs)
    for one in default_pipeline("relax", True, "pytorch"):
        program = info("relax", one.name).load()(program)
    outputs, found = engine.step(model, program, "min_cut")
    compare(model, outputs, found)
    # What PyTorch's autograd saves: of a layer norm, its result before the weights and 1/deviation.
    graph, _ = to_graph(program)
    kept = [c for c in cut(graph, "keep_all").captures if c.scope.endswith("LayerNorm")]
    assert [c.op for c in kept] == ["rsqrt", "multiply"] * 2


def test_a_sample_and_the_order_of_everything():
    model = load_model(ModelSource("mlp", training=True, gradient="pytorch"), quiet)
    program = import_model(model, quiet)
    floating = (*model.input_names, *model.parameters)
    masks = tuple(m.name for m in program.masks)
    names = [str(p.name) for p in program.main.params]
    assert names == [*floating, *model.buffers, *masks, "grad_out_0"]
    assert program.gradients == floating
    assert program.outputs == 1 and len(masks) == 1
    assert max(errors(model, program).values()) <= GRADIENT


def test_batch_norms_return_their_updates_in_train_mode_alone():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4))
    _, program, found = check(module, draw(2, 3, 6, 6))
    assert {f"updated {n}" for n in program.updates} < set(found)
    assert len(program.updates) == 6
    assert program.outputs == 7
    norm = nn.BatchNorm1d(3)  # runs twice
    assert len(check(nn.Sequential(norm, nn.Linear(3, 3), norm), draw(5, 3))[1].updates) == 3
    module[1].running_mean.normal_()
    module[3].running_var.uniform_(1, 2)
    _, program, _ = check(module, draw(2, 3, 6, 6), training=False)
    assert program.updates == ()


def test_dropouts_and_draws_are_what_pytorch_draws():
    _, program, _ = check(small_net(), draw(3, 4))
    assert [(m.rate, m.shape) for m in program.masks] == [(0.3, (3, 4))]
    check(nn.Sequential(nn.AlphaDropout(0.5)), draw(3, 4))

    def forward(x):
        p = x.softmax(-1)
        y = x.gather(1, torch.multinomial(p, 2)) + torch.normal(x.detach(), p.detach())[:, :2]
        y = torch.nn.functional.dropout1d((x * torch.bernoulli(p))[None], 0.5)[0][:, :2] + y
        return torch.nn.functional.scaled_dot_product_attention(y, y, y, dropout_p=0.5)

    check(Fn(forward), draw(3, 4))
    check(nn.GRU(3, 2, 2, dropout=0.5), draw(2, 2, 3))


def test_arguments_and_outputs_without_a_gradient():
    _, program, found = check(Fn(lambda x, w: x * 2 + w.detach(), (3,)), draw(2, 3))
    assert program.gradients == ("x0", "weights.0")
    assert found["gradient of weights.0"] == 0.0
    _, program, _ = check(Fn(lambda x: (x.argmax(1), x.exp())), draw(2, 3))
    assert program.grad_outs == ("grad_out_1",)
    with pytest.raises(EngineError, match="No output depends"):
        imported(Fn(lambda x: x.argmax(1)), draw(2, 3))


def test_every_node_says_where_it_comes_from():
    layer, inputs = bert_layer()
    _, program = imported(layer, *inputs, dtype="float32")
    graph, _ = to_graph(program)
    graph.validate()
    calls = [n for n in graph if n.kind is Kind.CALL]
    assert all(n.source for n in calls)
    backward = [n for n in calls if n.source.startswith("gradient of ")]
    forward = [n for n in calls if not n.source.startswith("gradient of ")]
    assert {n.source for n in forward if n.op == "matmul"} == {"aten::linear", "aten::matmul"}
    scopes = {n.scope for n in forward}
    assert {n.scope for n in backward} == scopes - {"output", "attention.output"}  # additions
    exponential = next(n for n in backward if n.op == "exp")
    assert exponential.source == "gradient of aten::gelu"
    assert exponential.scope == "intermediate.intermediate_act_fn"


REFUSED = {
    "_convolution": (nn.ConvTranspose3d(2, 2, 2), draw(1, 2, 3, 3, 3)),
    "nearest2d": (nn.Upsample(scale_factor=2), draw(1, 1, 2, 2)),
    "instance_norm": (nn.InstanceNorm1d(3, track_running_stats=True), draw(2, 3, 4)),
}


@pytest.mark.parametrize("operator", REFUSED)
def test_what_cannot_be_converted_is_refused_by_name(operator):
    module, given = REFUSED[operator]
    with refused("operator") as caught:
        imported(nn.Sequential(module), given)
    assert f"{operator} in 0" in caught.value.where


def test_who_has_which_gradient():
    assert gradients("relax") == ("tvm", "pytorch")
    assert gradients("relay") == ("tvm",)
    with pytest.raises(ValueError, match="traces"):
        check_gradient("relay", "pytorch")
    with pytest.raises(ValueError, match="known: tvm, pytorch"):
        check_gradient("relax", "jax")
