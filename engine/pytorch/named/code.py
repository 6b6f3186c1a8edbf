"""A model from a person's own code, which is trusted."""

import importlib
import importlib.util
import inspect
import linecache
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relascope.core.errors import EngineError

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The args and kwargs of a call."""


def build(where: str, batch: int | None, tokens: int | None) -> tuple[nn.Module, Call, bool]:
    """The module of FOLDER/FILE.py:NAME or FOLDER/PACKAGE.MODULE:NAME, a call's arguments, and
    whether these are the person's. NAME is a module, or a function that returns one, (module,
    inputs) or (module, args, kwargs), with inputs as a tensor, a tuple, or a dict by name. The
    function gets batch and tokens by these names if they are not None. Without a person's
    arguments, those that have no default are empty tensors. Refused (kind "usage") if it cannot be
    run or makes something else."""
    path, _, name = where.rpartition(":")
    folder, file = str(Path(path).parent), Path(path).name
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sizes = {"batch": batch, "tokens": tokens}
    made = _run(Path(path), name, {k: v for k, v in sizes.items() if v is not None})
    module, *inputs = made if isinstance(made, tuple) and len(made) in (2, 3) else (made,)
    if not isinstance(module, nn.Module) or isinstance(module, torch.jit.ScriptModule):
        hint = "Return an nn.Module, or (module, inputs) with a tuple of arguments."
        raise EngineError("usage", f"{file}:{name} does not give a module.", f"{file}:{name}", hint)
    if not inputs:
        return module, _required(module), False
    args: Any = (inputs[0],) if isinstance(inputs[0], torch.Tensor) else inputs[0]
    by_name = isinstance(args, dict) and len(inputs) == 1
    args, kwargs = ((), args) if by_name else (args, inputs[1] if inputs[1:] else {})
    if not isinstance(args, tuple | list) or not isinstance(kwargs, dict):
        message = f"{file}:{name} gives inputs of type {type(inputs[0]).__name__}."
        hint = "Return (module, inputs) with a tuple of arguments, or a dict of them by name; or"
        raise EngineError("usage", message, f"{file}:{name}", f"{hint} (module, args, kwargs).")
    return module, (tuple(args), kwargs), True


def _run(path: Path, name: str, given: dict[str, int]) -> Any:
    file = path.name
    try:
        from_file = file.endswith(".py")
        found = getattr(_module(path) if from_file else importlib.import_module(file), name)
        return found if isinstance(found, nn.Module) else found(**given)
    except Exception as wrong:  # whatever the code does
        last = traceback.extract_tb(wrong.__traceback__)[-1]
        message = f"{file}:{name} cannot be run: {type(wrong).__name__}: {wrong}"
        hint = f"The error is raised at {last.filename}:{last.lineno}."
        raise EngineError("usage", message, f"{file}:{name}", hint) from wrong


def _required(module: nn.Module) -> Call:
    """A tensor without elements for each argument of forward() that has no default."""
    wanted = inspect.signature(module.forward).parameters.values()
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in wanted if p.default is p.empty and p.kind not in free]
    words = [p.name for p in needed if p.kind is p.KEYWORD_ONLY]
    args = tuple(torch.empty(0) for _ in needed[len(words) :])
    return args, {name: torch.empty(0) for name in words}


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # its name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    linecache.checkcache(str(path))
    linecache.getlines(str(path))  # as it runs, not as edited later
    spec.loader.exec_module(module)
    return module
