"""Examples of the passes over quantized operators."""

from __future__ import annotations

import numpy as np
from tvm import relay

from relascope.passes.catalogue.example import Example
from relascope.passes.relay.examples.building import Tensors, program


def qnn_legalize(new: Tensors) -> Example:
    x, w = new.var("x", 2, 3, dtype="int8"), new.var("w", 4, 3, dtype="int8")
    zero, scale = relay.const(np.int32(3)), relay.const(np.float32(0.1))
    body = relay.qnn.op.dense(x, w, zero, zero, scale, scale, units=4)
    return Example(program([x, w], body))


def qnn_canonicalize(new: Tensors) -> Example:
    x = new.var("x", 2, 3, dtype="float32")
    scale, zero = relay.const(np.float32(0.5)), relay.const(np.int32(3))
    quantized = relay.qnn.op.quantize(x, scale, zero, out_dtype="int8")
    return Example(program([x], relay.qnn.op.dequantize(quantized, scale, zero)))
