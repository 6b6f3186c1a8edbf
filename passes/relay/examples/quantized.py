"""Examples of the passes over quantized operators."""

from __future__ import annotations

import numpy as np
from tvm import relay

from relascope.passes.catalogue.example import Example, Make
from relascope.passes.relay.examples.building import program, var


def _qnn_legalize(dtype: str) -> Example:
    x, w = var("x", 2, 3, dtype="int8"), var("w", 4, 3, dtype="int8")
    zero, scale = relay.const(np.int32(3)), relay.const(np.float32(0.1))
    body = relay.qnn.op.dense(x, w, zero, zero, scale, scale, units=4)
    return Example(program([x, w], body))


def _qnn_canonicalize(dtype: str) -> Example:
    x = var("x", 2, 3, dtype="float32")
    scale, zero = relay.const(np.float32(0.5)), relay.const(np.int32(3))
    quantized = relay.qnn.op.quantize(x, scale, zero, out_dtype="int8")
    return Example(program([x], relay.qnn.op.dequantize(quantized, scale, zero)))


EXAMPLES: dict[str, Make] = {"qnn_legalize": _qnn_legalize, "qnn_canonicalize": _qnn_canonicalize}
