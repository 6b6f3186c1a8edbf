"""Examples of the passes that write operators, layouts, types and scales otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors, program


def simplify_expr(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    one, two = relay.const(1.0, new.dtype), relay.const(2.0, new.dtype)
    body = relay.multiply(relay.add(relay.add(x, one), two), one)
    return Example(program([x], relay.exp(body)))


def canonicalize_ops(new: Tensors) -> Example:
    x, bias = new.var("x", 1, 2, 4, 4), new.var("bias", 2)
    return Example(program([x, bias], relay.nn.bias_add(x, bias), ["bias"]))


def fold_explicit_padding(new: Tensors) -> Example:
    x, w = new.var("x", 1, 1, 8, 8), new.var("w", 2, 1, 3, 3)
    size = {"channels": 2, "kernel_size": (3, 3)}
    padded = relay.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return Example(program([x, w], relay.nn.conv2d(padded, w, **size), ["w"]))


def convert_layout(new: Tensors) -> Example:
    x, w = new.var("x", 1, 1, 8, 8), new.var("w", 2, 1, 3, 3)
    body = relay.nn.conv2d(x, w, channels=2, kernel_size=(3, 3))
    return Example(program([x, w], relay.nn.relu(body), ["w"]))


def alter_op_layout(new: Tensors) -> Example:
    x, w = new.var("x", 1, 8, 8, 8), new.constant("w", 8, 8, 3, 3)
    body = relay.nn.conv2d(x, w, channels=8, kernel_size=(3, 3))
    return Example(program([x], relay.nn.relu(body)))


def mixed_precision(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3, dtype="float32"), new.var("w", 4, 3, dtype="float32")
    return Example(
        program([x, w], relay.nn.softmax(relay.nn.dense(x, w)), ["w"]),
        differs="It is rounded to float16 on the way.",
    )


def fast_math(new: Tensors) -> Example:
    x = new.var("x", 2, 3, dtype="float32")
    return Example(
        program([x], relay.tanh(relay.erf(x))), differs="The quick forms are rounded otherwise."
    )


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


TWO = (("branches", "2"),)


def combine_dense(new: Tensors) -> Example:
    x, w1, w2 = new.var("x", 3, 4), new.var("w1", 5, 4), new.var("w2", 5, 4)
    body = relay.Tuple([relay.nn.dense(x, w1), relay.nn.dense(x, w2)])
    return Example(program([x, w1, w2], body, ["w1", "w2"]), TWO)


def combine_conv2d(new: Tensors) -> Example:
    x = new.var("x", 1, 4, 16, 16)
    w1, w2 = new.var("w1", 4, 4, 1, 1), new.var("w2", 4, 4, 1, 1)
    size = {"channels": 4, "kernel_size": (1, 1)}
    convolved = [relay.nn.conv2d(x, w, **size) for w in (w1, w2)]
    branches = [*convolved, relay.nn.max_pool2d(x)]
    return Example(program([x, w1, w2], relay.Tuple(branches), ["w1", "w2"]), TWO)


def qnn_legalize(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3, dtype="int8"), new.var("w", 4, 3, dtype="int8")
    zero, scale = relay.const(np.int32(3)), relay.const(np.float32(0.1))
    body = relay.qnn.op.dense(x, w, zero, zero, scale, scale, units=4)
    return Example(program([x, w], body))


def qnn_canonicalize(new: Tensors) -> Example:
    x = new.var("x", 2, 3, dtype="float32")
    scale, zero = relay.const(np.float32(0.5)), relay.const(np.int32(3))
    quantized = relay.qnn.op.quantize(x, scale, zero, out_dtype="int8")
    return Example(program([x], relay.qnn.op.dequantize(quantized, scale, zero)))
