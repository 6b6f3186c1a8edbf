"""The way to the gradient, in the engine whose TVM is here."""

import pytest
import torch
from torch import nn

import small_models  # noqa: F401
from answers import quiet, refused
from gradients import Fn, bert_layer, compare, import_model, joint, passes, step, to_graph, trained
from image_parts import PARTS, norms, part
from limits import LIMITS, close
from quick import rare
from relascope.core.graph import Kind
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model, model_from_module
from traces import Parts


def sample_in_train_mode_agrees(sample, dtype):
    model = load_model(ModelSource(sample, training=True, dtype=dtype), quiet)
    program = joint(import_model(model, quiet))
    assert program.masks, "without dropout this would show nothing of train mode"
    assert all(m.rate > 0 for m in program.masks)
    outputs, gradients = step(model, program)
    compare(model, outputs, gradients)


def traced(module, image, dtype="float32"):
    """As it is, in the mode of each of its parts."""
    to = getattr(torch, dtype)
    source = ModelSource("module", training=True, dtype=dtype)
    model = model_from_module(module.to(to), ("x",), (image.to(to),), source, quiet)
    return model, import_model(model, quiet)


SMALL = [("small_gpt2", "float32"), ("small_llama", "float64")]
LARGE = [rare("gpt2_block", "float32"), rare("llama_block", "float64")]


@pytest.mark.parametrize(("name", "dtype"), SMALL + LARGE)
def test_every_gradient_of_a_block_agrees_with_pytorch(name, dtype):
    model = load_model(ModelSource(name, batch=2, tokens=3, training=True, dtype=dtype), quiet)
    outputs, gradients = step(model, joint(import_model(model, quiet)), "min_cut")
    compare(model, outputs, gradients)


@pytest.mark.parametrize(
    ("name", "dtype"),
    # In float32, which side of relu6's bends a number falls on may depend on rounding.
    [("resnet", "float32"), rare("resnet", "float64"), ("mobilenet_v2", "float64")],
)
def test_gradients_and_running_statistics_agree(name, dtype):
    module, image = part(PARTS[name])
    frozen, live = norms(module)[::2], norms(module)[1::2]
    for norm in frozen:
        norm.eval()
    model, program = traced(module, image, dtype)
    assert len(program.updates) == 3 * len(live) > 0
    results, gradients = step(model, joint(program), "min_cut")
    count = len(results) - len(program.updates)
    compare(model, results[:count], gradients)
    updated = dict(zip(program.updates, results[count:], strict=True))
    for key, theirs in model.updated(program.updates).items():
        assert updated[key].dtype == theirs.dtype
        assert not torch.equal(theirs, model.buffers[key]), key
        torch.testing.assert_close(updated[key], theirs, **close(LIMITS[dtype][0]))


def test_outputs_have_a_grad_out_each_where_they_are_floating():
    several = Parts(lambda m, x, n: (m.fc(x), n + 1, (x * 2, torch.tanh(x))), fc=nn.Linear(3, 3))
    model, program = trained(several, torch.randn(2, 3), torch.tensor([4, 5]))
    assert passes(program, "root_grad_out").grad_outs == ("grad_out_0", "grad_out_2", "grad_out_3")
    made = joint(program)
    assert (made.outputs, made.gradients) == (4, ("x0", "fc.weight", "fc.bias"))
    outputs, gradients = step(model, made)
    compare(model, outputs, gradients)
    assert outputs[1].tolist() == [5, 6]
    _, program = trained(Fn(lambda x: x > 0), torch.randn(2, 3))
    with refused("pass", "floating"):
        passes(program, "root_grad_out")


def test_provenance_survives_the_gradient_and_ids_are_unique():
    layer, inputs = bert_layer()
    _, program = trained(layer, *inputs)
    graph, _ = to_graph(joint(program))
    graph.validate()
    forward = graph.ancestors(graph.outputs[: graph.forward_outputs])
    calls = [n for n in graph if n.kind is Kind.CALL]
    assert all(n.scope and n.source for n in calls if n.id in forward)
    backward = [n for n in calls if n.id not in forward]
    origins = [(n.scope, n.source) for n in backward]
    assert sum(bool(s) for s, _ in origins) > 0.9 * len(backward)
    assert ("attention.self", "gradient of aten::softmax") in origins
    assert ("output.LayerNorm", "gradient of aten::layer_norm") in origins
    assert {s for s, _ in origins if s} <= {n.scope for n in calls if n.id in forward}
