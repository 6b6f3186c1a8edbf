"""Examples of the passes that write operators, layouts and types otherwise."""

from __future__ import annotations

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
