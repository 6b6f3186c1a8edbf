"""Examples of the passes that every inference pipeline has."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relax.examples.building import Emit, constant, program, var


def _cse(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)

    def body(emit: Emit) -> Any:
        a = emit("a", relax.op.reshape(x, (6,)))
        b = emit("b", relax.op.reshape(x, (6,)))
        return relax.op.add(b, emit("c", relax.op.nn.relu(a)))

    return Example(program([x], body))


def _bind(dtype: str) -> Example:
    x, w = var("x", 2, 3, dtype=dtype), var("w", 3, 4, dtype=dtype)
    return Example(program([x, w], lambda emit: relax.op.matmul(x, w), ["w"]))


def _fold(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)

    def body(emit: Emit) -> Any:
        t = emit("t", relax.op.permute_dims(constant("w", 4, 3, dtype=dtype)))
        return relax.op.matmul(x, t)

    return Example(program([x], body))


def _combine_matmul(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    weights = [var(name, 3, 4, dtype=dtype) for name in "qkv"]

    def body(emit: Emit) -> Any:
        names = zip("abc", weights, strict=True)
        return relax.Tuple([emit(name, relax.op.matmul(x, w)) for name, w in names])

    return Example(program([x, *weights], body, ["q", "k", "v"]))


def _combine_conv2d(dtype: str) -> Example:
    x = var("x", 1, 3, 4, 4, dtype=dtype)
    narrow, wide = var("narrow", 2, 3, 1, 1, dtype=dtype), var("wide", 4, 3, 1, 1, dtype=dtype)

    def body(emit: Emit) -> Any:
        a, b = emit("a", relax.op.nn.conv2d(x, narrow)), emit("b", relax.op.nn.conv2d(x, wide))
        return relax.Tuple([a, b])

    return Example(program([x, narrow, wide], body, ["narrow", "wide"]))


def _decompose_inference(dtype: str) -> Example:
    x = var("x", 1, 2, 3, 3, dtype=dtype)
    names = ("weight", "bias", "mean", "var")
    given = [var(name, 2, dtype=dtype) for name in names]

    def body(emit: Emit) -> Any:
        n = emit("n", relax.op.nn.batch_norm(x, *given, axis=1, training=False))
        return relax.TupleGetItem(n, 0)

    return Example(program([x, *given], body, names))


def _remove_redundant_reshape(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)

    def body(emit: Emit) -> Any:
        a = emit("a", relax.op.reshape(x, (6,)))
        return relax.op.nn.relu(emit("b", relax.op.reshape(a, (3, 2))))

    return Example(program([x], body))


def _canonicalize(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)

    def body(emit: Emit) -> Any:
        a = emit("a", relax.op.reshape(x, (6,)))
        b = emit("b", a)
        return relax.op.add(b, emit("c", relax.op.nn.relu(a)))

    return Example(program([x], body))


def _dce(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)

    def body(emit: Emit) -> Any:
        emit("a", relax.op.exp(x))
        return relax.op.nn.relu(x)

    return Example(program([x], body))


EXAMPLES: dict[str, Make] = {
    "cse": _cse,
    "bind": _bind,
    "fold": _fold,
    "combine_matmul": _combine_matmul,
    "combine_conv2d": _combine_conv2d,
    "decompose_inference": _decompose_inference,
    "remove_redundant_reshape": _remove_redundant_reshape,
    "canonicalize": _canonicalize,
    "dce": _dce,
}
