"""Tensors in order for a forward() that takes them by name, and a tuple of what it returns."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree


def called_by_name(module: nn.Module, names: tuple[str, ...]) -> None:
    """Have a module take tensors in this order, and return a tuple of the tensors that it makes.

    Hooks do both, so that the modules keep their paths.
    """

    def given(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (), {**dict(zip(names, args, strict=True)), **kwargs}

    def flat(module: nn.Module, args: Any, output: Any) -> Any:
        return tuple(t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor))

    module.register_forward_pre_hook(given, prepend=True, with_kwargs=True)
    module.register_forward_hook(flat)
