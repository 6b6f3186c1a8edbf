"""Examples of passes that change operators, layouts, types and scales."""

from typing import Any

import numpy as np
import tvm
from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors


def simplify_expr(new: Tensors) -> Example:
    x = new.var("x", 2, 3)
    one, two = relay.const(1.0, new.dtype), relay.const(2.0, new.dtype)
    return new.example(relay.exp(relay.multiply(relay.add(relay.add(x, one), two), one)))


def canonicalize_ops(new: Tensors) -> Example:
    return new.example(relay.nn.bias_add(new.var("x", 1, 2, 4, 4), new.weight("bias", 2)))


def _three_by_three(x: Any, weight: Any, channels: int = 2, **more: Any) -> Any:
    return relay.nn.conv2d(x, weight, channels=channels, kernel_size=(3, 3), **more)


def fold_explicit_padding(new: Tensors) -> Example:
    x, w = new.var("x", 1, 1, 8, 8), new.weight("w", 2, 1, 3, 3)
    return new.example(_three_by_three(relay.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w))


def convert_layout(new: Tensors) -> Example:
    x, w = new.var("x", 1, 1, 8, 8), new.weight("w", 2, 1, 3, 3)
    return new.example(relay.nn.relu(_three_by_three(x, w)))


def alter_op_layout(new: Tensors) -> Example:
    x, w = new.var("x", 1, 8, 8, 8), new.constant("w", 8, 8, 3, 3)
    return new.example(relay.nn.relu(_three_by_three(x, w, 8)))


def mixed_precision(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3, dtype="float32"), new.weight("w", 4, 3, dtype="float32")
    differs = "It is rounded to float16 on the way."
    return new.example(relay.nn.softmax(relay.nn.dense(x, w)), differs=differs)


def fast_math(new: Tensors) -> Example:
    x = new.var("x", 2, 3, dtype="float32")
    return new.example(relay.tanh(relay.erf(x)), differs="The fast forms round differently.")


def _convolution(x: Any, new: Tensors) -> Any:
    """A 3 by 3 convolution from one channel to two."""
    return _three_by_three(x, new.constant("w", 2, 1, 3, 3), padding=(1, 1))


def fold_scale_axis(new: Tensors) -> Example:
    before = relay.multiply(new.var("x", 1, 1, 10, 10), new.constant("in", 1, 1, 1))
    return new.example(relay.multiply(_convolution(before, new), new.constant("out", 2, 1, 1)))


def backward_fold_scale_axis(new: Tensors) -> Example:
    convolved = _convolution(new.var("x", 1, 1, 10, 10), new)
    return new.example(relay.multiply(convolved, new.constant("out", 2, 1, 1)))


def forward_fold_scale_axis(new: Tensors) -> Example:
    scaled = relay.multiply(new.var("x", 1, 1, 10, 10), new.constant("in", 1, 1, 1))
    return new.example(_convolution(relay.nn.relu(scaled), new))


TWO = (("branches", "2"),)


def combine_dense(new: Tensors) -> Example:
    x, w1, w2 = new.var("x", 3, 4), new.weight("w1", 5, 4), new.weight("w2", 5, 4)
    body = relay.Tuple([relay.nn.dense(x, w1), relay.nn.dense(x, w2)])
    return new.example(body, params=TWO)


def combine_conv2d(new: Tensors) -> Example:
    x = new.var("x", 1, 4, 16, 16)
    weights = new.weight("w1", 4, 4, 1, 1), new.weight("w2", 4, 4, 1, 1)
    convolved = [relay.nn.conv2d(x, w, channels=4, kernel_size=(1, 1)) for w in weights]
    return new.example(relay.Tuple([*convolved, relay.nn.max_pool2d(x)]), params=TWO)


def qnn_legalize(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3, dtype="int8"), new.var("w", 4, 3, dtype="int8")
    zero, scale = relay.const(np.int32(3)), relay.const(np.float32(0.1))
    return new.example(relay.qnn.op.dense(x, w, zero, zero, scale, scale, units=4))


def qnn_canonicalize(new: Tensors) -> Example:
    x = new.var("x", 2, 3, dtype="float32")
    scale, zero = relay.const(np.float32(0.5)), relay.const(np.int32(3))
    quantized = relay.qnn.op.quantize(x, scale, zero, out_dtype="int8")
    return new.example(relay.qnn.op.dequantize(quantized, scale, zero))


def _module(inlined: bool, called: tuple[str, ...], new: Tensors) -> Example:
    """A module of two functions, one marked Inline if `inlined`, and a "main" that calls some."""
    bodies = {"square": lambda x: relay.multiply(x, x), "positive": relay.nn.relu}
    mod = tvm.IRModule()
    for name, body in bodies.items():
        x = new.variable("x", (2, 3), new.dtype)
        function: Any = relay.Function([x], body(x))
        if inlined and name == "square":
            function = function.with_attr("Inline", tvm.tir.IntImm("int32", 1))
        mod[name] = function
    mod = relay.transform.InferType()(mod)  # a call needs its function's type
    z = result = new.var("z", 2, 3)
    for name in called:
        result = relay.add(result, mod.get_global_var(name)(z))
    mod["main"] = relay.Function([z], result)
    return Example(new.of_module(mod))


def inline(new: Tensors) -> Example:
    return _module(True, ("square", "positive"), new)


def remove_unused_functions(new: Tensors) -> Example:
    return _module(False, ("square",), new)


def defuse(new: Tensors) -> Example:
    return new.example(relay.exp(relay.nn.relu(new.var("x", 2, 3))), after="fuse")
