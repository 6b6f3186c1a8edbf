"""Examples of the passes on the way to the gradient."""

from __future__ import annotations

import tvm
from tvm import relay

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relay.examples.building import program, var
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.training.gradient import gradient
from relascope.passes.relay.training.root_grad_out import root_grad_out


def _externalize_dropout(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    # The import says in a span when PyTorch executes an operator.
    span = tvm.ir.Span(tvm.ir.SourceName("|aten::dropout|0"), 0, 0, 0, 0)
    made = relay.nn.dropout(x, 0.1).tuple_value
    dropout = relay.Call(made.op, made.args, made.attrs, made.type_args, span)
    return Example(
        program([x], relay.nn.relu(relay.TupleGetItem(dropout, 0))),
        differs="Relay's dropout, where it is run, keeps everything; with a mask it drops.",
    )


def _decompose_layer_norm(dtype: str) -> Example:
    c, weight, bias = (
        var("c", 2, 3, dtype=dtype),
        var("weight", 3, dtype=dtype),
        var("bias", 3, dtype=dtype),
    )
    body = relay.nn.layer_norm(c, weight, bias, axis=1, epsilon=1e-12)
    return Example(program([c, weight, bias], body, ["weight", "bias"]))


def _decompose_batch_norm(dtype: str) -> Example:
    x = var("x", 2, 4, 3, 3, dtype=dtype)
    names = ["weight", "bias", "running_mean", "running_var"]
    rest = [var(name, 4, dtype=dtype) for name in names]
    return Example(program([x, *rest], relay.nn.batch_norm(x, *rest)[0], names))


def _linear(dtype: str) -> RelayProgram:
    x, w = var("x", 2, 3, dtype=dtype), var("w", 4, 3, dtype=dtype)
    return program([x, w], relay.nn.dense(x, w), ["w"])


def _root_grad_out(dtype: str) -> Example:
    return Example(_linear(dtype), differs="The root comes before the outputs, which stay.")


def _sine(dtype: str) -> RelayProgram:
    x = var("x", 2, dtype=dtype)
    return program([x], relay.sin(x))


def _gradient(dtype: str) -> Example:
    return Example(root_grad_out(_sine(dtype)), differs="The gradients take the place of the root.")


def _graph_normal_form(dtype: str) -> Example:
    return Example(
        gradient(root_grad_out(_sine(dtype))),
        differs="Of the gradients those of inputs and parameters stay.",
    )


def _static_like(dtype: str) -> Example:
    g, b = var("g", 2, 3, dtype=dtype), var("b", 3, dtype=dtype)
    return Example(program([g, b], relay.collapse_sum_like(g, b)))


def _shape_const_dedup(dtype: str) -> Example:
    g, h = var("g", 2, 3, dtype=dtype), var("h", 2, 3, dtype=dtype)
    summed = [relay.collapse_sum_to(t, [3]) for t in (g, h)]
    return Example(program([g, h], relay.add(*summed)))


def _drop_zeros(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    return Example(program([x], relay.exp(relay.add(x, relay.zeros([2, 3], dtype)))))


def _drop_ones(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    return Example(program([x], relay.exp(relay.multiply(x, relay.ones([2, 3], dtype)))))


def _transpose_dedup(dtype: str) -> Example:
    t = var("t", 2, 3, 4, dtype=dtype)
    twice = relay.transpose(relay.transpose(t, [0, 2, 1]), [0, 2, 1])
    return Example(program([t], relay.nn.relu(twice)))


def _dce(dtype: str) -> Example:
    x = var("x", 2, 3, dtype=dtype)
    unread = relay.Let(relay.var("u"), relay.exp(x), relay.nn.relu(x))
    return Example(program([x], unread))


EXAMPLES: dict[str, Make] = {
    "externalize_dropout": _externalize_dropout,
    "decompose_layer_norm": _decompose_layer_norm,
    "decompose_batch_norm": _decompose_batch_norm,
    "root_grad_out": _root_grad_out,
    "gradient": _gradient,
    "graph_normal_form": _graph_normal_form,
    "static_like": _static_like,
    "shape_const_dedup": _shape_const_dedup,
    "drop_zeros": _drop_zeros,
    "drop_ones": _drop_ones,
    "transpose_dedup": _transpose_dedup,
    "dce": _dce,
}
