"""Examples of passes that write the same in another form, order, layout or type."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relax.examples.building import Emit, program, var


def _adapter(dtype: str, body: Any) -> Example:
    """A linear layer and a low-rank change of its weight."""
    x, w = var("x", 2, 8, dtype=dtype), var("w", 8, 8, dtype=dtype)
    a, b = var("a", 8, 2, dtype=dtype), var("b", 2, 8, dtype=dtype)
    return Example(program([x, w, a, b], lambda emit: body(emit, x, w, a, b), ["w", "a", "b"]))


def _expand_matmul_of_sum(dtype: str) -> Example:
    def body(emit: Emit, x: Any, w: Any, a: Any, b: Any) -> Any:
        change = emit("change", relax.op.matmul(a, b))
        return relax.op.matmul(x, emit("sum", relax.op.add(w, change)))

    return _adapter(dtype, body)


def _adjust_matmul_order(dtype: str) -> Example:
    def body(emit: Emit, x: Any, w: Any, a: Any, b: Any) -> Any:
        p = emit("p", relax.op.matmul(x, w))
        change = emit("change", relax.op.matmul(a, b))
        return relax.op.add(p, emit("q", relax.op.matmul(x, change)))

    return _adapter(dtype, body)


def _reorder(dtype: str) -> Example:
    x, q, k = (
        var(n, *size, dtype=dtype) for n, size in (("x", (2, 8)), ("q", (4, 8)), ("k", (4, 8)))
    )

    def body(emit: Emit) -> Any:
        a, b = emit("a", relax.op.permute_dims(q)), emit("b", relax.op.permute_dims(k))
        return relax.op.matmul(x, emit("c", relax.op.concat([a, b], axis=1)))

    return Example(program([x, q, k], body, ["q", "k"]))


def _topological_sort(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)

    def body(emit: Emit) -> Any:
        a, b = emit("a", relax.op.exp(x)), emit("b", relax.op.sin(x))
        c, d = emit("c", relax.op.tanh(a)), emit("d", relax.op.cos(b))
        return relax.op.add(c, d)

    return Example(program([x], body))


def _fast_math(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    return Example(
        program([x], lambda emit: relax.op.tanh(x)), differs="in float32 by the approximation"
    )


def _convert_layout(dtype: str) -> Example:
    x, w = var("x", 1, 3, 4, 4, dtype=dtype), var("w", 2, 3, 3, 3, dtype=dtype)
    return Example(
        program([x, w], lambda emit: relax.op.nn.relu(emit("c", relax.op.nn.conv2d(x, w))), ["w"])
    )


def _mixed_precision(dtype: str) -> Example:
    x, w = var("x", 2, 3, dtype=dtype), var("w", 3, 4, dtype=dtype)
    return Example(
        program([x, w], lambda emit: relax.op.nn.relu(emit("a", relax.op.matmul(x, w))), ["w"]),
        differs="by the rounding to float16",
    )


EXAMPLES: dict[str, Make] = {
    "expand_matmul_of_sum": _expand_matmul_of_sum,
    "adjust_matmul_order": _adjust_matmul_order,
    "reorder_permute_dims_after_concat": _reorder,
    "topological_sort": _topological_sort,
    "fast_math": _fast_math,
    "convert_layout": _convert_layout,
    "mixed_precision": _mixed_precision,
}
