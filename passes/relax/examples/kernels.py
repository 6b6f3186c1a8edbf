"""Examples of the passes on the way to kernels."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Emit, Tensors, after, program
from relascope.passes.relax.ir.program import RelaxProgram


def _two(new: Tensors) -> RelaxProgram:
    x = new.var("x", 2, 3)
    return program([x], lambda emit: relax.op.nn.relu(emit("a", relax.op.exp(x))))


def legalize(new: Tensors) -> Example:
    return Example(_two(new))


def annotate_pattern(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    return Example(after("legalize", program([x], lambda emit: relax.op.nn.relu(x))))


def fuse_ops(new: Tensors) -> Example:
    return Example(after("legalize|annotate_pattern", _two(new)))


def fuse_tir(new: Tensors) -> Example:
    return Example(after("legalize|annotate_pattern|fuse_ops", _two(new)))


def fuse_transpose_matmul(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3), new.var("w", 4, 3)

    def body(emit: Emit) -> Any:
        return relax.op.matmul(x, emit("t", relax.op.permute_dims(w)))

    return Example(program([x, w], body, ["w"]))
