"""Examples of the passes on the way to the gradient."""

from __future__ import annotations

import tvm
from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors, after, program
from relascope.passes.relay.ir.program import RelayProgram


def externalize_dropout(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    # The import says in a span when PyTorch executes an operator.
    span = tvm.ir.Span(tvm.ir.SourceName("|aten::dropout|0"), 0, 0, 0, 0)
    made = relay.nn.dropout(x, 0.1).tuple_value
    dropout = relay.Call(made.op, made.args, made.attrs, made.type_args, span)
    return Example(
        program([x], relay.nn.relu(relay.TupleGetItem(dropout, 0))),
        differs="Relay's dropout, where it is run, keeps everything; with a mask it drops.",
    )


def decompose_layer_norm(new: Tensors) -> Example:
    c, weight, bias = new.var("c", 2, 3), new.var("weight", 3), new.var("bias", 3)
    body = relay.nn.layer_norm(c, weight, bias, axis=1, epsilon=1e-12)
    return Example(program([c, weight, bias], body, ["weight", "bias"]))


def decompose_batch_norm(new: Tensors) -> Example:
    x = new.var("x", 2, 4, 3, 3)
    names = ["weight", "bias", "running_mean", "running_var"]
    rest = [new.var(name, 4) for name in names]
    return Example(program([x, *rest], relay.nn.batch_norm(x, *rest)[0], names))


def _linear(new: Tensors) -> RelayProgram:
    x, w = new.var("x", 2, 3), new.var("w", 4, 3)
    return program([x, w], relay.nn.dense(x, w), ["w"])


def root_grad_out(new: Tensors) -> Example:
    return Example(_linear(new), differs="The root comes before the outputs, which stay.")


def _sine(new: Tensors) -> RelayProgram:
    x = new.var("x", 2)
    return program([x], relay.sin(x))


def gradient(new: Tensors) -> Example:
    return Example(
        after("root_grad_out", _sine(new)), differs="The gradients take the place of the root."
    )


def graph_normal_form(new: Tensors) -> Example:
    return Example(
        after("root_grad_out|gradient", _sine(new)),
        differs="Of the gradients those of inputs and parameters stay.",
    )


def static_like(new: Tensors) -> Example:
    g, b = new.var("g", 2, 3), new.var("b", 3)
    return Example(program([g, b], relay.collapse_sum_like(g, b)))


def shape_const_dedup(new: Tensors) -> Example:
    g, h = new.var("g", 2, 3), new.var("h", 2, 3)
    summed = [relay.collapse_sum_to(t, [3]) for t in (g, h)]
    return Example(program([g, h], relay.add(*summed)))


def drop_zeros(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    return Example(program([x], relay.exp(relay.add(x, relay.zeros([2, 3], new.dtype)))))


def drop_ones(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    return Example(program([x], relay.exp(relay.multiply(x, relay.ones([2, 3], new.dtype)))))


def transpose_dedup(new: Tensors) -> Example:
    t = new.var("t", 2, 3, 4)
    twice = relay.transpose(relay.transpose(t, [0, 2, 1]), [0, 2, 1])
    return Example(program([t], relay.nn.relu(twice)))


def dce(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    unread = relay.Let(relay.var("u"), relay.exp(x), relay.nn.relu(x))
    return Example(program([x], unread))
