"""Examples of the passes that fold scales into weights."""

from __future__ import annotations

from typing import Any

from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors, program


def _convolution(x: Any, new: Tensors) -> Any:
    """Two channels of a 3 by 3 convolution over an image of one channel."""
    weight = new.constant("w", 2, 1, 3, 3)
    return relay.nn.conv2d(x, weight, padding=(1, 1), channels=2, kernel_size=(3, 3))


def fold_scale_axis(new: Tensors) -> Example:
    x = new.var("x", 1, 1, 10, 10)
    before = relay.multiply(x, new.constant("in", 1, 1, 1))
    body = relay.multiply(_convolution(before, new), new.constant("out", 2, 1, 1))
    return Example(program([x], body))


def backward_fold_scale_axis(new: Tensors) -> Example:
    x = new.var("x", 1, 1, 10, 10)
    scale = new.constant("out", 2, 1, 1)
    return Example(program([x], relay.multiply(_convolution(x, new), scale)))


def forward_fold_scale_axis(new: Tensors) -> Example:
    x = new.var("x", 1, 1, 10, 10)
    scaled = relay.multiply(x, new.constant("in", 1, 1, 1))
    return Example(program([x], _convolution(relay.nn.relu(scaled), new)))
