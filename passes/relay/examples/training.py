"""Examples of the passes before and after the gradient."""

from typing import Any

import tvm
from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors


def _dropout(new: Tensors, *shape: int) -> Any:
    # The import gives a span the position in PyTorch's order of execution.
    span = tvm.ir.Span(tvm.ir.SourceName("|aten::dropout|0"), 0, 0, 0, 0)
    made = relay.nn.dropout(new.var("x", *shape), 0.1).tuple_value
    dropout = relay.Call(made.op, made.args, made.attrs, made.type_args, span)
    return relay.nn.relu(relay.TupleGetItem(dropout, 0))


def externalize_dropout(new: Tensors) -> Example:
    differs = "Relay's dropout, where it is run, keeps everything; with a mask it drops."
    return new.example(_dropout(new, 2, 3), differs=differs)


def masks_as_bits(new: Tensors) -> Example:
    differs = "The mask is read from another input."
    return new.example(_dropout(new, 4, 4), after="externalize_dropout", differs=differs)


def decompose_layer_norm(new: Tensors) -> Example:
    c, weight, bias = new.var("c", 2, 3), new.weight("weight", 3), new.weight("bias", 3)
    return new.example(relay.nn.layer_norm(c, weight, bias, axis=1, epsilon=1e-12))


def decompose_batch_norm(new: Tensors) -> Example:
    x = new.var("x", 2, 4, 3, 3)
    rest = [new.weight(n, 4) for n in ("weight", "bias", "running_mean", "running_var")]
    return new.example(relay.nn.batch_norm(x, *rest)[0])


def root_grad_out(new: Tensors) -> Example:
    linear = relay.nn.dense(new.var("x", 2, 3), new.weight("w", 4, 3))
    return new.example(linear, differs="The root comes before the outputs, which stay.")


def gradient(new: Tensors) -> Example:
    differs = "The gradients take the place of the root."
    return new.example(relay.sin(new.var("x", 2)), after="root_grad_out", differs=differs)


def graph_normal_form(new: Tensors) -> Example:
    differs = "Of the gradients those of inputs and parameters stay."
    return new.example(relay.sin(new.var("x", 2)), after="root_grad_out|gradient", differs=differs)


def static_like(new: Tensors) -> Example:
    return new.example(relay.collapse_sum_like(new.var("g", 2, 3), new.var("b", 3)))


def shape_const_dedup(new: Tensors) -> Example:
    summed = [relay.collapse_sum_to(new.var(name, 2, 3), [3]) for name in "gh"]
    return new.example(relay.add(*summed))


def drop_zeros(new: Tensors) -> Example:
    return new.example(relay.exp(relay.add(new.var("x", 2, 3), relay.zeros([2, 3], new.dtype))))


def drop_ones(new: Tensors) -> Example:
    ones = relay.ones([2, 3], new.dtype)
    return new.example(relay.exp(relay.multiply(new.var("x", 2, 3), ones)))


def transpose_dedup(new: Tensors) -> Example:
    twice = relay.transpose(relay.transpose(new.var("t", 2, 3, 4), [0, 2, 1]), [0, 2, 1])
    return new.example(relay.nn.relu(twice))


def dce(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    return new.example(relay.Let(relay.var("u"), relay.exp(x), relay.nn.relu(x)))
