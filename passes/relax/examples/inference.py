"""Examples of the passes that every inference pipeline has."""

from __future__ import annotations

from typing import Any

from tvm import relax

from passes.example import Example, Make
from passes.relax.examples.building import Emit, constant, program, var


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


EXAMPLES: dict[str, Make] = {"cse": _cse, "bind": _bind, "fold": _fold}
