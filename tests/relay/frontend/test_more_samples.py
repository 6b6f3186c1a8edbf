"""Samples that need more than a BertLayer does, and what was made for them."""

import pytest
import torch
from torch import nn
from transformers import ViTForImageClassification
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import small_models  # noqa: F401
from gradients import error, imported, joint, quiet, step, trained
from limits import OUTPUT
from quick import QUICK
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.samples import build, llama_block, vit

INFERENCE = default_pipeline("relay", False)


def worst(found, start):
    errors = [c.max_rel for c in found if c.name.startswith(start)]
    assert errors, start
    return max(errors)


WHOLE = "gpt2_block", "llama_block", "vit"


@pytest.mark.parametrize(
    "name",
    ["small_gpt2", "small_llama", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in WHOLE)],
)
def test_the_forward_of_a_sample_agrees_with_pytorch(session, name):
    found = session.check(
        BuildRequest(ModelSource(name, batch=1), INFERENCE, QUICK), progress=quiet
    )
    assert found[0].scale > 0.1
    assert worst(found, "output") <= OUTPUT


def test_no_token_of_a_decoder_sees_a_later_one():
    for name in ("gpt2_block", "llama_block"):
        module, (hidden, *rest) = build(name, tokens=4)
        before = module(hidden, *rest)
        hidden[:, 3] += 1
        after = module(hidden, *rest)
        assert torch.equal(before[:, :3], after[:, :3])
        assert not torch.equal(before[:, 3], after[:, 3])


def test_what_we_wrote_anew_is_transformers_own_in_float32():
    ours, (hidden, mask, cos, sin) = build("llama_block", tokens=5)
    settings = llama_block.config()
    settings._attn_implementation = "eager"
    theirs = LlamaDecoderLayer(settings, layer_idx=0).eval()
    theirs.load_state_dict(ours.state_dict())
    expected = theirs(hidden, attention_mask=mask, position_embeddings=(cos, sin))
    assert torch.equal(ours(hidden, mask, cos, sin), expected)

    ours, (image,) = build("vit", batch=1)
    settings = vit.config()
    settings._attn_implementation = "eager"
    theirs = ViTForImageClassification(settings).eval()
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours(image).logits, theirs(image).logits)


@pytest.mark.parametrize("name", ["resnet", "mobilenet_v2"])
def test_an_image_network_of_random_weights_sees_its_image(name):
    module, (image,) = build(name, batch=2)
    (first, second), *_ = module(image)
    assert (first - second).abs().max() > 0.1 * first.abs().max()


def test_batch_norms_move_their_statistics_each_time_or_have_none():
    norm = nn.BatchNorm1d(3)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm

        def forward(self, x):
            return self.norm(self.norm(x) * x)

    model, program = trained(Twice(), torch.randn(5, 3))
    results, _ = step(model, joint(program))
    expected = model.updated(program.updates)
    assert int(expected["norm.num_batches_tracked"]) == 2
    for value, name in zip(results[1:], program.updates, strict=True):
        torch.testing.assert_close(value, expected[name])
    module = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    model, program = imported(module, torch.randn(5, 3, 4), training=True)
    assert not program.updates
    assert error(model, program) <= OUTPUT
