"""Models drawn at random from all that timm, torchvision and transformers list, for `bench/zoo.py`.

Each is made small by rule, with random weights, in eval mode. A model that no rule makes small, or
that PyTorch itself cannot run, does not count; `bench/zoo.py` says how many there were.

timm and torchvision are not dependencies: `pip install --no-deps timm torchvision`."""

import dataclasses
import inspect
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

Inputs = dict[str, torch.Tensor]
FORMS = ("live", ".pt", ".pt2", ".pt2 dynamic")
_PARAMETERS = 5e7
_VOCABULARY, _TOKENS = 99, 7
_SIDES = (32, 64, 96, 224)


def draw(seed: int) -> Iterator[tuple[str, str]]:
    """All names in an order of their own, each with one of its forms: the same for a seed."""
    declare_torchvision()
    import timm
    import torchvision

    names = [f"timm/{n}" for n in timm.list_models()]
    names += [f"torchvision/{n}" for n in torchvision.models.list_models()]
    names += [f"transformers/{n}" for n in _classes()]
    source = random.Random(seed)
    source.shuffle(names)
    for name in names:
        yield name, source.choice(FORMS)


def declare_torchvision() -> None:
    """Import torchvision, before transformers does. Its usual build has operators compiled for
    CUDA: beside a PyTorch for the CPU their names are declared, so that its models import; no drawn
    model may call one."""
    declared = torch.library.Library("torchvision", "FRAGMENT")
    sys.modules["relascope.torchvision"] = declared  # which lives as long as the process
    while "torchvision" not in sys.modules:
        try:
            import torchvision  # noqa: F401
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            declared.define(f"{missing[1]}() -> Tensor")
            for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
                del sys.modules[name]


def _classes() -> list[str]:
    """transformers' model classes for a configuration, all heads, by class."""
    from transformers.models.auto import modeling_auto as auto

    names = {
        name
        for mapping, table in vars(auto).items()
        if mapping.endswith("MAPPING_NAMES") and table is not auto.CONFIG_MAPPING_NAMES
        for value in table.values()
        for name in ((value,) if isinstance(value, str) else value)
    }
    return sorted(names)


def make(name: str) -> tuple[nn.Module, Inputs]:
    """A model in eval mode, and its inputs by name: the same each time. Raises Exception if no rule
    makes it small, or it does not run on its inputs."""
    library, _, model = name.partition("/")
    declare_torchvision()
    return {"timm": _timm, "torchvision": _vision, "transformers": _transformer}[library](model)


def _first(tries: Iterator[Callable[[], tuple[nn.Module, Inputs]]]) -> tuple[nn.Module, Inputs]:
    """The first model that can be made, runs, and is small."""
    why: Exception | None = None
    for attempt in tries:
        try:
            torch.manual_seed(0)
            module, inputs = attempt()
            module.eval()
            if sum(p.numel() for p in module.parameters()) > _PARAMETERS:
                raise ValueError("no rule makes it small")
            for parameter in module.parameters():
                if parameter.dim() > 1 and not parameter.any():  # gates: all experts would tie
                    nn.init.normal_(parameter, std=0.02)
            with torch.no_grad():
                module(**inputs)
            return module, inputs
        except Exception as error:
            why = why or error
    raise why or ValueError("nothing to try")


def _named(module: nn.Module) -> str:
    return next(iter(inspect.signature(module.forward).parameters))


def _vision(name: str) -> tuple[nn.Module, Inputs]:
    from torchvision import models

    def at(side: int) -> tuple[nn.Module, Inputs]:
        own: dict[str, Any] = {"image_size": side} if name.startswith("vit") else {}
        if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
            own["weights_backbone"] = None
        module = models.get_model(name, weights=None, **own)
        shape = (2, 3, side, side)
        if models.get_model_builder(name).__module__.split(".")[2] == "video":
            shape = (1, 3, 16, side, side)
        return module, {_named(module): torch.randn(shape)}

    return _first(lambda s=s: at(s) for s in _SIDES[1:])


def _timm(name: str) -> tuple[nn.Module, Inputs]:
    import timm

    def at(side: int, own: dict[str, Any]) -> tuple[nn.Module, Inputs]:
        with _fewer():
            module = timm.create_model(name, pretrained=False, num_classes=10, **own)
        side = side or module.default_cfg["input_size"][-1]
        return module, {_named(module): torch.randn(2, 3, side, side)}

    tries = [(s, {"img_size": s}) for s in _SIDES[1:]] + [(64, {}), (128, {}), (0, {})]
    return _first(lambda t=t: at(*t) for t in tries)


@contextmanager
def _fewer() -> Iterator[None]:
    """timm's models with one block a stage, two in the first."""
    from timm.models import _builder

    build = _builder.build_model_with_cfg

    def small(*args: Any, **options: Any) -> nn.Module:
        return build(*args, **{k: _shallow(k, v) for k, v in options.items()})

    with ExitStack() as patches:
        for holder in [m for n, m in sys.modules.items() if n.startswith("timm.models.")]:
            if getattr(holder, "build_model_with_cfg", None) is build:
                patches.enter_context(patch.object(holder, "build_model_with_cfg", small))
        yield


_DEEP = re.compile(r"(depths?|layers|num_blocks|d|nb_?blocks|repeats|block_config|num_layers)$")


def _shallow(name: str, value: Any) -> Any:
    if name == "block_args" and isinstance(value, list):  # EfficientNet's blocks, by stage
        return [stage[: 1 if i else 2] for i, stage in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **{k: _shallow(k, v) for k, v in own.items()})
    if name in ("model_cfg", "blocks", "stages") and isinstance(value, (tuple, list)):
        return type(value)(_shallow(name, v) for v in value)
    if not _DEEP.match(name):
        return value
    if isinstance(value, int):
        return min(value, 2)
    if isinstance(value, (tuple, list)) and all(isinstance(v, int) for v in value):
        return type(value)(min(v, 1 if i else 2) for i, v in enumerate(value))
    return value


Rules = tuple[tuple[str, int], ...]
_SMALL: Rules = (
    (r".*(token_id|token_index|_id)$", 1),
    (r".*vocab_size$", _VOCABULARY),
    (r"(num_.*hidden_layers|.*num_layers|n_layers?|.*encoder_layers|.*decoder_layers|depth)$", 2),
    (r".*(num_key_value_heads|num_kv_heads)$", 2),
    (r".*(attention_heads|n_heads?|num_heads|_heads)$", 4),
    (r".*(intermediate_size|ffn_dim|d_ff|dim_ff|n_inner|ffn_hidden_size|mlp_dim)$", 64),
    (r"(head_dim|d_kv|attention_head_size|qk_.*head_dim|v_head_dim|kv_channels)$", 8),
    (r".*(hidden_size|d_model|embed_dim|n_embd|hidden_dim|embedding_size|projection_dim|dim)$", 32),
    (r".*(num_local_experts|num_experts|n_routed_experts)$", 4),
    (r".*(num_experts_per_tok|top_k)$", 2),
    (r"image_size$", 32),
    (r"patch_size$", 8),
    (r".*(_rank)$", 16),
)
_LISTS: tuple[tuple[str, list[int]], ...] = (
    (r"depths|num_blocks|layers", [1]),
    (r"hidden_sizes|embed_dims|widths|out_channels|encoder_hidden_sizes", [16, 16, 32, 32]),
    (r"num_heads|num_attention_heads", [1, 2, 2, 4]),
)


def _smaller(config: Any, rules: Rules) -> None:
    for key, value in list(vars(config).items()):
        if hasattr(value, "model_type"):
            _smaller(value, rules)
            continue
        small: Any = None
        if isinstance(value, int) and not isinstance(value, bool):
            small = next((s for p, s in rules if re.match(p, key)), None)
            small = None if small is None else min(value, small)
        elif isinstance(value, list) and value and all(isinstance(v, int) for v in value):
            row = next((s for p, s in _LISTS if re.fullmatch(p, key)), None)
            small = row and (row * len(value))[: len(value)]
        if small is not None and small != value:
            setattr(config, key, small)


def _transformer(name: str) -> tuple[nn.Module, Inputs]:
    import transformers

    def at(rules: Rules) -> tuple[nn.Module, Inputs]:
        kind = getattr(transformers, name)
        config = kind.config_class()
        _smaller(config, rules)
        for part in (config, *(v for v in vars(config).values() if hasattr(v, "model_type"))):
            part.use_cache = False
            if "pad_token_id" in vars(part) and part.pad_token_id is None:
                part.pad_token_id = 0
        module = kind(config)
        return module, _given(module, config)

    sides = ("image_size", "patch_size")
    tries = (
        _SMALL,
        tuple(r for r in _SMALL if r[0] not in sides),
        tuple(r for r in _SMALL if not r[0].startswith("(head_dim")),
        _SMALL[:3],
    )
    return _first(partial(at, rules) for rules in tries)


def _given(module: nn.Module, config: Any) -> Inputs:
    """The inputs that such a model needs, by the names of its forward."""
    names = inspect.signature(module.forward).parameters
    vision = getattr(config, "vision_config", config)
    side = getattr(vision, "image_size", None) or 32
    side = side if isinstance(side, int) else side[0]
    channels = getattr(vision, "num_channels", 3)
    bins, end = getattr(config, "num_mel_bins", 80), getattr(config, "eos_token_id", None)

    def ids() -> torch.Tensor:
        made = torch.randint(5, _VOCABULARY - 5, (2, _TOKENS))
        if isinstance(end, int):
            made[:, -1] = end
        return made

    kinds: dict[str, Callable[[], torch.Tensor]] = {
        "input_ids": ids,
        "attention_mask": lambda: torch.ones(2, _TOKENS, dtype=torch.int64),
        "decoder_input_ids": ids,
        "pixel_values": lambda: torch.randn(2, channels, side, side),
        "input_values": lambda: torch.randn(2, 1000),
        "input_features": lambda: torch.randn(2, bins, 64),
        "past_values": lambda: torch.randn(2, 32, 2),
        "bbox": lambda: torch.randint(0, 30, (2, _TOKENS, 4)).sort(-1).values,
    }
    wanted = [str(module.main_input_name)]
    if "input_ids" in names and "pixel_values" in names:
        wanted = ["input_ids", "pixel_values"]
    wanted += [n for n in ("attention_mask", "decoder_input_ids", "bbox") if n in names]
    if "input_ids" not in wanted:
        wanted = [n for n in wanted if n != "attention_mask"]
    return {n: kinds[n]() for n in dict.fromkeys(wanted)}
