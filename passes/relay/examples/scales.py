"""Examples of the passes that fold scales into weights."""

from __future__ import annotations

from typing import Any

from tvm import relay

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relay.examples.building import constant, program, var


def _convolution(x: Any, dtype: str) -> Any:
    """Two channels of a 3 by 3 convolution over an image of one channel."""
    weight = constant("w", 2, 1, 3, 3, dtype=dtype)
    return relay.nn.conv2d(x, weight, padding=(1, 1), channels=2, kernel_size=(3, 3))


def _fold_scale_axis(dtype: str) -> Example:
    x = var("x", 1, 1, 10, 10, dtype=dtype)
    before = relay.multiply(x, constant("in", 1, 1, 1, dtype=dtype))
    body = relay.multiply(_convolution(before, dtype), constant("out", 2, 1, 1, dtype=dtype))
    return Example(program([x], body))


def _backward_fold_scale_axis(dtype: str) -> Example:
    x = var("x", 1, 1, 10, 10, dtype=dtype)
    scale = constant("out", 2, 1, 1, dtype=dtype)
    return Example(program([x], relay.multiply(_convolution(x, dtype), scale)))


def _forward_fold_scale_axis(dtype: str) -> Example:
    x = var("x", 1, 1, 10, 10, dtype=dtype)
    scaled = relay.multiply(x, constant("in", 1, 1, 1, dtype=dtype))
    return Example(program([x], _convolution(relay.nn.relu(scaled), dtype)))


EXAMPLES: dict[str, Make] = {
    "fold_scale_axis": _fold_scale_axis,
    "backward_fold_scale_axis": _backward_fold_scale_axis,
    "forward_fold_scale_axis": _forward_fold_scale_axis,
}
