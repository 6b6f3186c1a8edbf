"""Examples of the passes that every inference pipeline has."""

from __future__ import annotations

from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors, program


def cse(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    body = relay.add(relay.reshape(x, [6]), relay.nn.relu(relay.reshape(x, [6])))
    return Example(program([x], body))


def bind(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3), new.var("w", 4, 3)
    return Example(program([x, w], relay.nn.dense(x, w), ["w"]))


def fold(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    weight = relay.transpose(new.constant("w", 3, 4))
    return Example(program([x], relay.nn.dense(x, weight)))


def batch_matmul_nt(new: Tensors) -> Example:
    a, b = new.var("a", 2, 5, 3), new.var("b", 2, 3, 4)
    return Example(program([a, b], relay.nn.batch_matmul(a, b, transpose_b=False)))


def combine_batch_matmul(new: Tensors) -> Example:
    a = new.var("a", 1, 5, 3)
    rest = [new.var(name, 1, 4, 3) for name in "qkv"]
    products = [relay.nn.batch_matmul(a, b, transpose_b=True) for b in rest]
    return Example(program([a, *rest], relay.Tuple(products)))


def linear_to_dense(new: Tensors) -> Example:
    y, weight, bias = new.var("y", 2, 5, 3), new.var("weight", 4, 3), new.var("bias", 4)
    matrix = relay.reshape(relay.transpose(weight, [1, 0]), [1, 3, 4])
    right = relay.broadcast_to(matrix, [2, 3, 4])
    product = relay.nn.batch_matmul(y, right, transpose_b=False)
    body = relay.nn.bias_add(relay.reshape(product, [2, 5, 4]), bias, axis=-1)
    return Example(program([y, weight, bias], body, ["weight", "bias"]))


def drop_identities(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    body = relay.reshape(relay.reshape(relay.transpose(x, [0, 1]), [6]), [3, 2])
    return Example(program([x], relay.nn.relu(body)))


def simplify_inference(new: Tensors) -> Example:
    c, weight, bias = new.var("c", 2, 3), new.var("weight", 3), new.var("bias", 3)
    body = relay.nn.dropout(relay.nn.layer_norm(c, weight, bias), 0.1)
    return Example(program([c, weight, bias], body, ["weight", "bias"]))


def fuse(new: Tensors) -> Example:
    x, w, bias = new.var("x", 2, 3), new.var("w", 4, 3), new.var("bias", 4)
    body = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), bias))
    return Example(program([x, w, bias], body, ["w", "bias"]))
