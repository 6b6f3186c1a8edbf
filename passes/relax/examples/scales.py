"""Examples of the passes that fold scales into weights."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relax.examples.building import Emit, constant, program, var


def _backward(dtype: str) -> Example:
    x = var("x", 1, 3, 4, 4, dtype=dtype)
    w, b, s = var("w", 2, 3, 3, 3, dtype=dtype), var("b", 2, 1, 1, dtype=dtype), (2, 1, 1)

    def body(emit: Emit) -> Any:
        c = emit("c", relax.op.nn.conv2d(x, w))
        r = emit("r", relax.op.nn.relu(emit("d", relax.op.add(c, b))))
        return relax.op.multiply(r, constant("s", *s, dtype=dtype))

    return Example(program([x, w, b], body, ["w", "b"]))


def _forward(dtype: str) -> Example:
    x, w = var("x", 1, 3, 4, 4, dtype=dtype), var("w", 2, 3, 3, 3, dtype=dtype)

    def body(emit: Emit) -> Any:
        s = emit("s", relax.op.multiply(x, constant("s", 3, 1, 1, dtype=dtype)))
        return relax.op.nn.conv2d(emit("r", relax.op.nn.relu(s)), w)

    return Example(program([x, w], body, ["w"]))


def _both(dtype: str) -> Example:
    x = var("x", 1, 3, 4, 4, dtype=dtype)

    def body(emit: Emit) -> Any:
        s = emit("s", relax.op.multiply(x, constant("s", 3, 1, 1, dtype=dtype)))
        c = emit("c", relax.op.nn.conv2d(s, constant("w", 2, 3, 3, 3, dtype=dtype)))
        return relax.op.divide(c, constant("t", 2, 1, 1, dtype=dtype))

    return Example(program([x], body))


EXAMPLES: dict[str, Make] = {
    "backward_fold_scale_axis": _backward,
    "forward_fold_scale_axis": _forward,
    "fold_scale_axis": _both,
}
