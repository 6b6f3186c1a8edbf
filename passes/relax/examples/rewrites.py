"""Examples of passes that write the same in another form, order, layout or type, or as kernels."""

from typing import Any

import tvm
from tvm.relax import BlockBuilder, op

from relascope.passes.catalogue.example import Example
from relascope.passes.relax.examples.building import Tensors
from relascope.passes.relax.ir.program import RelaxProgram


def _adapter(new: Tensors) -> tuple[Any, ...]:
    """A linear layer's argument and weight, and both factors of the weight's low-rank change."""
    x, w = new.var("x", 2, 8), new.weight("w", 8, 8)
    return x, w, new.weight("a", 8, 2), new.weight("b", 2, 8)


def expand_matmul_of_sum(new: Tensors) -> Example:
    x, w, a, b = _adapter(new)
    change = new.bind("change", op.matmul(a, b))
    return new.example(op.matmul(x, new.bind("sum", op.add(w, change))))


def adjust_matmul_order(new: Tensors) -> Example:
    x, w, a, b = _adapter(new)
    p, change = new.bind("p", op.matmul(x, w)), new.bind("change", op.matmul(a, b))
    return new.example(op.add(p, new.bind("q", op.matmul(x, change))))


def reorder_permute_dims_after_concat(new: Tensors) -> Example:
    x, q, k = new.var("x", 2, 8), new.weight("q", 4, 8), new.weight("k", 4, 8)
    a, b = new.bind("a", op.permute_dims(q)), new.bind("b", op.permute_dims(k))
    return new.example(op.matmul(x, new.bind("c", op.concat([a, b], axis=1))))


def topological_sort(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    a, b = new.bind("a", op.exp(x)), new.bind("b", op.sin(x))
    c, d = new.bind("c", op.tanh(a)), new.bind("d", op.cos(b))
    return new.example(op.add(c, d))


def fast_math(new: Tensors) -> Example:
    return new.example(op.tanh(new.var("x", 2, 3)), differs="in float32 from the approximation")


def convert_layout(new: Tensors) -> Example:
    x, w = new.var("x", 1, 3, 4, 4), new.weight("w", 2, 3, 3, 3)
    return new.example(op.nn.relu(new.bind("c", op.nn.conv2d(x, w))))


def mixed_precision(new: Tensors) -> Example:
    a = new.bind("a", op.matmul(new.var("x", 2, 3), new.weight("w", 3, 4)))
    return new.example(op.nn.relu(a), differs="by the rounding to float16")


def _two(new: Tensors) -> Any:
    return op.nn.relu(new.bind("a", op.exp(new.var("x", 2, 3))))


def legalize(new: Tensors) -> Example:
    return new.example(_two(new))


def annotate_pattern(new: Tensors) -> Example:
    return new.example(op.nn.relu(new.var("x", 2, 3)), after="legalize")


def fuse_ops(new: Tensors) -> Example:
    return new.example(_two(new), after="legalize|annotate_pattern")


def fuse_tir(new: Tensors) -> Example:
    return new.example(_two(new), after="legalize|annotate_pattern|fuse_ops")


def fuse_transpose_matmul(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3), new.weight("w", 4, 3)
    return new.example(op.matmul(x, new.bind("t", op.permute_dims(w))))


def inline(new: Tensors) -> Example:
    builder = BlockBuilder()
    inner, y = new.var("x", 2, 3), new.var("y", 2, 3)
    with builder.function("squared", [inner], private=True):
        with builder.dataflow():
            out = builder.emit_output(op.multiply(inner, inner), name_hint="result")
        squared = builder.emit_func_output(out)
    with builder.function("main", [y]):
        with builder.dataflow():
            a = builder.emit(tvm.ir.Call(squared, [y]), name_hint="a")
            out = builder.emit_output(op.add(a, y), name_hint="result")
        builder.emit_func_output(out)
    return Example(RelaxProgram(builder.get(), {}, ("y",), 1))
