"""Examples of the passes on the way to the gradient, and behind it."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Emit, Tensors, after, program
from relascope.passes.relax.ir.program import RelaxProgram

_NORM = ("weight", "bias")


def decompose_gelu(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    return Example(program([x], lambda emit: relax.op.nn.gelu(x)))


def decompose_layer_norm(new: Tensors) -> Example:
    x, *given = new.var("x", 2, 4), *(new.var(n, 4) for n in _NORM)
    return Example(
        program([x, *given], lambda emit: relax.op.nn.layer_norm(x, *given, axes=[-1]), _NORM)
    )


def decompose_batch_norm(new: Tensors) -> Example:
    x = new.var("x", 1, 2, 3, 3)
    names = (*_NORM, "mean", "variance")
    given = [new.var(name, 2) for name in names]

    def body(emit: Emit) -> Any:
        n = emit("n", relax.op.nn.batch_norm(x, *given, axis=1, training=False))
        return relax.TupleGetItem(n, 0)

    return Example(program([x, *given], body, names))


def _tanh(new: Tensors) -> RelaxProgram:
    x = new.var("x", 2, 4)
    return program([x], lambda emit: relax.op.tanh(x))


def root_grad_out(new: Tensors) -> Example:
    return Example(_tanh(new), differs="the root comes in front of the result")


def gradient(new: Tensors) -> Example:
    return Example(
        after("root_grad_out", _tanh(new)),
        differs="the gradient takes the place of the root, behind the result",
    )


def drop_zeros(new: Tensors) -> Example:
    x = new.var("x", 2, 4)

    def body(emit: Emit) -> Any:
        z = emit("z", relax.op.zeros((2, 4), new.dtype))
        return relax.op.tanh(emit("a", relax.op.add(x, z)))

    return Example(program([x], body))


def drop_ones(new: Tensors) -> Example:
    x = new.var("x", 2, 4)

    def body(emit: Emit) -> Any:
        o = emit("o", relax.op.ones((2, 4), new.dtype))
        return relax.op.tanh(emit("a", relax.op.multiply(x, o)))

    return Example(program([x], body))


def transpose_dedup(new: Tensors) -> Example:
    x = new.var("x", 2, 4)

    def body(emit: Emit) -> Any:
        a = emit("a", relax.op.permute_dims(x, [1, 0]))
        return relax.op.tanh(emit("b", relax.op.permute_dims(a, [1, 0])))

    return Example(program([x], body))


def transpose_of_matmul(new: Tensors) -> Example:
    h, g = new.var("h", 2, 3), new.var("g", 2, 4)

    def body(emit: Emit) -> Any:
        t = emit("t", relax.op.permute_dims(h, [1, 0]))
        return relax.op.permute_dims(emit("p", relax.op.matmul(t, g)), [1, 0])

    return Example(program([h, g], body))


decompose_training = decompose_layer_norm
