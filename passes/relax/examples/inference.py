"""Examples of the passes that every inference pipeline has."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Emit, Tensors, program


def cse(new: Tensors) -> Example:
    x = new.var("x", 2, 3)

    def body(emit: Emit) -> Any:
        a = emit("a", relax.op.reshape(x, (6,)))
        b = emit("b", relax.op.reshape(x, (6,)))
        return relax.op.add(b, emit("c", relax.op.nn.relu(a)))

    return Example(program([x], body))


def bind(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3), new.var("w", 3, 4)
    return Example(program([x, w], lambda emit: relax.op.matmul(x, w), ["w"]))


def fold(new: Tensors) -> Example:
    x = new.var("x", 2, 3)

    def body(emit: Emit) -> Any:
        t = emit("t", relax.op.permute_dims(new.constant("w", 4, 3)))
        return relax.op.matmul(x, t)

    return Example(program([x], body))


def combine_matmul(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    weights = [new.var(name, 3, 4) for name in "qkv"]

    def body(emit: Emit) -> Any:
        names = zip("abc", weights, strict=True)
        return relax.Tuple([emit(name, relax.op.matmul(x, w)) for name, w in names])

    return Example(program([x, *weights], body, ["q", "k", "v"]))


def combine_conv2d(new: Tensors) -> Example:
    x = new.var("x", 1, 3, 4, 4)
    narrow, wide = new.var("narrow", 2, 3, 1, 1), new.var("wide", 4, 3, 1, 1)

    def body(emit: Emit) -> Any:
        a, b = emit("a", relax.op.nn.conv2d(x, narrow)), emit("b", relax.op.nn.conv2d(x, wide))
        return relax.Tuple([a, b])

    return Example(program([x, narrow, wide], body, ["narrow", "wide"]))


def decompose_inference(new: Tensors) -> Example:
    x = new.var("x", 1, 2, 3, 3)
    names = ("weight", "bias", "mean", "var")
    given = [new.var(name, 2) for name in names]

    def body(emit: Emit) -> Any:
        n = emit("n", relax.op.nn.batch_norm(x, *given, axis=1, training=False))
        return relax.TupleGetItem(n, 0)

    return Example(program([x, *given], body, names))


def remove_redundant_reshape(new: Tensors) -> Example:
    x = new.var("x", 2, 3)

    def body(emit: Emit) -> Any:
        a = emit("a", relax.op.reshape(x, (6,)))
        return relax.op.nn.relu(emit("b", relax.op.reshape(a, (3, 2))))

    return Example(program([x], body))


def canonicalize(new: Tensors) -> Example:
    x = new.var("x", 2, 3)

    def body(emit: Emit) -> Any:
        a = emit("a", relax.op.reshape(x, (6,)))
        b = emit("b", a)
        return relax.op.add(b, emit("c", relax.op.nn.relu(a)))

    return Example(program([x], body))


def dce(new: Tensors) -> Example:
    x = new.var("x", 2, 3)

    def body(emit: Emit) -> Any:
        emit("a", relax.op.exp(x))
        return relax.op.nn.relu(x)

    return Example(program([x], body))
