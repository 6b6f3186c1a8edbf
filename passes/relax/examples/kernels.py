"""Examples of the passes on the way to kernels."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relax.builtin import annotate_pattern, fuse_ops, legalize
from relascope.passes.relax.examples.building import Emit, program, var
from relascope.passes.relax.ir.program import RelaxProgram


def _two(dtype: str) -> RelaxProgram:
    x = var("x", 2, 3, dtype=dtype)
    return program([x], lambda emit: relax.op.nn.relu(emit("a", relax.op.exp(x))))


def _annotate_pattern(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    return Example(legalize(program([x], lambda emit: relax.op.nn.relu(x))))


def _fuse_ops(dtype: str) -> Example:
    return Example(annotate_pattern(legalize(_two(dtype))))


def _fuse_tir(dtype: str) -> Example:
    return Example(fuse_ops(annotate_pattern(legalize(_two(dtype)))))


def _fuse_transpose_matmul(dtype: str) -> Example:
    x, w = var("x", 2, 3, dtype=dtype), var("w", 4, 3, dtype=dtype)

    def body(emit: Emit) -> Any:
        return relax.op.matmul(x, emit("t", relax.op.permute_dims(w)))

    return Example(program([x, w], body, ["w"]))


EXAMPLES: dict[str, Make] = {
    "legalize": lambda dtype: Example(_two(dtype)),
    "annotate_pattern": _annotate_pattern,
    "fuse_ops": _fuse_ops,
    "fuse_tir": _fuse_tir,
    "fuse_transpose_matmul": _fuse_transpose_matmul,
}
