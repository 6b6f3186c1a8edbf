"""Examples of the passes that every inference pipeline has."""

from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors


def cse(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    return new.example(relay.add(relay.reshape(x, [6]), relay.nn.relu(relay.reshape(x, [6]))))


def bind(new: Tensors) -> Example:
    return new.example(relay.nn.dense(new.var("x", 2, 3), new.weight("w", 4, 3)))


def fold(new: Tensors) -> Example:
    weight = relay.transpose(new.constant("w", 3, 4))
    return new.example(relay.nn.dense(new.var("x", 2, 3), weight))


def batch_matmul_nt(new: Tensors) -> Example:
    a, b = new.var("a", 2, 5, 3), new.var("b", 2, 3, 4)
    return new.example(relay.nn.batch_matmul(a, b, transpose_b=False))


def combine_batch_matmul(new: Tensors) -> Example:
    a, rest = new.var("a", 1, 5, 3), [new.var(name, 1, 4, 3) for name in "qkv"]
    products = [relay.nn.batch_matmul(a, b, transpose_b=True) for b in rest]
    return new.example(relay.Tuple(products))


def linear_to_dense(new: Tensors) -> Example:
    y, weight, bias = new.var("y", 2, 5, 3), new.weight("weight", 4, 3), new.weight("bias", 4)
    matrix = relay.reshape(relay.transpose(weight, [1, 0]), [1, 3, 4])
    product = relay.nn.batch_matmul(y, relay.broadcast_to(matrix, [2, 3, 4]), transpose_b=False)
    return new.example(relay.nn.bias_add(relay.reshape(product, [2, 5, 4]), bias, axis=-1))


def drop_identities(new: Tensors) -> Example:
    x = relay.transpose(new.var("x", 2, 3), [0, 1])
    return new.example(relay.nn.relu(relay.reshape(relay.reshape(x, [6]), [3, 2])))


def simplify_inference(new: Tensors) -> Example:
    c, weight, bias = new.var("c", 2, 3), new.weight("weight", 3), new.weight("bias", 3)
    return new.example(relay.nn.dropout(relay.nn.layer_norm(c, weight, bias), 0.1))


def fuse(new: Tensors) -> Example:
    x, w, bias = new.var("x", 2, 3), new.weight("w", 4, 3), new.weight("bias", 4)
    return new.example(relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), bias)))
