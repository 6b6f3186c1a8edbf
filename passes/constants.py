"""Constant folding with numpy, of operators whose result has the same bits in every library."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

EXACT: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "divide": np.divide,
    "multiply": np.multiply,
    "negative": np.negative,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
}
"""IEEE arithmetic that is rounded once, by the name that operators of both IRs have."""

_FLOATS = ("float32", "float64")
_CASTS = {("float32", "float64"), ("float64", "float32"), ("float32", "float16")}
_CASTS |= {("float32", "bfloat16"), ("bfloat16", "float32"), ("float16", "float32")}


def computed(op: str, dtype: str, operands: list[Array]) -> Array:
    """The result of an operator of `EXACT`; NaN and infinity raise no warning, as in TVM."""
    with np.errstate(all="ignore"):
        return np.asarray(EXACT[op](*operands), dtype)


def is_exact(op: str, dtype: str) -> bool:
    """Whether `computed` has the bits that TVM gives."""
    return op in EXACT and dtype in _FLOATS


def number_of(values: Array) -> float | None:
    """The number that all elements of an array equal, or None."""
    if not values.size or values.dtype.kind not in "fiu":
        return None
    return float(values.flat[0]) if (values == values.flat[0]).all() else None


def cast(value: Array, dtype: str) -> Array | None:
    """A value in another type, or None where libraries may round differently."""
    with np.errstate(over="ignore"):
        return value.astype(dtype) if (str(value.dtype), dtype) in _CASTS else None
