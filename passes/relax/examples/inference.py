"""Examples of the passes that every inference pipeline has."""

from tvm.relax import Tuple, op

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Tensors


def cse(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    a, b = new.bind("a", op.reshape(x, (6,))), new.bind("b", op.reshape(x, (6,)))
    return new.example(op.add(b, new.bind("c", op.nn.relu(a))))


def bind(new: Tensors) -> Example:
    return new.example(op.matmul(new.var("x", 2, 3), new.weight("w", 3, 4)))


def fold(new: Tensors) -> Example:
    t = new.bind("t", op.permute_dims(new.constant("w", 4, 3)))
    return new.example(op.matmul(new.var("x", 2, 3), t))


def combine_matmul(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    pairs = zip("abc", [new.weight(name, 3, 4) for name in "qkv"], strict=True)
    return new.example(Tuple([new.bind(name, op.matmul(x, w)) for name, w in pairs]))


def remove_redundant_reshape(new: Tensors) -> Example:
    a = new.bind("a", op.reshape(new.var("x", 2, 3), (6,)))
    return new.example(op.nn.relu(new.bind("b", op.reshape(a, (3, 2)))))


def canonicalize(new: Tensors) -> Example:
    a = new.bind("a", op.reshape(new.var("x", 2, 3), (6,)))
    return new.example(op.add(new.bind("b", a), new.bind("c", op.nn.relu(a))))


def dce(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    new.bind("a", op.exp(x))
    return new.example(op.nn.relu(x))
