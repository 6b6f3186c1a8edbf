"""Models of transformers: by a type, a class, a folder with a config.json, or a cached name."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relascope.core.errors import EngineError
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.named.code import Call
from relascope.engine.pytorch.named.sample_inputs import sample_inputs

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # huggingface_hub reads it when it is imported

_CONFIG = "config.json"
_LARGEST = 1 << 20  # bytes of a config.json
_UNREAD = "auto_map attn_implementation _attn_implementation experts_implementation "
_UNREAD += "_experts_implementation dtype torch_dtype transformers_version _name_or_path"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


@cache
def _types() -> dict[str, list[str]]:
    """The classes of each type of model that transformers knows, the plain one first."""
    from transformers.models.auto import modeling_auto

    maps = {k: v for k, v in vars(modeling_auto).items() if re.fullmatch("MODEL_.*_NAMES", k)}
    found: dict[str, list[str]] = {}
    for _, table in sorted(maps.items(), key=lambda item: item[0] != "MODEL_MAPPING_NAMES"):
        for kind, classes in table.items():
            several = [classes] if isinstance(classes, str) else classes
            found.setdefault(kind, []).extend(several)
    return {kind: list(dict.fromkeys(filter(None, found[kind]))) for kind in sorted(found)}


@cache
def _classes() -> dict[str, str]:
    return {name: kind for kind, classes in reversed(_types().items()) for name in classes}


def names(library: str, pattern: str, classes: bool) -> Iterator[tuple[str, str, bool]]:
    """(name, class, whether its weights are here) of what can be opened; classes only if asked for,
    or if the pattern has a capital letter."""
    if not _here():
        return
    yield from _cached_names()
    for kind, several in _types().items():
        yield kind, several[0], False
    if classes or any(c.isupper() for c in pattern):
        yield from ((name, name, False) for name in sorted(_classes()))


def maker(library: str, name: str) -> Callable[[], nn.Module] | None:
    """A function that builds a model with random weights; None if there is no such name. Its
    configuration may be refused (kind "file" or "usage")."""
    found = _found(name)
    if found is None:
        return None
    settings, kind, class_, _ = found
    return partial(_built, settings, kind, class_, name)


def with_weights(library: str, name: str) -> tuple[nn.Module, tuple[str, ...]]:
    """A model with the weights beside its configuration, and sentences for people; refused (kind
    "usage") if there are none."""
    found = _found(name)
    assert found is not None  # `guarded` found it
    settings, kind, class_, folder = found
    if folder is None or not _has_weights(folder):
        message = f"This machine has no weights of {name}, and relascope downloads none."
        if folder is None and "/" not in name:
            message = f"{name} is an architecture, with its default settings and without weights."
        elif folder is not None:
            message = f"There are no weights in safetensors files beside {name}'s {_CONFIG}."
        raise EngineError("usage", message, f"hf:{name}", "Add --random-weights.")
    config = _config(settings, kind, name)
    how: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    how |= {"use_safetensors": True, "attn_implementation": "eager", "dtype": torch.float32}
    how |= {"config": config, "output_loading_info": True}
    module, info = class_.from_pretrained(str(folder), **how)
    missing = sorted(info["missing_keys"])
    said = f"{len(missing)} weights are missing, and random: {', '.join(missing[:3])}"
    return module, (f"{said}{', …' if missing[3:] else ''}.",) if missing else ()


def inputs(module: Any, source: ModelSource) -> Call:
    return (), sample_inputs(module, source.batch, source.tokens, source.model)


def _has_weights(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _WEIGHTS)


def _here() -> bool:
    return find_spec("transformers") is not None


def _found(name: str) -> tuple[dict[str, Any], str, Any, Path | None] | None:
    """The settings, type, class and folder of a name."""
    if not _here():
        message = "Models of hf: need transformers, which is not installed."
        raise EngineError("engine", message, f"hf:{name}", "Run `pip install transformers`.")
    import transformers

    base, _, changes = name.partition("?")
    folder = folder_of(name)
    settings: dict[str, Any] = {}
    if folder is not None:
        settings = _read(folder / _CONFIG)
        kind = settings.get("model_type")
        if not isinstance(kind, str) or kind not in _types():
            message = f"transformers has no model type {str(kind)[:80]!r}."
            own = "The model brings its own code, which relascope does not run. "
            hint = own if "auto_map" in settings else ""
            hint += "`relascope models --search hf:` lists the types."
            raise EngineError("file", message, str(folder / _CONFIG), hint)
        if settings.get("quantization_config"):
            message = "The weights are quantized, and cannot be imported."
            raise EngineError("file", message, str(folder / _CONFIG), "Open the original model.")
        wanted = settings.get("architectures") or [""]
        first = wanted[0] if isinstance(wanted, list) else ""
        chosen = first if first in _types()[kind] else _types()[kind][0]
        settings = {k: v for k, v in settings.items() if k not in _UNREAD.split()}
    elif base in _types():
        kind, chosen = base, _types()[base][0]
    elif base in _classes():
        kind, chosen = _classes()[base], base
    else:
        return None
    _change(settings, changes, f"hf:{name}")
    try:
        return settings, kind, getattr(transformers, chosen), folder
    except (ImportError, AttributeError) as wrong:
        message = f"transformers cannot load {chosen}: {str(wrong).strip().splitlines()[0]}"
        raise EngineError("usage", message, f"hf:{name}") from wrong


def _built(settings: dict[str, Any], kind: str, class_: Any, name: str) -> nn.Module:
    config = _config(settings, kind, name)
    made: nn.Module = class_._from_config(config, attn_implementation="eager", dtype=torch.float32)
    return made


def _config(settings: dict[str, Any], kind: str, name: str) -> Any:
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[kind]
    config = made.from_dict(json.loads(json.dumps(settings)))
    for setting in dict(_changes(name.partition("?")[2])):
        known: Any = made()
        for part in setting.split("."):
            if not hasattr(known, part):
                raise EngineError("usage", f"{kind} has no setting {setting!r}.", f"hf:{name}")
            known = getattr(known, part)
    parts: list[Any] = [config, *(getattr(config, k, None) for k in config.sub_configs)]
    for one in parts:
        if hasattr(one, "use_cache"):
            one.use_cache = False
    return config


def _changes(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, text.split("&")):
        name, _, value = part.partition("=")
        yield name, value


def _change(settings: dict[str, Any], text: str, where: str) -> None:
    """Change settings as NAME=VALUE&NAME.NAME=VALUE says; values are JSON, or else text."""
    for name, value in _changes(text):
        *inside, last = name.split(".")
        into = settings
        for part in inside:
            into = into.setdefault(part, {})
            if not isinstance(into, dict):
                raise EngineError("usage", f"The setting {part} has no settings inside it.", where)
        try:
            into[last] = json.loads(value)
        except (ValueError, RecursionError):
            into[last] = value


def _read(path: Path) -> dict[str, Any]:
    hint = "Give a folder that save_pretrained wrote."
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise EngineError("file", "This config.json is larger than 1 MiB.", str(path), hint)
        settings = json.loads(data)
    except (OSError, ValueError, RecursionError) as wrong:
        reason = getattr(wrong, "strerror", None) or str(wrong)[:200]
        message = f"This folder's config.json cannot be read: {reason}."
        raise EngineError("file", message, str(path), hint) from wrong
    if not isinstance(settings, dict):
        raise EngineError("file", "This config.json is not a JSON object.", str(path), hint)
    return settings


def folder_of(name: str) -> Path | None:
    """The folder of a name's configuration; None for a type or a class."""
    base = name.partition("?")[0]
    return Path(base) if Path(base).is_absolute() else _cached(base)


def _cached(name: str) -> Path | None:
    """The folder of a model in the local cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    with suppress(HFValidationError):
        path = try_to_load_from_cache(name, _CONFIG)
        return Path(path).parent if isinstance(path, str) else None
    return None


def _cached_names() -> Iterator[tuple[str, str, bool]]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return
    for one in sorted(repositories, key=lambda r: r.repo_id):
        folder = _cached(one.repo_id) if one.repo_type == "model" else None
        with suppress(EngineError):
            if folder is not None and (found := _found(one.repo_id)) is not None:
                yield one.repo_id, found[2].__name__, _has_weights(folder)
