"""Results as JSON values."""

import math
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.graph import Graph


def plain(value: Any) -> Any:
    """A result as JSON values: dataclasses to dicts, graphs and errors by their own methods.
    Numbers that JSON cannot carry (infinities and NaN) become strings."""
    if isinstance(value, Graph | EngineError):
        return value.to_json()
    if hasattr(value, "__dataclass_fields__"):
        return {n: plain(getattr(value, n)) for n in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
