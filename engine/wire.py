"""What an engine sends, as bytes: plain values, and dataclasses, enumerations and errors of ours.

An engine may have opened an untrusted file, so its messages are not trusted either. `loads` finds
no classes, only functions that make ours from their fields.
"""

import importlib
import io
import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from relascope.core.errors import EngineError

MOST_BYTES = 512 << 20
"""An engine that answers with more is ended: the graph of a large model has some tens of MiB."""

_PROTOCOL = "relascope.engine.protocol"
_MODULES = (
    "relascope.core.errors",
    "relascope.core.graph",
    "relascope.engine.limits",
    "relascope.passes.pipeline",
    "relascope.passes.search.reduce",
)


def dumps(value: Any) -> bytes:
    """A value as bytes; dataclasses by their fields."""
    data = io.BytesIO()
    _Pickler(data).dump(value)
    return data.getvalue()


def loads(data: bytes) -> Any:
    """The value that `dumps` was given. Raises pickle.UnpicklingError for a value of a type that is
    not plain, and other exceptions for bytes that are not a pickle."""
    return _Unpickler(io.BytesIO(data)).load()


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else None


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        kind: Any = type(value)
        names = _names(kind)
        if names is None:
            return NotImplemented
        return kind, tuple(getattr(value, name) for name in names)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        kind = _plain(module, name)
        # A function that nobody else has: setting attributes of it changes nothing.
        return lambda *values: kind(*values)


@cache
def _plain(module: str, name: str) -> Callable[..., Any]:
    if module in _MODULES or module.rpartition(".")[0] == _PROTOCOL:
        kind: Any = vars(importlib.import_module(module)).get(name)
        own = isinstance(kind, type) and kind.__module__ == module
        if own and (is_dataclass(kind) or issubclass(kind, Enum | EngineError)):
            return kind
    raise pickle.UnpicklingError(f"it contains a {module}.{name}")
