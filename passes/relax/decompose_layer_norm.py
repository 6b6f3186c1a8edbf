"""Layer norm spelled out, for it has no gradient in Relax."""

from __future__ import annotations

from typing import Any

from tvm import relax

from passes.relax.program import RelaxProgram
from passes.relax.rewrite import Maker, dtype, op_name, rewrite


def decompose_layer_norm(program: RelaxProgram) -> RelaxProgram:
    """Write layer norm as (x - mean) / sqrt(variance + eps) * weight + bias.

    The variance is the mean squared distance to the mean, as PyTorch takes it (Ba, Kiros and
    Hinton, "Layer Normalization", arXiv 1607.06450).
    """
    return rewrite(program, _spelled_out)


def _spelled_out(call: Any, maker: Maker) -> Any:
    if op_name(call) != "nn.layer_norm":
        return None
    op, attrs = relax.op, call.attrs
    x, gamma, beta = call.args
    axes = [int(a) for a in attrs.axes]
    mean = maker.emit(op.mean(x, axes, keepdims=True))
    centred = maker.emit(op.subtract(x, mean))
    variance = maker.emit(op.mean(op.multiply(centred, centred), axes, keepdims=True))
    epsilon = relax.const(float(attrs.epsilon), dtype(x))
    result = op.divide(centred, op.sqrt(op.add(variance, epsilon)))
    if bool(attrs.scale):
        result = op.multiply(result, gamma)
    return op.add(result, beta) if bool(attrs.center) else result
