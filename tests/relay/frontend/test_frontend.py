"""Importing to Relay: same numbers, right names and places, no silent change of meaning."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import ViTForImageClassification
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import small_models  # noqa: F401
from answers import refused
from gradients import Fn, error, imported, joint, quiet, step, trained
from limits import ELEMENTWISE, EPSILON, OUTPUT
from quick import QUICK, rare
from relascope.core.errors import EngineError
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.pytorch.model import load_model
from relascope.engine.relay.frontend.importer import import_model
from relascope.passes.catalogue import default_pipeline
from relascope.passes.relay.ir.rewrite import op_name, post_order
from relascope.samples import build, llama_block, vit
from traces import net, save

LIMIT = {"float32": OUTPUT, "float64": EPSILON}


def load(name, **options):
    model = load_model(ModelSource(name, **options), quiet)
    return model, import_model(model, quiet)


def spans(program):
    calls = [e for e in post_order(program.main.body) if op_name(e)]
    return [(op_name(c), c.span.source_name.name if c.span else "") for c in calls]


# Numbers.


X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
IMAGE = torch.randn(2, 4, 7, 7, generator=torch.Generator().manual_seed(2))


def test_resizing_by_a_factor_steps_by_it():
    def resized(image):
        modes = "nearest", "bilinear", "bicubic"
        return tuple(F.interpolate(image, scale_factor=(1.7, 0.6), mode=mode) for mode in modes)

    assert error(*imported(Fn(resized), IMAGE)) < ELEMENTWISE


def test_a_file_is_held_against_types_too(tmp_path):
    module = Fn(lambda x: (x.argmax(1), x.sort(1)[1]))
    model = load_model(source_from_file(save(module, (X,), tmp_path / "indices.pt")), quiet)
    assert error(model, import_model(model, quiet)) == 0


def test_recurrent_layers_and_a_padding_row_keep_their_numbers():
    assert error(*imported(nn.LSTM(8, 5, 2, dropout=0.5, batch_first=True), X)) < ELEMENTWISE
    module = nn.Sequential(nn.Embedding(5, 4, padding_idx=2))
    model, program = imported(module, torch.tensor([[2, 0, 2]]), training=True)
    assert error(model, program) < ELEMENTWISE
    assert "where" in {op for op, _ in spans(program)}


# Names and places.


def test_what_an_operator_is_composed_of_has_its_origin():
    module = nn.Sequential(nn.Linear(3, 3), Fn(lambda x: torch.linalg.cross(x, x.flip(0))))
    _, program = imported(module, torch.randn(2, 3))
    places = {place for _, place in spans(program)}
    origins = {program.provenance[p][:2] for p in places}
    assert origins >= {("0", "aten::linear"), ("1", "aten::flip"), ("1", "aten::linalg_cross")}
    assert {p.split("|")[1] for p in places} == {o for _, o in origins}


def test_a_trace_imports_twice_alike_and_an_unread_input_stays():
    model, first = load("mlp")
    assert str(import_model(model, quiet).main) == str(first.main)
    model, program = imported(Fn(lambda x, y: x * 2), X, X)
    assert [p.name_hint for p in program.main.params] == ["x0", "x1"]
    assert error(model, program) == 0


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


# What is refused.


REFUSED = {
    "unknown operator": (Fn(lambda x: torch.linalg.inv(x @ x.mT)), False, "linalg_inv"),
    "batch norm that averages": (
        *(nn.Sequential(nn.BatchNorm1d(6, momentum=None)), True),
        "batch norm averages over all batches",
    ),
    "layer norm over two axes": (nn.LayerNorm((6, 8)), False, "only the last axis"),
    "poisson": (Fn(lambda x: torch.poisson(x.sigmoid())), False, "random"),
    "another type": (
        Fn(lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="xy")[0]),
        False,
        "gives float32[8, 6] in Relay's PyTorch frontend, and float32[6, 8] in PyTorch",
    ),
    "a shape of values": (Fn(lambda x: (x > 0).nonzero()), False, "nonzero"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_meaning_is_refused(name):
    module, training, words = REFUSED[name]
    with refused("operator") as caught:
        imported(module, X, training=training)
    error = caught.value
    assert error.where and words in f"{error.message} {error.where} {error.hint}"


def test_the_frontend_is_left_as_it_was():
    from tvm.relay.frontend import pytorch as theirs

    before = (theirs._wrap_const, theirs._convert_data_type)
    load("mlp")
    with pytest.raises(EngineError):
        imported(nn.LayerNorm((6, 8)), X)
    assert (theirs._wrap_const, theirs._convert_data_type) == before


INFERENCE = default_pipeline("relay", False)


WHOLE = "gpt2_block", "llama_block", "vit"


@pytest.mark.parametrize("name", ["small_gpt2", "small_llama", *map(rare, WHOLE)])
def test_the_forward_of_a_sample_agrees_with_pytorch(session, name):
    request = BuildRequest(ModelSource(name, batch=1), INFERENCE, QUICK)
    found = session.check(request, progress=quiet)
    assert found[0].scale > 0.1
    assert max(c.max_rel for c in found) <= OUTPUT


def test_no_token_of_a_decoder_sees_a_later_one():
    for name in ("gpt2_block", "llama_block"):
        module, (hidden, *rest) = build(name, tokens=4)
        before = module(hidden, *rest)
        hidden[:, 3] += 1
        after = module(hidden, *rest)
        assert torch.equal(before[:, :3], after[:, :3])
        assert not torch.equal(before[:, 3], after[:, 3])


def test_what_we_wrote_anew_is_transformers_own_in_float32():
    def both(name, config, theirs, **sizes):
        ours, inputs = build(name, **sizes)
        config._attn_implementation = "eager"
        theirs = theirs(config).eval()
        theirs.load_state_dict(ours.state_dict())
        return ours, theirs, inputs

    layer = partial(LlamaDecoderLayer, layer_idx=0)
    ours, theirs, (x, mask, *turns) = both("llama_block", llama_block.config(), layer, tokens=5)
    expected = theirs(x, attention_mask=mask, position_embeddings=turns)
    assert torch.equal(ours(x, mask, *turns), expected)
    ours, theirs, (x,) = both("vit", vit.config(), ViTForImageClassification, batch=1)
    assert torch.equal(ours(x).logits, theirs(x).logits)


@pytest.mark.parametrize("name", ["resnet", "mobilenet_v2"])
def test_an_image_network_of_random_weights_sees_its_image(name):
    module, (image,) = build(name, batch=2)
    (first, second), *_ = module(image)
    assert (first - second).abs().max() > 0.1 * first.abs().max()


def test_batch_norms_move_their_statistics_each_time_or_have_none():
    norm = nn.BatchNorm1d(3)
    twice = nn.Sequential(norm, Fn(lambda x: x.tanh() + x), norm)
    model, program = trained(twice, torch.randn(5, 3))
    results, _ = step(model, joint(program))
    expected = model.updated(program.updates)
    assert int(expected["0.num_batches_tracked"]) == 2
    for value, name in zip(results[1:], program.updates, strict=True):
        torch.testing.assert_close(value, expected[name])
    module = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    model, program = imported(module, torch.randn(5, 3, 4), training=True)
    assert not program.updates and str(program.mod).count("mean(") == 2
    assert error(model, program) <= OUTPUT
