"""Examples of passes that write the same in another form, order, layout or type, or as kernels."""

from __future__ import annotations

from typing import Any

from tvm import relax

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Emit, Tensors, after, program
from relascope.passes.relax.ir.program import RelaxProgram


def _adapter(new: Tensors, body: Any) -> Example:
    """A linear layer and a low-rank change of its weight."""
    x, w = new.var("x", 2, 8), new.var("w", 8, 8)
    a, b = new.var("a", 8, 2), new.var("b", 2, 8)
    return Example(program([x, w, a, b], lambda emit: body(emit, x, w, a, b), ["w", "a", "b"]))


def expand_matmul_of_sum(new: Tensors) -> Example:
    def body(emit: Emit, x: Any, w: Any, a: Any, b: Any) -> Any:
        change = emit("change", relax.op.matmul(a, b))
        return relax.op.matmul(x, emit("sum", relax.op.add(w, change)))

    return _adapter(new, body)


def adjust_matmul_order(new: Tensors) -> Example:
    def body(emit: Emit, x: Any, w: Any, a: Any, b: Any) -> Any:
        p = emit("p", relax.op.matmul(x, w))
        change = emit("change", relax.op.matmul(a, b))
        return relax.op.add(p, emit("q", relax.op.matmul(x, change)))

    return _adapter(new, body)


def reorder_permute_dims_after_concat(new: Tensors) -> Example:
    x, q, k = new.var("x", 2, 8), new.var("q", 4, 8), new.var("k", 4, 8)

    def body(emit: Emit) -> Any:
        a, b = emit("a", relax.op.permute_dims(q)), emit("b", relax.op.permute_dims(k))
        return relax.op.matmul(x, emit("c", relax.op.concat([a, b], axis=1)))

    return Example(program([x, q, k], body, ["q", "k"]))


def topological_sort(new: Tensors) -> Example:
    x = new.var("x", 2, 3)

    def body(emit: Emit) -> Any:
        a, b = emit("a", relax.op.exp(x)), emit("b", relax.op.sin(x))
        c, d = emit("c", relax.op.tanh(a)), emit("d", relax.op.cos(b))
        return relax.op.add(c, d)

    return Example(program([x], body))


def fast_math(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    return Example(
        program([x], lambda emit: relax.op.tanh(x)), differs="in float32 by the approximation"
    )


def convert_layout(new: Tensors) -> Example:
    x, w = new.var("x", 1, 3, 4, 4), new.var("w", 2, 3, 3, 3)
    return Example(
        program([x, w], lambda emit: relax.op.nn.relu(emit("c", relax.op.nn.conv2d(x, w))), ["w"])
    )


def mixed_precision(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3), new.var("w", 3, 4)
    return Example(
        program([x, w], lambda emit: relax.op.nn.relu(emit("a", relax.op.matmul(x, w))), ["w"]),
        differs="by the rounding to float16",
    )


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
