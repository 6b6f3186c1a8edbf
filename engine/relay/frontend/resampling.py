"""Resizing by a factor that is no ratio of sizes, which TVM's operators do not have."""

import math
from typing import Any

import numpy as np
from tvm import relay

Steps = list[tuple[int, float]]
"""For each axis its new length, and how far apart in the old axis the new places are."""

_ALPHA = -0.75  # of PyTorch's cubic interpolation


def steps_of(inputs: Any, method: str, lengths: list[int]) -> Steps | None:
    """The steps of one of ATen's upsamplings, or None where they are ratios of the sizes.

    Args:
        inputs: of the operator: data, new sizes or None, whether corners are aligned (not for
            "nearest_neighbor"), then the factors, in a list or one by one.
    """
    nearest = method == "nearest_neighbor"
    last = inputs[2 if nearest else 3 :]
    factors = last[0] if len(last) == 1 else last
    aligned = not nearest and inputs[2]
    if aligned or not factors or any(f is None for f in factors):
        return None
    pairs = list(zip(lengths, factors, strict=True))
    if all(n * f == math.floor(n * f) for n, f in pairs):
        return None
    sizes = inputs[1] or [math.floor(n * f) for n, f in pairs]
    return [(int(s), 1 / float(f)) for s, f in zip(sizes, factors, strict=True)]


def resampled(data: Any, dtype: str, method: str, lengths: list[int], steps: Steps) -> Any:
    """A tensor of (batch, channels, *lengths), each axis a weighted sum of what is taken of it."""
    for axis, (length, (size, step)) in enumerate(zip(lengths, steps, strict=True), 2):
        across = [size] + [1] * (len(lengths) + 1 - axis)
        parts = []
        for places, weights in _taps(method, length, size, np.float32(step)):
            taken = relay.take(data, relay.const(places.clip(0, length - 1), "int64"), axis)
            if weights is not None:
                taken = taken * relay.const(weights.reshape(across), dtype)
            parts.append(taken)
        data = parts[0]
        for part in parts[1:]:
            data = data + part
    return data


def _taps(method: str, length: int, size: int, step: Any) -> list[tuple[Any, Any]]:
    """Which places of an axis are summed for each new one, and with which weights (None for 1)."""
    new = np.arange(size, dtype=np.float32)
    if method == "nearest_neighbor":
        return [(np.floor(new * step).astype("int64"), None)]
    real = step * (new + np.float32(0.5)) - np.float32(0.5)
    if method == "linear":
        real = real.clip(0, length - 1)
        first = np.floor(real).astype("int64")
        return [(first, 1 - (real - first)), (first + 1, real - first)]
    first = np.floor(real).astype("int64")
    part = real - first
    far, near = ([d + part, d + 1 - part] for d in (1, 0))
    outer = [((_ALPHA * d - 5 * _ALPHA) * d + 8 * _ALPHA) * d - 4 * _ALPHA for d in far]
    inner = [((_ALPHA + 2) * d - (_ALPHA + 3)) * d * d + 1 for d in near]
    weights = (outer[0], inner[0], inner[1], outer[1])
    return [(first + i - 1, w) for i, w in enumerate(weights)]
