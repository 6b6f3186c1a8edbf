"""Examples of the passes on the way to the gradient, and behind it."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relax.examples.building import Emit, program, var
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.training.root_grad_out import root_grad_out

_NORM = ("weight", "bias")


def _decompose_gelu(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    return Example(program([x], lambda emit: relax.op.nn.gelu(x)))


def _layer_norm(dtype: str) -> Example:
    x, *given = var("x", 2, 4, dtype=dtype), *(var(n, 4, dtype=dtype) for n in _NORM)
    return Example(
        program([x, *given], lambda emit: relax.op.nn.layer_norm(x, *given, axes=[-1]), _NORM)
    )


def _batch_norm(dtype: str) -> Example:
    x = var("x", 1, 2, 3, 3, dtype=dtype)
    names = (*_NORM, "mean", "variance")
    given = [var(name, 2, dtype=dtype) for name in names]

    def body(emit: Emit) -> Any:
        n = emit("n", relax.op.nn.batch_norm(x, *given, axis=1, training=False))
        return relax.TupleGetItem(n, 0)

    return Example(program([x, *given], body, names))


def _tanh(dtype: str) -> RelaxProgram:
    x = var("x", 2, 4, dtype=dtype)
    return program([x], lambda emit: relax.op.tanh(x))


def _root_grad_out(dtype: str) -> Example:
    return Example(_tanh(dtype), differs="the root comes in front of the result")


def _gradient(dtype: str) -> Example:
    return Example(
        root_grad_out(_tanh(dtype)),
        differs="the gradient takes the place of the root, behind the result",
    )


def _drop_zeros(dtype: str) -> Example:
    x = var("x", 2, 4, dtype=dtype)

    def body(emit: Emit) -> Any:
        z = emit("z", relax.op.zeros((2, 4), dtype))
        return relax.op.tanh(emit("a", relax.op.add(x, z)))

    return Example(program([x], body))


def _drop_ones(dtype: str) -> Example:
    x = var("x", 2, 4, dtype=dtype)

    def body(emit: Emit) -> Any:
        o = emit("o", relax.op.ones((2, 4), dtype))
        return relax.op.tanh(emit("a", relax.op.multiply(x, o)))

    return Example(program([x], body))


def _transpose_dedup(dtype: str) -> Example:
    x = var("x", 2, 4, dtype=dtype)

    def body(emit: Emit) -> Any:
        a = emit("a", relax.op.permute_dims(x, [1, 0]))
        return relax.op.tanh(emit("b", relax.op.permute_dims(a, [1, 0])))

    return Example(program([x], body))


def _transpose_of_matmul(dtype: str) -> Example:
    h, g = var("h", 2, 3, dtype=dtype), var("g", 2, 4, dtype=dtype)

    def body(emit: Emit) -> Any:
        t = emit("t", relax.op.permute_dims(h, [1, 0]))
        return relax.op.permute_dims(emit("p", relax.op.matmul(t, g)), [1, 0])

    return Example(program([h, g], body))


EXAMPLES: dict[str, Make] = {
    "decompose_training": _layer_norm,
    "decompose_gelu": _decompose_gelu,
    "decompose_layer_norm": _layer_norm,
    "decompose_batch_norm": _batch_norm,
    "root_grad_out": _root_grad_out,
    "gradient": _gradient,
    "drop_zeros": _drop_zeros,
    "drop_ones": _drop_ones,
    "transpose_dedup": _transpose_dedup,
    "transpose_of_matmul": _transpose_of_matmul,
}
