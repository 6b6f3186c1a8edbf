"""Models of torchvision and timm, if those are installed."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from relascope.core.errors import EngineError, reporting
from relascope.engine.files.archive import plainly
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.named.code import Call

_BATCH, _SIZE = 2, 224


def names(library: str, pattern: str, classes: bool) -> Iterator[tuple[str, str, bool]]:
    """(name, library, whether its weights are here) of each model; raises (kind "engine") if the
    library is installed but cannot be imported."""
    if find_spec(library) is None:
        return
    for name in _names(library):
        yield name, library, _weights(library, name) is not None


def maker(library: str, name: str) -> Callable[[], nn.Module] | None:
    """A function that builds a model with random weights; None if there is no such name. Raises
    (kind "engine") if the library is not installed."""
    if find_spec(library) is None:
        message = f"{library} is not installed."
        raise EngineError("engine", message, f"{library}:{name}", _hint(library))
    return partial(_made, library, name) if name in _names(library) else None


def with_weights(library: str, name: str) -> tuple[nn.Module, tuple[str, ...]]:
    """A model with its default weights from the local cache, or refused (kind "usage")."""
    path = _weights(library, name)
    if path is None:
        message = f"This machine has no weights of {name}, and relascope downloads none."
        raise EngineError("usage", message, f"{library}:{name}", "Add --random-weights.")
    if library == "timm":
        how = {"pretrained": True, "pretrained_cfg_overlay": {"file": str(path)}}
        return _imported("timm").create_model(name, **how), ()
    module = _made(library, name)
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return module, ()


def inputs(module: Any, source: ModelSource) -> Call:
    """Images or clips of the size that the model's weights are made for; refused (kind "usage") if
    a number of tokens is given."""
    library, _, name = source.model.partition(":")
    if source.tokens is not None:
        raise EngineError("usage", "This model has no token count to set.", source.model)
    if library == "timm":
        shape = module.default_cfg.get("input_size") or (3, _SIZE, _SIZE)
    else:
        crop = getattr(_default(name), "transforms", None)
        size = (getattr(crop() if crop else None, "crop_size", None) or [_SIZE])[-1]
        clip = "video" in type(module).__module__
        shape = (3, 16, size, size) if clip else (3, size, size)
    return (torch.randn(source.batch or _BATCH, *shape),), {}


def _imported(library: str) -> Any:
    """The part of a library that has its models; one for another torch may raise anything."""
    message, hint = f"{library} is installed, but cannot be imported: ", _hint(library)
    with reporting(lambda e: EngineError("engine", f"{message}{plainly(e)}.", library, hint)):
        return import_module("torchvision.models" if library == "torchvision" else library)


def _hint(library: str) -> str:
    return f"Run `pip install {library}` in the version for this torch ({torch.__version__})."


def _names(library: str) -> list[str]:
    """The models whose forward() takes one tensor."""
    if library == "timm":
        return list(_imported("timm").list_models())
    models = _imported("torchvision")
    kinds = (models, models.segmentation, models.video)
    return sorted(name for kind in kinds for name in models.list_models(module=kind))


def _made(library: str, name: str) -> nn.Module:
    if library == "timm":
        return cast(nn.Module, _imported("timm").create_model(name, pretrained=False))
    models = _imported("torchvision")
    segments = name in models.list_models(module=models.segmentation)
    how = {"weights": None, "weights_backbone": None} if segments else {"weights": None}
    return cast(nn.Module, models.get_model(name, **how))


def _default(name: str) -> Any:
    with suppress(AttributeError, ValueError):
        return _imported("torchvision").get_model_weights(name).DEFAULT


def _weights(library: str, name: str) -> Path | None:
    """The file of a model's weights in the local cache."""
    if library == "timm":
        from huggingface_hub import try_to_load_from_cache

        config = _imported("timm").get_pretrained_cfg(name, allow_unregistered=True)
        repository = getattr(config, "hf_hub_id", None)
        found = try_to_load_from_cache(repository, "model.safetensors") if repository else None
        return Path(found) if isinstance(found, str) else None
    url = getattr(_default(name), "url", None)
    path = Path(torch.hub.get_dir(), "checkpoints", str(url).rpartition("/")[2])
    return path if url and path.is_file() else None
