"""A model from a person's own code, which is run as theirs."""

import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relascope.core.errors import EngineError
from relascope.engine.pytorch.named.arguments import called_by_name


def build(
    where: str, batch: int | None, tokens: int | None
) -> tuple[nn.Module, dict[str, torch.Tensor] | None]:
    """The module that a function of a person's makes, and the inputs that it gives with it.

    Args:
        where: FOLDER/FILE.py:NAME or FOLDER/PACKAGE.MODULE:NAME; the name may be of a module, or
            of a function that returns a module or (module, inputs).
        batch, tokens: given to the function by these names, where they are not None.

    Raises:
        EngineError: kind "usage"; the code cannot be run, or makes something else.
    """
    path, _, name = where.rpartition(":")
    folder, file = str(Path(path).parent), Path(path).name
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        from_file = file.endswith(".py")
        found = getattr(_module(Path(path)) if from_file else importlib.import_module(file), name)
        sizes = {"batch": batch, "tokens": tokens}
        given = {k: v for k, v in sizes.items() if v is not None}
        made = found if isinstance(found, nn.Module) else found(**given)
    except Exception as wrong:  # whatever the code does
        last = traceback.extract_tb(wrong.__traceback__)[-1]
        message = f"{file}:{name} cannot be run: {type(wrong).__name__}: {wrong}"
        hint = f"It is raised at {last.filename}:{last.lineno}."
        raise EngineError("usage", message, f"{file}:{name}", hint) from wrong
    module, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    values: Any = inputs.values() if isinstance(inputs, dict) else inputs
    bad = inputs is not None and not (
        isinstance(inputs, dict | tuple | list) and all(isinstance(v, torch.Tensor) for v in values)
    )
    if not isinstance(module, nn.Module) or isinstance(module, torch.jit.ScriptModule) or bad:
        message = f"{file}:{name} gives no module, or inputs that are no tensors."
        hint = "Return an nn.Module, or (module, inputs) with a tuple of tensors."
        raise EngineError("usage", message, f"{file}:{name}", hint)
    if isinstance(inputs, dict):
        called_by_name(module, tuple(inputs))
    elif inputs is not None:
        named = [n for n, _ in arguments(module, optional=True)]
        named += [f"input_{i}" for i in range(len(named), len(inputs))]
        inputs = dict(zip(named, inputs, strict=False))
    return module, inputs


def arguments(module: nn.Module, optional: bool = False) -> tuple[tuple[str, str], ...]:
    """The (name, "Tensor") of each argument of forward() that can be given by its position.

    Args:
        optional: those that have a default, too.
    """
    kinds = inspect.signature(module.forward).parameters.values()
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(
        (p.name, "Tensor")
        for p in kinds
        if p.kind in ordered and (optional or p.default is p.empty)
    )


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # its name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
