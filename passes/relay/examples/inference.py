"""Examples of the passes that every inference pipeline has."""

from __future__ import annotations

from tvm import relay

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relay.examples.building import constant, program, var


def _cse(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    body = relay.add(relay.reshape(x, [6]), relay.nn.relu(relay.reshape(x, [6])))
    return Example(program([x], body))


def _bind(dtype: str) -> Example:
    x, w = var("x", 2, 3, dtype=dtype), var("w", 4, 3, dtype=dtype)
    return Example(program([x, w], relay.nn.dense(x, w), ["w"]))


def _fold(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    weight = relay.transpose(constant("w", 3, 4, dtype=dtype))
    return Example(program([x], relay.nn.dense(x, weight)))


def _batch_matmul_nt(dtype: str) -> Example:
    a, b = var("a", 2, 5, 3, dtype=dtype), var("b", 2, 3, 4, dtype=dtype)
    return Example(program([a, b], relay.nn.batch_matmul(a, b, transpose_b=False)))


def _combine_batch_matmul(dtype: str) -> Example:
    a = var("a", 1, 5, 3, dtype=dtype)
    rest = [var(name, 1, 4, 3, dtype=dtype) for name in "qkv"]
    products = [relay.nn.batch_matmul(a, b, transpose_b=True) for b in rest]
    return Example(program([a, *rest], relay.Tuple(products)))


def _linear_to_dense(dtype: str) -> Example:
    y, weight, bias = (
        var("y", 2, 5, 3, dtype=dtype),
        var("weight", 4, 3, dtype=dtype),
        var("bias", 4, dtype=dtype),
    )
    matrix = relay.reshape(relay.transpose(weight, [1, 0]), [1, 3, 4])
    right = relay.broadcast_to(matrix, [2, 3, 4])
    product = relay.nn.batch_matmul(y, right, transpose_b=False)
    body = relay.nn.bias_add(relay.reshape(product, [2, 5, 4]), bias, axis=-1)
    return Example(program([y, weight, bias], body, ["weight", "bias"]))


def _drop_identities(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    body = relay.reshape(relay.reshape(relay.transpose(x, [0, 1]), [6]), [3, 2])
    return Example(program([x], relay.nn.relu(body)))


def _simplify_inference(dtype: str) -> Example:
    c, weight, bias = (
        var("c", 2, 3, dtype=dtype),
        var("weight", 3, dtype=dtype),
        var("bias", 3, dtype=dtype),
    )
    body = relay.nn.dropout(relay.nn.layer_norm(c, weight, bias), 0.1)
    return Example(program([c, weight, bias], body, ["weight", "bias"]))


def _fuse(dtype: str) -> Example:
    x, w, bias = (
        var("x", 2, 3, dtype=dtype),
        var("w", 4, 3, dtype=dtype),
        var("bias", 4, dtype=dtype),
    )
    body = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), bias))
    return Example(program([x, w, bias], body, ["w", "bias"]))


EXAMPLES: dict[str, Make] = {
    "cse": _cse,
    "bind": _bind,
    "fold": _fold,
    "batch_matmul_nt": _batch_matmul_nt,
    "combine_batch_matmul": _combine_batch_matmul,
    "linear_to_dense": _linear_to_dense,
    "drop_identities": _drop_identities,
    "simplify_inference": _simplify_inference,
    "fuse": _fuse,
}
