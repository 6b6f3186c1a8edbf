"""Importing to Relay: same numbers, right names and places, and no silent change of meaning."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from tvm import relay

from answers import refused
from gradients import Fn
from limits import ELEMENTWISE, EPSILON, OUTPUT, POINTWISE, rounding
from numerics import error, imported, quiet, run
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.model import load_model
from relascope.engine.relay.frontend.importer import import_model
from relascope.passes.relay.training.externalize_dropout import externalize_dropout
from traces import net, save

LIMIT = {"float32": OUTPUT, "float64": EPSILON}


def load(name, **options):
    model = load_model(ModelSource(name, **options), quiet)
    return model, import_model(model, quiet)


def spans(program):
    found = []

    def visit(expr):
        if isinstance(expr, relay.Call):
            found.append((expr.op.name, expr.span.source_name.name if expr.span else ""))

    relay.analysis.post_order_visit(program.main.body, visit)
    return found


# Numbers.


@pytest.mark.parametrize("name", ["mlp", "bert_self_attention"])
def test_samples_keep_their_numbers_in_float64(name):
    assert error(*load(name, dtype="float64")) < LIMIT["float64"]


def test_train_mode_keeps_its_numbers_with_masks_in_pytorch_order():
    model, program = load("bert_layer", training=True)
    program = externalize_dropout(program)
    assert [m.shape for m in program.masks] == [(1, 12, 14, 14), (1, 14, 768), (1, 14, 768)]
    assert error(model, program) < LIMIT["float32"]


X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
IMAGE = torch.randn(2, 4, 7, 7, generator=torch.Generator().manual_seed(2))
COUNTS = torch.arange(-6, 6).reshape(3, 4)

FAITHFUL = {
    "negative index": lambda x: x[:, torch.tensor([0, -1, -6])],
    "negative index computed": lambda x: x[:, (x.sum() * 0).to(torch.int64).reshape(1) - 2],
    "add alpha": lambda x: torch.add(x, x * 2, alpha=3),
    "sub alpha": lambda x: torch.sub(x, 2.0, alpha=0.5),
    "rsub": lambda x: 3 - x,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softmax dtype": lambda x: F.softmax(x, -1, dtype=torch.float64),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "mean dtype": lambda x: x.mean(1, dtype=torch.float64),
    "mean whole": lambda x: x.mean(),
    "sum of bool": lambda x: (x > 0).sum(1),
    "std": lambda x: x.std(-1) + x.std(-1, correction=0) + x.std(-1, correction=1.3),
    "var": lambda x: x.var(1, keepdim=True),
    "div floor": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "div trunc": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "to bool": lambda x: x.round().to(torch.bool).to(torch.float32),
    "to int8": lambda x: (x * 10).to(torch.int8).to(torch.float32),
    "zeros_like": lambda x: torch.zeros_like(x.double()) + torch.ones_like(x, dtype=torch.float64),
    "full_like": lambda x: torch.full_like(x, 0.25) * x,
    "chunk": lambda x: x.chunk(3, 2)[2] * 2,
    "tensor_split": lambda x: torch.tensor_split(x, 4, 1)[1] * 2,
    "layer norm bare": lambda x: F.layer_norm(x, (8,)),
    "group norm bare": lambda x: F.group_norm(x, 3),
    "elu": lambda x: F.elu(x, 0.7),
    "elu scaled": lambda x: torch.ops.aten.elu(x, 0.5, 2.0, 3.0) + F.celu(x, 0.7) + F.selu(x),
    "softplus": lambda x: F.softplus(x, 2.0),
    "hardswish": lambda x: F.hardswish(x) + F.hardsigmoid(x),
    "matmul": lambda x: x @ x.transpose(1, 2),
    "baddbmm": lambda x: torch.baddbmm(x[..., :6], x, x.transpose(1, 2), beta=0.5, alpha=2),
    "index": lambda x: x[:, 1:5:2, -1],
    "masked_fill": lambda x: x.masked_fill(x > 0.5, float("-inf")).softmax(-1),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.3),
    "attention causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "constant": lambda x: x + torch.linspace(0.1, 0.8, 8, dtype=torch.float64),
    "long constant": lambda x: x[..., torch.tensor([2, 0])] * torch.tensor([[2**40, 1]]),
    "in place": lambda x: (x * 2).add_(1).relu_(),
    "linear of a vector": lambda x: F.linear(x[0, 0], x[0]) + F.linear(x[1], x[0, 0]),
    "square of integers": lambda x: x.to(torch.int64) ** 3 + x.to(torch.int32).square(),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1) * 2,
    "composed": lambda x: torch.kron(x[0], x[1]),
    "composed of parts": lambda x: torch.hstack(torch.vsplit(x, 2)),
    "composed of two results": lambda x: torch.stack(torch.aminmax(x, dim=1)),
    "composed in turn": lambda x: torch.diag_embed(x, 1).diagonal(0, -1, 0).expm1(),
    "in place of bools": lambda x: (x * 2).gt_(1),
    "round": lambda x: (x * 2).round() / 2 + (x.round() + 0.5).round(),
    "round decimals": lambda x: x.round(decimals=2) + (x * 100).round(decimals=-1),
    "roll": lambda x: x.roll(20, 1) + x.roll((-1, 9), (2, 0)) + x.roll(3),
    "sort": lambda x: x.sort(dim=1, stable=True, descending=True)[0],
    "sort's indices": lambda x: x.sort(1)[1],
    "argsort": lambda x: x.argsort(stable=True, dim=1),
    "argmax": lambda x: x.argmax(2),
    "max along": lambda x: x.max(1)[0],
    "min along": lambda x: x.min(1, keepdim=True)[1],
    "amax": lambda x: x.amax(),
    "cumsum of bools": lambda x: (x > 0).cumsum(1),
    "sum of bools": lambda x: (x > 0) + (x < 1),
    "exp of integers": lambda x: (x * 3).to(torch.int32).exp() + (x > 0) / 2,
    "type of a size": lambda x: x * torch.as_tensor(x.size(0)).detach().type_as(x),
    "arange of fractions": lambda x: x[:, :2, :1] + torch.arange(0.1, -7.9, -4, dtype=x.dtype),
    "one number": lambda x: x.mean().cumsum(0) + x.mean().max(0)[0],
    "tril": lambda x: x.tril(1) - x.triu(-1),
    "max pool to the end": lambda x: F.max_pool2d(x[None], 3, 2, 1, ceil_mode=True),
    "max pool dilated": lambda x: F.max_pool1d(x, 2, 3, 1, 2, ceil_mode=True),
    "average pool to the end": lambda x: F.avg_pool2d(x[None], (2, 3), (3, 2), 1, ceil_mode=True),
    "average of the inside": lambda x: F.avg_pool1d(x, 3, 2, 1, True, False),
    "average by a divisor": lambda x: F.avg_pool2d(x[None], 3, 2, 1, True, True, 2),
}


@pytest.mark.parametrize(
    "dtype", ["float32", pytest.param("float64", marks=pytest.mark.exhaustive)]
)
def test_operators_keep_their_meaning(dtype):
    """All of FAITHFUL in one program, for one build costs more than one operator."""
    module = Fn(lambda x: tuple(f(x) for f in FAITHFUL.values()))
    model, program = imported(module, X.to(getattr(torch, dtype)), dtype=dtype)
    for name, ours, theirs in zip(FAITHFUL, run(model, program), model.forward(), strict=True):
        theirs = theirs.numpy()
        limit = rounding(dtype, POINTWISE)
        if "norm bare" in name:  # TVM's SimplifyInference takes their 1e-5 in float32
            limit += 1e-5 * rounding("float32", POINTWISE)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
        scale = max(np.abs(theirs).max(), 1e-30)
        assert np.abs(ours.astype("float64") - theirs).max() / scale < limit, name


def test_integers_keep_their_meaning():
    far = 2**40
    module = Fn(
        lambda n: (
            *(n.sum(), n.to(torch.int32).sum(0), n.to(torch.int32).cumsum(0), n // 3, n % 3),
            *(n.clamp(-2, 2), n.clamp(min=1), (n * far).clamp(max=-far), n.round()),
        )
    )
    assert error(*imported(module, COUNTS)) == 0


def test_convolutions_and_pools():
    module = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=2),
        nn.BatchNorm2d(8),
        nn.AvgPool2d(2),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.MaxPool2d(2),
        nn.PixelShuffle(2),
    )
    module[1].running_mean.normal_()
    model, program = imported(module, IMAGE)
    assert program.buffers == ("1.running_mean", "1.running_var")
    assert error(model, program) < ELEMENTWISE


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_resizing_by_a_factor_steps_by_it(mode):
    def resized(image):
        return F.interpolate(image, scale_factor=(1.7, 0.6), mode=mode)

    assert error(*imported(Fn(resized), IMAGE)) < ELEMENTWISE


def test_a_file_is_held_against_types_too(tmp_path):
    module = Fn(lambda x: (x.argmax(1), x.sort(1)[1]))
    model = load_model(source_from_file(save(module, (X,), tmp_path / "indices.pt")), quiet)
    assert error(model, import_model(model, quiet)) == 0


def test_recurrent_layers():
    assert error(*imported(nn.LSTM(8, 5, 2, dropout=0.5, batch_first=True), X)) < ELEMENTWISE


# Names and places.


def test_every_call_says_where_it_comes_from():
    _, program = load("bert_layer")
    for op, place in spans(program):
        scope, operator, ordinal = place.split("|")
        assert program.provenance[place] == (scope, operator), op
        assert operator.startswith("aten::")
        assert int(ordinal) >= 0
    found = {(op, *program.provenance[place]) for op, place in spans(program)}
    assert ("nn.batch_matmul", "attention.self.query", "aten::linear") in found
    assert ("nn.layer_norm", "output.LayerNorm", "aten::layer_norm") in found
    assert ("erf", "intermediate.intermediate_act_fn", "aten::gelu") in found


def test_what_an_operator_is_composed_of_has_its_origin():
    class Crossed(nn.Module):
        def forward(self, x):
            return torch.linalg.cross(x, x.flip(0))

    module = nn.Sequential(nn.Linear(3, 3), nn.ModuleDict({"crossed": Crossed()})["crossed"])
    _, program = imported(module, torch.randn(2, 3))
    places = {place for _, place in spans(program)}
    origins = {program.provenance[p] for p in places}
    assert origins >= {("0", "aten::linear"), ("1", "aten::flip"), ("1", "aten::linalg_cross")}
    assert {p.split("|")[1] for p in places} == {o for _, o in origins}


def test_a_trace_imports_twice_alike():
    model, first = load("mlp")
    assert str(import_model(model, quiet).main) == str(first.main)


def test_a_file_keeps_numbers_names_and_places(tmp_path):
    path = save(*net(), tmp_path / "net.pt")
    model = load_model(source_from_file(path), quiet)
    program = import_model(model, quiet)
    assert error(model, program) < ELEMENTWISE
    names = [p.name_hint for p in program.main.params]
    assert names[:3] == ["x", "shift", "blocks.0.fc.weight"]
    assert names[-2:] == ["blocks.0.scale", "blocks.1.scale"]
    assert "head.weight" not in names  # tied to the first
    assert "unused" not in names
    places = {place.rpartition("|")[0] for _, place in spans(program)}
    assert {"blocks.0.fc|aten::linear", "blocks.1.norm|aten::layer_norm"} <= places
    double = load_model(source_from_file(path, dtype="float64"), quiet)
    assert error(double, import_model(double, quiet)) < LIMIT["float64"]


def test_a_file_with_integer_inputs(tmp_path):
    """A loaded trace records no dtypes; they must come from the inputs."""

    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 4)

        def forward(self, ids, keep):
            return self.table(ids) * keep.unsqueeze(-1), ids + 1

    inputs = (torch.tensor([[0, 1, 4]]), torch.tensor([[True, False, True]]))
    path = save(Lookup(), inputs, tmp_path / "lookup.pt")
    model = load_model(source_from_file(path), quiet)
    assert [t.dtype for t in model.inputs] == [torch.int64, torch.bool]
    assert error(model, import_model(model, quiet)) < ELEMENTWISE


def test_an_unread_input_stays_an_argument():
    model, program = imported(Fn(lambda x, y: x * 2), X, X)
    assert [p.name_hint for p in program.main.params] == ["x0", "x1"]
    assert error(model, program) == 0


# Dropout.


def rates(program):
    found = []

    def visit(expr):
        if isinstance(expr, relay.Call) and expr.op.name == "nn.dropout":
            found.append(float(expr.attrs.rate))

    relay.analysis.post_order_visit(program.main.body, visit)
    return found


def test_dropout_follows_the_train_flag():
    assert rates(load("bert_layer")[1]) == [0.0, 0.0, 0.0]
    assert rates(load("bert_layer", training=True)[1]) == pytest.approx([0.1] * 3)


def test_padding_row_of_an_embedding_gets_no_gradient():
    module = nn.Sequential(nn.Embedding(5, 4, padding_idx=2))
    model, program = imported(module, torch.tensor([[2, 0, 2]]), training=True)
    assert error(model, program) < ELEMENTWISE
    assert "where" in {op for op, _ in spans(program)}


# What is refused.


REFUSED = {
    "unknown operator": (Fn(lambda x: torch.linalg.inv(x @ x.mT)), False, "linalg_inv"),
    "batch norm that averages": (
        nn.Sequential(nn.BatchNorm1d(6, momentum=None)),
        True,
        "batch norm averages over all batches",
    ),
    "layer norm over two axes": (nn.LayerNorm((6, 8)), False, "one axis"),
    "poisson": (Fn(lambda x: torch.poisson(x.sigmoid())), False, "random"),
    "another type": (
        Fn(lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="xy")[0]),
        False,
        "makes float32[8, 6] of aten::meshgrid, and PyTorch float32[6, 8]",
    ),
    "a shape of values": (Fn(lambda x: (x > 0).nonzero()), False, "nonzero"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_meaning_is_refused(name):
    module, training, words = REFUSED[name]
    with pytest.raises(EngineError) as caught:
        imported(module, X, training=training)
    error = caught.value
    assert error.kind == "operator"
    assert words in f"{error.message} {error.where} {error.hint}"
    assert error.where


def test_an_unknown_operator_is_named_with_its_module(tmp_path):
    class Odd(nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    module = nn.Sequential(nn.Linear(3, 3), nn.ModuleDict({"odd": Odd()})["odd"])
    path = save(module, (torch.randn(3, 3),), tmp_path / "odd.pt")
    with refused("operator", where="aten::linalg_inv in 1", says="aten::linalg_inv"):
        import_model(load_model(source_from_file(path), quiet), quiet)


def test_the_frontend_is_left_as_it_was():
    from tvm.relay.frontend import pytorch as theirs

    before = (theirs._wrap_const, theirs._convert_data_type)
    load("mlp")
    with pytest.raises(EngineError):
        imported(nn.LayerNorm((6, 8)), X)
    assert (theirs._wrap_const, theirs._convert_data_type) == before
