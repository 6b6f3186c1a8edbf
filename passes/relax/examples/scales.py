"""Examples of the passes that fold scales into weights."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Emit, Tensors, program


def backward_fold_scale_axis(new: Tensors) -> Example:
    x = new.var("x", 1, 3, 4, 4)
    w, b, s = new.var("w", 2, 3, 3, 3), new.var("b", 2, 1, 1), (2, 1, 1)

    def body(emit: Emit) -> Any:
        c = emit("c", relax.op.nn.conv2d(x, w))
        r = emit("r", relax.op.nn.relu(emit("d", relax.op.add(c, b))))
        return relax.op.multiply(r, new.constant("s", *s))

    return Example(program([x, w, b], body, ["w", "b"]))


def forward_fold_scale_axis(new: Tensors) -> Example:
    x, w = new.var("x", 1, 3, 4, 4), new.var("w", 2, 3, 3, 3)

    def body(emit: Emit) -> Any:
        s = emit("s", relax.op.multiply(x, new.constant("s", 3, 1, 1)))
        return relax.op.nn.conv2d(emit("r", relax.op.nn.relu(s)), w)

    return Example(program([x, w], body, ["w"]))


def fold_scale_axis(new: Tensors) -> Example:
    x = new.var("x", 1, 3, 4, 4)

    def body(emit: Emit) -> Any:
        s = emit("s", relax.op.multiply(x, new.constant("s", 3, 1, 1)))
        c = emit("c", relax.op.nn.conv2d(s, new.constant("w", 2, 3, 3, 3)))
        return relax.op.divide(c, new.constant("t", 2, 1, 1))

    return Example(program([x], body))
