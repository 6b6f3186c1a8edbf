"""Side effects of a module's forward(), which a program does not have."""

import inspect
from collections.abc import Collection
from typing import Any, NoReturn

import torch

from relascope.core.errors import EngineError
from relascope.engine.pytorch.nested import opened

_PLAIN = (torch.Tensor, bool, int, float, str, type(None))


class Effects:
    """Compares a module before and after one forward(); `new` has the buffers that it replaces, by
    name."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self.new: dict[str, torch.Tensor] = {}

    def start(self, call: tuple[Any, ...]) -> None:
        self._buffers = dict(self._module.named_buffers())
        self._before = {**dict(self._module.named_parameters()), **self._buffers}
        self._versions = {n: t._version for n, t in self._before.items()}
        self._inputs = _versions(self._module, call)
        self._attributes = _attributes(self._module)
        for name, value in self._attributes.items():
            if isinstance(value, torch.Tensor) and value.requires_grad and "." not in name:
                self._refuse(f"A hook computes {name}, so it is not a parameter.", name)

    def replaced(self, call: tuple[Any, ...]) -> dict[str, torch.Tensor]:
        """Record what forward() did, right after it. Refuses (kind "operator") changes of anything
        but buffers."""
        inputs = _versions(self._module, call)
        for name in dict.fromkeys((*self._inputs, *inputs)):
            if inputs.get(name) != self._inputs.get(name):
                message = f"forward() changes its input {name} in place, which TVM cannot do."
                self._refuse(message, name)
        attributes = _attributes(self._module)
        for name in dict.fromkeys((*self._attributes, *attributes)):
            old, value = self._attributes.get(name, self), attributes.get(name, self)
            if old is not value and (isinstance(old, torch.Tensor) or old != value):
                self._refuse(f"forward() sets {name}, which TVM cannot do.", name)
        after = dict(self._module.named_buffers())
        for name in dict.fromkeys((*self._buffers, *after)):
            old, value = self._buffers.get(name), after.get(name)
            if old is value:
                continue
            if old is None or value is None or (old.shape, old.dtype) != (value.shape, value.dtype):
                self._refuse(f"forward() adds {name}, removes it or changes its type.", name)
            if value.requires_grad:
                message = f"forward() sets {name} to a tensor that requires a gradient."
                self._refuse(message, name, "Assign tensor.detach() instead.")
            self.new[name] = value
        self._changed = [n for n, t in self._before.items() if t._version != self._versions[n]]
        return self.new

    def check(self, updates: Collection[str]) -> None:
        """Refuse (kind "operator") in-place changes that the program does not return."""
        for name in self._changed:
            if name not in updates and name not in self.new:
                self._refuse(f"forward() changes {name} in place, which TVM cannot do.", name)

    def _refuse(self, message: str, where: str, hint: str = "") -> NoReturn:
        raise EngineError("operator", message, where, hint or "Do it outside the module.")


def _versions(module: torch.nn.Module, call: tuple[Any, ...]) -> dict[str, tuple[int, int]]:
    """The id of each tensor that a call gets, by name, and how often it has changed."""
    bound = inspect.signature(module.forward).bind(*call[0], **call[1]).arguments
    leaves = opened(dict(bound))[0]
    return {n: (id(v), v._version) for n, v in leaves if isinstance(v, torch.Tensor)}


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Plain values of all modules' attributes, except those that hooks set on submodules."""
    return {
        f"{path}.{name}" if path else name: value
        for path, inner in module.named_modules()
        for name, value in vars(inner).items()
        if isinstance(value, _PLAIN) and not (path and inner._forward_pre_hooks)
    }
