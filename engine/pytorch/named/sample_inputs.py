"""Inputs for a model of transformers, made from its configuration."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from relascope.core.errors import EngineError

_TOKENS, _IMAGE, _FRAMES, _WAVE = 14, 224, 64, 8000
_MOST = 1 << 28  # elements of one input


def sample_inputs(
    module: Any, batch: int | None, tokens: int | None, where: str
) -> dict[str, torch.Tensor]:
    """One tensor per input of forward(), by name, drawn from torch's generator: a batch of 1, or 2
    for images, with 14 tokens, or as many as there are positions. Ids are in range and have no
    special meaning, such as padding. Masks hide the last quarter of the tokens, but never all.
    Images, clips and sound have the configuration's sizes. Refused if a number of tokens does not
    apply (kind "usage"), or inputs cannot be made up ("input")."""
    config = module.config
    accepts = set(inspect.signature(module.forward).parameters)
    main = next((n for n in (module.main_input_name, *_MAKERS) if n in accepts), "")
    if main not in _MAKERS:
        listed = ", ".join(sorted(accepts - {"self", "kwargs"}))
        message = f"There are no sample inputs for {type(module).__name__}, which takes {listed}."
        hint = "Write a file.py with a function that returns (module, inputs), and open that."
        raise EngineError("input", message, where, hint)
    wanted = _inputs_of(module, main, accepts)
    texts = [n for n in wanted if n.endswith("input_ids")]
    if tokens is not None and not texts:
        raise EngineError("usage", "This model has no token count to set.", where)
    tokens = tokens or min(_TOKENS, _longest(config, "decoder_input_ids" in texts))
    sizes = {"batch": batch or (1 if texts else 2), "tokens": tokens}
    result: dict[str, torch.Tensor] = {}
    for name in wanted:
        result[name] = _MAKERS[name](config, sizes)
        if name == "input_ids" and "attention_mask" in accepts:
            result["attention_mask"] = mask = torch.ones_like(result[name])
            mask[:, tokens - tokens // 4 :] = 0
    return result


def _inputs_of(module: Any, main: str, accepts: Collection[str]) -> list[str]:
    """Names of the inputs that a model needs, of those that it accepts."""
    both = ["input_ids", "pixel_values"]
    # A model with such a scale compares texts with images.
    wanted = both if hasattr(module, "logit_scale") and {*both} <= {*accepts} else [main]
    decodes = getattr(module.config, "is_encoder_decoder", False)
    return [*wanted, "decoder_input_ids"] if decodes and "decoder_input_ids" in accepts else wanted


def _longest(config: Any, decoder: bool) -> int:
    """The most tokens that a text may have, if that is known."""
    text = (config.get_text_config(decoder=True) if decoder else None) or config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    return positions - 2 if isinstance(positions, int) and positions > 3 else _TOKENS


def _normal(*shape: int) -> torch.Tensor:
    if math.prod(map(int, shape)) > _MOST:
        message = f"An input of {' x '.join(map(str, shape))} is too large."
        raise EngineError("input", message, "config.json", "Give smaller sizes.")
    return torch.randn(*map(int, shape))


def _ids(config: Any, sizes: Mapping[str, int]) -> torch.Tensor:
    text = config.get_text_config()
    count = int(text.vocab_size)
    special: set[int] = set()
    for one in (config, text):
        for name, value in one.to_dict().items():
            if name.endswith(("_token_id", "_token_index", "_token_ids")):
                several = value if isinstance(value, list) else [value]
                special.update(v for v in several if isinstance(v, int))
    ids = torch.randint(0, count, (sizes["batch"], sizes["tokens"]))
    free = next((i for i in range(count) if i not in special), 0)
    return torch.where(torch.isin(ids, torch.tensor([*special] or [-1])), free, ids)


def _images(config: Any, sizes: Mapping[str, int]) -> torch.Tensor:
    vision = _part(config, "vision_config")
    size = _first(vision, "image_size crop_size input_size img_size", _IMAGE)
    if isinstance(size, dict):
        size = [*size.values()]
    height, width = (size * 2)[:2] if isinstance(size, list | tuple) else (size, size)
    channels = _first(vision, "num_channels in_channels in_chans", 3)
    frames = _first(vision, "num_frames frames_per_clip", 0)
    clip = () if not frames or hasattr(vision, "text_config") else (frames,)
    return _normal(sizes["batch"], *clip, channels, height, width)


def _sound(config: Any, sizes: Mapping[str, int]) -> torch.Tensor:
    """A waveform, or a spectrogram if the model takes that instead."""
    audio = _part(config, "audio_config")
    if bins := _first(audio, "num_mel_bins", 0):
        return _normal(sizes["batch"], _first(audio, "max_length", _FRAMES), bins)
    channels = _first(audio, "audio_channels", 0)
    return _normal(sizes["batch"], *((channels,) if channels else ()), _WAVE)


def _features(config: Any, sizes: Mapping[str, int]) -> torch.Tensor:
    audio = _part(config, "audio_config")
    if width := _first(audio, "input_feat_per_channel feature_projection_input_dim", 0):
        return _normal(sizes["batch"], _FRAMES, width)
    positions = _first(audio, "max_source_positions", 0)
    bins = _first(audio, "num_mel_bins", 80)
    return _normal(sizes["batch"], *((bins, 2 * positions) if positions else (_FRAMES, bins)))


def _series(config: Any, sizes: Mapping[str, int]) -> torch.Tensor:
    length = _first(config, "context_length", _FRAMES)
    return _normal(sizes["batch"], length, _first(config, "num_input_channels input_size", 1))


def _part(config: Any, name: str) -> Any:
    return getattr(config, name, None) or config


def _first(config: Any, names: str, default: Any) -> Any:
    """The first of these settings that is set."""
    found = (getattr(config, name, None) for name in names.split())
    return next((value for value in found if value), default)


_MAKERS: dict[str, Callable[[Any, Mapping[str, int]], torch.Tensor]] = {
    "input_ids": _ids,
    "pixel_values": _images,
    "input_values": _sound,
    "input_features": _features,
    "past_values": _series,
    "decoder_input_ids": _ids,
}
