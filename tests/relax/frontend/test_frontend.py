"""What TVM's importer changes without a word is mended or refused; provenance is kept."""

import pytest
import torch

from gradients import Fn
from limits import OUTPUT
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.model import load_model
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.frontend.importer import import_model
from relax_modules import check, draw, errors, quiet
from traces import net, save


def test_a_size_that_a_trace_computes_in_floats():
    def padded(x):  # to what a convolution with a stride of 2 takes, as TensorFlow has it
        size = x.shape[-1]
        if not isinstance(size, torch.Tensor):  # while nothing is traced
            return torch.nn.functional.pad(x, (0, 1), value=0.0)
        around = torch.clamp(((size / 2).ceil() - 1) * 2 + 3 - size, min=0)
        before = around // 2
        return torch.nn.functional.pad(x, (before, around - before), value=0.0)

    check(Fn(padded), draw(2, 3, 6))


def test_names_order_and_provenance(tmp_path):
    module, inputs = net()
    path = save(module, inputs, tmp_path / "net.pt")
    model = load_model(ModelSource(str(path)), quiet)
    program = import_model(model, quiet)
    graph, variables = to_graph(program)
    graph.validate()
    assert set(variables) == set(graph.by_id)
    names = [str(p.name) for p in program.main.params]
    assert names == [*model.input_names, *model.parameters, *model.buffers]
    assert {n.scope for n in graph if n.op == "nn.layer_norm"} == {"blocks.0.norm", "blocks.1.norm"}
    assert {n.source for n in graph if n.op == "matmul"} == {"aten::linear"}
    assert max(errors(model, program).values()) <= OUTPUT


@pytest.mark.parametrize("training", [False, True])
def test_an_exported_program(tmp_path, training):
    module, inputs = net(training)
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(module, inputs), path)
    model = load_model(ModelSource(str(path), training=training), quiet)
    program = import_model(model, quiet)
    assert list(model.parameters) == [
        n for n, _ in module.named_parameters() if n != "unused" and n != "head.weight"
    ]
    assert len(program.masks) == (2 if training else 0)
    scopes = {n.scope for n in to_graph(program)[0] if n.op == "nn.layer_norm"}
    assert scopes == {"blocks.0.norm", "blocks.1.norm"}
    assert max(errors(model, program).values()) <= OUTPUT
