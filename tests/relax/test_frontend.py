"""What TVM's importer changes without a word is mended or refused; provenance is kept."""

import pytest
import torch
from torch import nn
from traces import net, save

from engine.building import BuildOptions
from engine.measure import Built, compare
from engine.model import load_model, model_from_module
from engine.relax.frontend import import_model
from engine.relax.runtime import step
from engine.relax.to_graph import to_graph
from engine.session import EngineError, ModelSource

LIMIT = {"float32": 1e-5, "float64": 1e-12}


def quiet(fraction, text):
    pass


def imported(module, *inputs, training=False, dtype="float32"):
    names = tuple(f"x{i}" for i in range(len(inputs)))
    source = ModelSource("module", training=training, dtype=dtype)
    module = module.to(getattr(torch, dtype)).train(training)
    inputs = tuple(i.to(getattr(torch, dtype)) if i.is_floating_point() else i for i in inputs)
    model = model_from_module(module, names, inputs, source, quiet)
    return model, import_model(model, quiet)


def errors(model, program, target="llvm"):
    built = Built(model, program, step(program, None, BuildOptions(target)), None, 0.0)
    return {c.name: c.max_rel for c in compare(built, quiet)}


def check(module, *inputs, training=False, dtype="float32", target="llvm"):
    model, program = imported(module, *inputs, training=training, dtype=dtype)
    found = errors(model, program, target)
    assert max(found.values()) <= LIMIT[dtype], found
    return model, program, found


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def test_dropout_in_train_mode_becomes_masks_in_order():
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 4), nn.Dropout(0.25))
    _, program, _ = check(module, draw(3, 8), training=True)
    assert [(m.rate, m.shape) for m in program.masks] == [(0.5, (3, 8)), (0.25, (3, 4))]
    assert [str(p.name) for p in program.main.params][-2:] == [m.name for m in program.masks]


def test_dropout_in_eval_mode_is_nothing():
    _, program, _ = check(nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 4)), draw(3, 8))
    assert program.masks == ()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm_by_its_running_statistics(dtype):
    module = nn.BatchNorm2d(3)
    module.running_mean.normal_()
    module.running_var.uniform_(1, 2)
    check(module, draw(2, 3, 4, 4), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm_by_the_batch_returns_its_updates(dtype):
    _, program, found = check(nn.BatchNorm2d(3), draw(2, 3, 4, 4), training=True, dtype=dtype)
    assert set(program.updates) == {"running_mean", "running_var", "num_batches_tracked"}
    assert {f"updated {n}" for n in program.updates} < set(found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_three_results_of_layer_norm(dtype):
    weight, bias = draw(6), draw(6)

    def function(x):
        return torch.native_layer_norm(x, [6], weight.to(x), bias.to(x), 1e-5)

    _, program, found = check(Function(function), draw(2, 3, 6), dtype=dtype)
    assert len(found) == program.outputs == 3


@pytest.mark.parametrize("target", ["llvm", "llvm -libs=blas"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.mm(x, y),
        lambda x, y: torch.addmm(x[:, :3], x, y, beta=0.5, alpha=2),
        lambda x, y: torch.bmm(x[None], y[None]),
        lambda x, y: x @ y,
        lambda x, y: (x @ x.t()) @ (y @ (y.t() @ y)),
    ],
)
def test_products_keep_float64(function, target):
    _, program, _ = check(Function(function), draw(4, 4), draw(4, 3)[:, :3].contiguous(),
                          dtype="float64", target=target)  # fmt: skip
    assert "float32" not in str(program.mod)


def test_linear_and_convolution_keep_float64():
    check(nn.Conv1d(3, 4, 3, stride=2, padding=1), draw(2, 3, 9), dtype="float64")
    check(nn.Conv2d(4, 4, 3, groups=2, dilation=2), draw(2, 4, 9, 9), dtype="float64")
    check(nn.Linear(8, 4), draw(3, 8), dtype="float64")


def test_bools_are_summed_and_compared():
    check(Function(lambda x: torch.cumsum(x > 0, 1)), draw(3, 5))
    check(Function(lambda x: (x > 0) == (x > 1)), draw(3, 5))
    check(Function(lambda x: (x > 0) != (x > 1)), draw(3, 5))


def test_options_that_tvm_ignores():
    check(Function(lambda x, y: torch.add(x, y, alpha=3) - torch.sub(x, y, alpha=2)),
          draw(3, 5), draw(3, 5))  # fmt: skip
    check(Function(lambda x: torch.softmax(x, -1, dtype=torch.float64)), draw(3, 5))
    check(Function(lambda x: torch.std(x, 1, correction=2)), draw(3, 5))
    check(Function(lambda x: x.new_ones(5, dtype=torch.bool) & (x > 0)), draw(3, 5))
    check(Function(lambda q: nn.functional.scaled_dot_product_attention(q, q, q, scale=0.3)),
          draw(1, 2, 4, 8))  # fmt: skip
    causal = Function(lambda q: nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True))
    check(causal, draw(1, 2, 4, 8))


def test_random_numbers_are_refused_by_name():
    with pytest.raises(EngineError) as caught:
        imported(
            Function(lambda x: nn.functional.alpha_dropout(x, 0.5, True)), draw(3), training=True
        )
    assert caught.value.kind == "operator"
    assert "alpha_dropout" in caught.value.where


def test_operators_that_tvm_lacks_are_written_with_others():
    check(Function(lambda x: torch.logsumexp(x, 1)), draw(3, 5))


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
    assert max(errors(model, program).values()) <= LIMIT["float32"]


@pytest.mark.parametrize("training", [False, True])
def test_an_exported_program(tmp_path, training):
    module, inputs = net(training)
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(module, inputs), path)
    model = load_model(ModelSource(str(path), training=training), quiet)
    program = import_model(model, quiet)
    assert list(model.parameters) == [n for n, _ in module.named_parameters() if n != "unused"
                                      and n != "head.weight"]  # fmt: skip
    assert len(program.masks) == (2 if training else 0)
    scopes = {n.scope for n in to_graph(program)[0] if n.op == "nn.layer_norm"}
    assert scopes == {"blocks.0.norm", "blocks.1.norm"}
    assert max(errors(model, program).values()) <= LIMIT["float32"]


def test_a_file_that_is_no_exported_program(tmp_path):
    path = tmp_path / "x.pt2"
    path.write_bytes(b"nothing")
    with pytest.raises(EngineError) as caught:
        load_model(ModelSource(str(path)), quiet)
    assert caught.value.kind == "file"
