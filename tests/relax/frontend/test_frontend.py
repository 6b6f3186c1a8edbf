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


@pytest.mark.parametrize(
    ("name", "training"), [("net.pt", False), ("net.pt2", False), ("net.pt2", True)]
)
def test_names_order_and_provenance(tmp_path, name, training):
    module, inputs = net(training)
    path = save(module, inputs, tmp_path / name)
    model = load_model(ModelSource(str(path), training=training), quiet)
    program = import_model(model, quiet)
    graph, variables = to_graph(program)
    graph.validate()
    assert set(variables) == set(graph.by_id)
    names, masks = [str(p.name) for p in program.main.params], [m.name for m in program.masks]
    assert names == [*model.input_names, *model.parameters, *model.buffers, *masks]
    read = [n for n, _ in module.named_parameters() if n not in ("unused", "head.weight")]
    assert list(model.parameters) == read and len(masks) == (2 if training else 0)
    assert {n.scope for n in graph if n.op == "nn.layer_norm"} == {"blocks.0.norm", "blocks.1.norm"}
    assert {n.source for n in graph if n.op == "matmul"} == {"aten::linear"}
    assert max(errors(model, program).values()) <= OUTPUT
