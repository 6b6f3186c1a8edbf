"""Kernels that TVM lacks, for operators that it has.

TVM's layer norm refuses float64; here it is written out for that dtype.
"""

from __future__ import annotations

import functools
from typing import Any

import tvm
from tvm import te, topi
from tvm.relax.transform.legalize_ops import nn


@functools.cache
def register() -> None:
    """Let LegalizeOps find these kernels."""
    tvm.ir.register_op_attr("relax.nn.layer_norm", "FLegalize", _layer_norm, level=11)


def _layer_norm(builder: Any, call: Any) -> Any:
    if str(call.args[0].ty.dtype) != "float64":
        return nn._nn_layer_norm(builder, call)
    axes = [int(a) for a in call.attrs.axes]
    return builder.call_te(
        _normalised, *call.args, axes, float(call.attrs.epsilon), primfunc_name_hint="layer_norm"
    )


def _normalised(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axes: list[int], epsilon: float
) -> te.Tensor:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, over the last axes."""
    count: Any = 1
    for axis in axes:
        count *= data.shape[axis]
    number = tvm.tirx.const(epsilon, data.dtype)
    count = count.astype(data.dtype)
    mean = topi.divide(topi.sum(data, axes, keepdims=True), count)
    centred = topi.subtract(data, mean)
    variance = topi.divide(topi.sum(topi.multiply(centred, centred), axes, keepdims=True), count)
    scaled = topi.divide(centred, topi.sqrt(topi.add(variance, number)))
    return topi.add(topi.multiply(scaled, gamma), beta)
