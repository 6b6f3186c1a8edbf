"""gelu and norms written out, because they have no gradient in Relax."""

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, dtype, op_name, rewrite, shape


@listed("gelu spelled out", "ours", required=True)
def decompose_gelu(program: RelaxProgram) -> RelaxProgram:
    """Writes gelu with erf (or tanh), which has a gradient.

    Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv 1606.08415.

    After: No nn.gelu and no nn.gelu_tanh is left."""
    return rewrite(program, dict.fromkeys(("nn.gelu", "nn.gelu_tanh"), _gelu))


def _gelu(call: Any, maker: Maker) -> Any:
    op, (x,) = relax.op, call.args

    def number(value: float) -> Any:
        return relax.const(value, dtype(x))

    if op_name(call) == "nn.gelu":
        spread = op.erf(op.multiply(x, number(math.sqrt(0.5))))
    else:
        cube = op.multiply(op.multiply(x, x), x)
        inner = op.add(x, op.multiply(cube, number(0.044715)))
        spread = op.tanh(op.multiply(inner, number(math.sqrt(2 / math.pi))))
    return op.multiply(x, op.add(op.multiply(spread, number(0.5)), number(0.5)))


@listed(
    "layer norm spelled out",
    "the tutorial's DecomposeLayerNorm, with the exact place of eps",
    required=True,
)
def decompose_layer_norm(program: RelaxProgram) -> RelaxProgram:
    """Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a gradient.

    The variance is the mean squared distance to the mean, as PyTorch takes it (Ba, Kiros and
    Hinton, "Layer Normalization", arXiv 1607.06450; Wu and He, "Group Normalization", arXiv
    1803.08494).

    After: No nn.layer_norm, nn.group_norm or nn.instance_norm is left."""
    norms = ("nn.layer_norm", "nn.group_norm", "nn.instance_norm")
    return rewrite(program, dict.fromkeys(norms, _norm))


def _norm(call: Any, maker: Maker) -> Any:
    op, name, attrs = relax.op, op_name(call), call.attrs
    x, gamma, beta = call.args
    size = list(shape(x))
    axes = [int(a) % len(size) for a in attrs.axes]
    if name == "nn.group_norm":
        groups, channel = int(attrs.num_groups), int(attrs.channel_axis) % len(size)
        apart = [*size[:channel], groups, size[channel] // groups, *size[channel + 1 :]]
        inside = [channel + 1, *(a + (a > channel) for a in axes)]
        parts = maker.emit(op.reshape(x, apart))
        result = op.reshape(_normalised(parts, inside, attrs, maker), size)
    else:
        result = _normalised(x, axes, attrs, maker)
    if name != "nn.layer_norm":  # one weight for each channel, wherever that axis is
        channel = int(attrs.channel_axis) % len(size)
        along = [d if i == channel else 1 for i, d in enumerate(size)]
        gamma, beta = op.reshape(gamma, along), op.reshape(beta, along)
    if bool(attrs.scale):
        result = op.multiply(result, gamma)
    return op.add(result, beta) if bool(attrs.center) else result


def _normalised(x: Any, axes: Sequence[int], attrs: Any, maker: Maker) -> Any:
    op = relax.op
    centred = maker.emit(op.subtract(x, maker.emit(op.mean(x, axes, keepdims=True))))
    variance = maker.emit(op.mean(op.multiply(centred, centred), axes, keepdims=True))
    epsilon = relax.const(float(attrs.epsilon), dtype(x))
    return op.divide(centred, op.sqrt(op.add(variance, epsilon)))


@listed("batch norm spelled out", "ours", required=True)
def decompose_batch_norm(program: RelaxProgram) -> RelaxProgram:
    """Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, which
    has a gradient.

    Mean and variance are the running ones: the import writes out batch norm in train mode.

    Before: Batch norm is in eval mode.
    After: No nn.batch_norm is left."""
    return rewrite(program, {"nn.batch_norm": _batch_norm})


def _batch_norm(call: Any, maker: Maker) -> Any:
    op, attrs = relax.op, call.attrs
    x, gamma, beta, mean, variance = call.args
    axis = int(attrs.axis) % len(shape(x))
    along = [size if i == axis else 1 for i, size in enumerate(shape(x))]

    def laid(vector: Any) -> Any:
        return op.reshape(vector, along)

    deviation = op.sqrt(op.add(variance, relax.const(float(attrs.epsilon), dtype(x))))
    result = op.divide(op.subtract(x, laid(mean)), laid(deviation))
    if bool(attrs.scale):
        result = op.multiply(result, laid(gamma))
    if bool(attrs.center):
        result = op.add(result, laid(beta))
    return relax.Tuple([maker.emit(result), mean, variance])
