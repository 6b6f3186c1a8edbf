"""Models by name: configurations as a stranger's data, inputs made from them, one's own code."""

import importlib
import json
import sys

import pytest
import torch

from answers import quiet
from limits import ELEMENTWISE
from relascope.commands.shared import _named
from relascope.core.errors import EngineError
from relascope.core.graph import TensorType
from relascope.engine.protocol.source import ModelSource, has_name, linkable
from relascope.engine.pytorch.model import load_model
from relascope.engine.pytorch.named import models as named

TINY = "hidden_size=16&num_hidden_layers=1&num_attention_heads=2&intermediate_size=24"
CHANGES = f"{TINY}&vocab_size=20"
SMALL = {name: int(value) for name, value in (one.split("=") for one in CHANGES.split("&"))}


def load(model, weights="random", **more):
    return load_model(ModelSource(model, weights=weights, **more), quiet)


def folder(tmp_path, **settings):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **SMALL, **settings}))
    return f"hf:{tmp_path}"


def refused(model, **more):
    with pytest.raises(EngineError) as caught, named.guarded(ModelSource(model)):
        load(model, **more)
    return caught.value


def test_a_type_or_a_class_is_opened_with_inputs_that_its_settings_allow():
    model = load(f"hf:bert?{CHANGES}", batch=2, tokens=7)
    assert dict(model.source.inputs)["input_ids"].shape == (2, 7)
    ids, mask = model.inputs
    assert ids.max() < 20 and 0 not in ids  # padding's
    assert mask.sum(1).tolist() == [6, 6]
    assert [list(t.shape) for t in model.outputs_flat] == [[2, 7, 16], [2, 16]]
    assert "The weights are random." in model.notes
    again = load(f"hf:bert?{CHANGES}", batch=2, tokens=7)
    assert all(torch.equal(a, b) for a, b in zip(model.forward(), again.forward(), strict=True))
    assert load(f"hf:BertForMaskedLM?{CHANGES}").outputs_flat[0].shape == (1, 14, 20)
    assert "bert" in refused("hf:brt").hint
    assert "setting 'nix'" in refused("hf:bert?nix=3").message


def test_weights_come_from_the_folder_or_are_asked_for(tmp_path):
    transformers = importlib.import_module("transformers")
    config = transformers.BertConfig(**SMALL)
    made = transformers.BertForSequenceClassification(config).eval()
    made.save_pretrained(tmp_path)
    model = load(f"hf:{tmp_path}", weights="")
    ids, mask = model.inputs
    with torch.no_grad():
        assert torch.allclose(model.forward()[0], made(ids, mask).logits, atol=ELEMENTWISE)
    assert not any("random" in note for note in model.notes)
    (tmp_path / "model.safetensors").unlink()
    error = refused(f"hf:{tmp_path}", weights="")
    assert "no weights" in error.message and "--random-weights" in error.hint
    assert "architecture" in refused(f"hf:bert?{CHANGES}", weights="").message


def test_what_would_run_or_fetch_code_is_left_out_of_a_configuration(tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    bad = {"auto_map": {"AutoModel": "evil.Evil"}, "_attn_implementation": "kernels/nobody"}
    assert load(folder(tmp_path, **bad, dtype="bfloat16")).parameter_elements > 0
    error = refused(folder(tmp_path, **bad, model_type="evil"))
    assert "which relascope does not run" in error.hint


@pytest.mark.parametrize(
    "settings",
    [
        *({"model_type": 3}, {"model_type": "../bert"}, {"hidden_size": -4}),
        *({"hidden_size": "x" * 100}, {"vocab_size": 10**15}, {"num_hidden_layers": [[1]]}),
        *({"max_position_embeddings": 10**12}, {"hidden_act": {"a": 1}}),
        {"architectures": {"a": 1}, "hidden_size": None},
        *({"quantization_config": {"quant_method": "gptq"}}, {"to_dict": 1, "get_text_config": 2}),
        {"text_config": {"hidden_size": 1}, "vocab_size": 0},
    ],
)
def test_a_bad_configuration_is_a_sentence(tmp_path, settings):
    assert refused(folder(tmp_path, **settings)).message.endswith(".")


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{" + " " * (1 << 20), '{"a": NaN'])
def test_a_config_that_is_none_is_a_sentence(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert "config.json" in refused(f"hf:{tmp_path}").message


CODE = """
import torch
Net = lambda: torch.nn.Linear(4, 3)
def model(batch=2): return torch.nn.Linear(4, 3), torch.ones(batch, 4)
def by_name(): return torch.nn.Linear(4, 3), {"input": torch.ones(1, 4)}
class Words(torch.nn.Module):
    def forward(self, x, caches=(), *, batch, scale=1.0):
        y = x * batch["image"][0] * scale + sum(caches[0])
        return {"y": y, "n": x.shape[0], "z": (x, None)}
def nested():
    one = torch.ones(2, 3)
    return Words(), (one, [(one + 1, one + 2)]), {"batch": {"image": (one * 3,)}, "scale": 2.0}
def bare(): return Words()
def opaque(): return Words(), (object(),), {"batch": {}}
def bad(): raise ValueError("no")
wrong = print
"""


def test_ones_own_code_makes_a_model(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    file = f"python:{tmp_path}/mine.py"
    assert _named("mine.py:bad") == f"{file}:bad"
    assert _named("pack.mine:bad") == f"python:{tmp_path}/pack.mine:bad"
    assert load(_named("mine.py:model"), "", batch=5).inputs[0].shape == (5, 4)
    assert load(f"{file}:by_name", "").input_names == ("input",)
    nested = load(f"{file}:nested", "")
    assert nested.input_names == ("x", "caches_0_0", "caches_0_1", "batch_image_0")
    assert "not tensors are fixed: scale=2.0." in nested.notes[0]
    product, x = nested.forward()  # and no number
    assert torch.equal(product, torch.full((2, 3), 11.0))
    assert torch.equal(x, torch.ones(2, 3))
    assert load(f"{file}:nested", "", dtype="float64").forward()[0].dtype is torch.float64
    with pytest.raises(EngineError, match="shapes of its inputs: x, batch"):
        load(f"{file}:bare", "")
    with pytest.raises(EngineError, match="x is of type object"):
        load(f"{file}:opaque", "")
    typed = load(f"{file}:Net", "", inputs=(("", TensorType((3, 4), "float32")),))
    assert typed.outputs_flat[0].shape == (3, 3)
    for name, said in (("bad", "ValueError: no"), ("wrong", "not give"), ("nix", "no attribute")):
        with pytest.raises(EngineError, match=said):
            load(f"{file}:{name}", "")


def test_a_python_file_runs_where_a_name_in_it_is_given_and_is_said_to(tmp_path, capsys):
    path = tmp_path / "mine.py"
    for text in (CODE, '"""A docstring."""\n' + CODE, "", "\0"):
        path.write_text(text)
        with pytest.raises(EngineError, match="is not run") as refused:
            _named(str(path))
        assert f"{path}:NAME" in refused.value.hint
    assert capsys.readouterr().err == ""
    _named(f"{path}:model")
    assert capsys.readouterr().err == f"Running {path}:model, which is code.\n"
    for head in ("", "# A comment.\n", '"""A docstring\n"with" quotes."""\n\n'):
        path.write_text(head + "from tvm.script import ir as I\n")
        assert _named(str(path)) == str(path)


def test_models_are_searched_and_counted_without_building():
    found = {m.name: m for m in named.listed("distilbert", True, quiet)}
    assert found["hf:distilbert"].parameters == 66_362_880
    assert not found["hf:distilbert"].weights
    assert [m.name for m in named.listed("hf:bert", False, quiet)] == ["hf:bert"]
    assert "hf:BertForMaskedLM" in [m.name for m in named.listed("BertFor*", False, quiet)]


def test_a_link_says_neither_paths_nor_code():
    good = "hf:bert", "hf:google/vit-base.1", "timm:resnet18.a1_in1k"
    for name in (*good, f"hf:bert?{CHANGES}&depths=[1,2]"):
        assert linkable(name) and has_name(name)
    for name in ("python:/a.py:b", "hf:/etc", "hf:../a", "hf:a/../b", "hf:a//b", "file.pt", "hf:"):
        assert not linkable(name)


TORCHVISION = """
from torch import nn
from . import segmentation, video

class _Crop:
    crop_size = [24]

class _Weights:
    url = "https://example.org/small-1234.pth"
    transforms = _Crop

class _Enum:
    DEFAULT = _Weights

MADE = {None: ["small"], segmentation: ["parts"], video: ["clip"]}

def list_models(module=None):
    return MADE[module if module in MADE else None]

def get_model(name, weights, weights_backbone=0):
    assert weights is None
    assert (weights_backbone is None) == (name == "parts")
    return nn.Conv3d(3, 2, 2) if name == "clip" else nn.Sequential(nn.Conv2d(3, 2, 2))

def get_model_weights(name):
    if name != "small":
        raise ValueError(name)
    return _Enum
"""

TIMM = """
from types import SimpleNamespace
from torch import nn

def list_models():
    return ["tiny"]

def create_model(name, pretrained, pretrained_cfg_overlay=None):
    made = nn.Conv2d(1, 2, 2)
    made.default_cfg = {"input_size": (1, 8, 8)}
    return made

def get_pretrained_cfg(name, allow_unregistered):
    return SimpleNamespace(hf_hub_id="timm/tiny")
"""


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    # It asks once a process: before there is what stands in for one here.
    importlib.import_module("transformers.utils").is_torchvision_available()
    models = tmp_path / "lib" / "torchvision" / "models"
    models.mkdir(parents=True)
    (models.parent / "__init__.py").write_text("")
    (models / "__init__.py").write_text(TORCHVISION)
    for room in ("segmentation", "video"):
        (models / f"{room}.py").write_text("")
    (tmp_path / "lib" / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    yield tmp_path
    for name in [n for n in sys.modules if n.split(".")[0] in ("torchvision", "timm")]:
        del sys.modules[name]


def test_models_of_torchvision_and_timm_have_the_images_that_they_are_made_for(libraries):
    assert load("torchvision:small").inputs[0].shape == (2, 3, 24, 24)
    assert load("torchvision:parts", batch=1).inputs[0].shape == (1, 3, 224, 224)
    assert load("timm:tiny").inputs[0].shape == (2, 1, 8, 8)
    assert "no token count" in refused("timm:tiny", tokens=3).message
    assert "small" in refused("torchvision:smal").hint
    known = {m.name: m for m in named.listed("t*:*", True, quiet)}
    assert set(known) == {"torchvision:small", "torchvision:parts", "torchvision:clip", "timm:tiny"}
    assert known["timm:tiny"].parameters == 10


def test_their_weights_are_those_of_the_local_cache(libraries, monkeypatch):
    said = refused("torchvision:small", weights="")
    assert "downloads none" in said.message and "--random-weights" in said.hint
    kept = libraries / "hub" / "checkpoints" / "small-1234.pth"
    kept.parent.mkdir(parents=True)
    there = {k: torch.full_like(v, 0.5) for k, v in load("torchvision:small").parameters.items()}
    torch.save(there, kept)
    assert load("torchvision:small", weights="").parameters["0.weight"].unique().tolist() == [0.5]
    (listed,) = named.listed("torchvision:small", False, quiet)
    assert listed.weights
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *a: str(kept))
    assert load("timm:tiny", weights="").inputs[0].shape == (2, 1, 8, 8)


def test_a_library_that_is_not_here_or_is_for_another_torch_is_told(libraries):
    (libraries / "lib" / "timm.py").write_text("raise RuntimeError('operator nms is missing')")
    said = refused("timm:tiny")
    assert "cannot be imported: operator nms is missing" in said.message
    assert torch.__version__ in said.hint
    with pytest.raises(EngineError, match="cannot be imported"):
        named.listed("timm:*", False, quiet)
    *others, last = named.listed("small", False, quiet)
    assert [m.name for m in others if "torchvision" in m.name] == ["torchvision:small"]
    assert (last.name, last.parameters, "nms" in last.kind) == ("timm:", None, True)
    (libraries / "lib" / "timm.py").unlink()
    sys.modules.pop("timm", None)
    importlib.invalidate_caches()
    assert "pip install timm" in refused("timm:tiny").hint


WHISPER = "d_model=16&encoder_layers=1&decoder_layers=1&encoder_attention_heads=2"
WHISPER += "&decoder_attention_heads=2&encoder_ffn_dim=24&decoder_ffn_dim=24&vocab_size=60000"
WHISPER += "&max_source_positions=20"
SPECTRA = "max_length=64&num_mel_bins=32"
PATCHES = "context_length=16&patch_length=4&num_input_channels=3&d_model=8"
TEXT = {"input_ids": (1, 14), "attention_mask": (1, 14)}
CLIP = "&".join(f"{p}_config.{s}" for p in ("text", "vision") for s in TINY.split("&"))
T5 = "d_model=16&d_kv=8&d_ff=24&num_layers=1&num_heads=2&vocab_size=40"
HEARD = "conv_dim=[8,8]&conv_stride=[5,4]&conv_kernel=[10,8]&num_feat_extract_layers=2"
HEARD += "&num_conv_pos_embeddings=8&num_conv_pos_embedding_groups=2"


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (f"vit?{TINY}&image_size=32", {"pixel_values": (2, 3, 32, 32)}),
        (f"videomae?{TINY}&image_size=32&num_frames=4", {"pixel_values": (2, 4, 3, 32, 32)}),
        (f"wav2vec2?{TINY}&{HEARD}", {"input_values": (2, 8000)}),
        (f"audio-spectrogram-transformer?{TINY}&{SPECTRA}", {"input_values": (2, 64, 32)}),
        (f"whisper?{WHISPER}", {"input_features": (1, 80, 40), "decoder_input_ids": (1, 14)}),
        (
            f"clip?{CLIP}&vision_config.image_size=32&vision_config.patch_size=16",
            TEXT | {"pixel_values": (1, 3, 32, 32)},
        ),
        (f"t5?{T5}", TEXT | {"decoder_input_ids": (1, 14)}),
        (f"patchtsmixer?{PATCHES}", {"past_values": (2, 16, 3)}),
    ],
)
def test_inputs_are_of_the_configurations_sizes(model, shapes):
    made = load(f"hf:{model}")
    assert {n: tuple(t.shape) for n, t in made.source.inputs} == shapes
    assert all(t.isfinite().all() for t in made.forward())


@pytest.mark.parametrize(
    ("model", "more", "why"),
    [
        (f"vit?{TINY}&image_size=32", {"tokens": 3}, "no token count"),
        ("bert?vocab_size=3&vocab_size.part=3", {}, "vocab_size has no settings inside it"),
        ("BertNonesense", {}, "has no model called"),
        ("llama?num_hidden_layers=400", {}, "GB of memory are free"),
    ],
)
def test_what_cannot_be_made_up_is_refused(model, more, why):
    assert why in refused(f"hf:{model}", **more).message  # and nothing is built


def test_models_of_the_local_cache_are_listed(tmp_path, monkeypatch):
    for name, config in (("own--small", {"model_type": "bert", **SMALL}), ("own--odd", {})):
        place = tmp_path / f"models--{name}"
        snapshot = place / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(config))
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text("0" * 40)
    for module in ("constants", "utils._cache_manager"):
        monkeypatch.setattr(f"huggingface_hub.{module}.HF_HUB_CACHE", str(tmp_path))
    found = {m.name: m for m in named.listed("own/", False, quiet)}
    assert set(found) == {"hf:own/small"}
    assert (found["hf:own/small"].kind, found["hf:own/small"].weights) == ("BertModel", False)
    assert load("hf:own/small").forward()[0].shape == (1, 14, 16)
