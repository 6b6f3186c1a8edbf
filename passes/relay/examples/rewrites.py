"""Examples of the passes that write operators, layouts and types otherwise."""

from __future__ import annotations

from tvm import relay

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relay.examples.building import constant, program, var


def _simplify_expr(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    one, two = relay.const(1.0, dtype), relay.const(2.0, dtype)
    body = relay.multiply(relay.add(relay.add(x, one), two), one)
    return Example(program([x], relay.exp(body)))


def _canonicalize_ops(dtype: str) -> Example:
    x, bias = var("x", 1, 2, 4, 4, dtype=dtype), var("bias", 2, dtype=dtype)
    return Example(program([x, bias], relay.nn.bias_add(x, bias), ["bias"]))


def _fold_explicit_padding(dtype: str) -> Example:
    x, w = var("x", 1, 1, 8, 8, dtype=dtype), var("w", 2, 1, 3, 3, dtype=dtype)
    size = {"channels": 2, "kernel_size": (3, 3)}
    padded = relay.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return Example(program([x, w], relay.nn.conv2d(padded, w, **size), ["w"]))


def _convert_layout(dtype: str) -> Example:
    x, w = var("x", 1, 1, 8, 8, dtype=dtype), var("w", 2, 1, 3, 3, dtype=dtype)
    body = relay.nn.conv2d(x, w, channels=2, kernel_size=(3, 3))
    return Example(program([x, w], relay.nn.relu(body), ["w"]))


def _alter_op_layout(dtype: str) -> Example:
    x, w = var("x", 1, 8, 8, 8, dtype=dtype), constant("w", 8, 8, 3, 3, dtype=dtype)
    body = relay.nn.conv2d(x, w, channels=8, kernel_size=(3, 3))
    return Example(program([x], relay.nn.relu(body)))


def _mixed_precision(dtype: str) -> Example:
    x, w = var("x", 2, 3, dtype="float32"), var("w", 4, 3, dtype="float32")
    return Example(
        program([x, w], relay.nn.softmax(relay.nn.dense(x, w)), ["w"]),
        differs="It is rounded to float16 on the way.",
    )


def _fast_math(dtype: str) -> Example:
    x = var("x", 2, 3, dtype="float32")
    return Example(
        program([x], relay.tanh(relay.erf(x))), differs="The quick forms are rounded otherwise."
    )


EXAMPLES: dict[str, Make] = {
    "simplify_expr": _simplify_expr,
    "canonicalize_ops": _canonicalize_ops,
    "fold_explicit_padding": _fold_explicit_padding,
    "convert_layout": _convert_layout,
    "alter_op_layout": _alter_op_layout,
    "mixed_precision": _mixed_precision,
    "fast_math": _fast_math,
}
