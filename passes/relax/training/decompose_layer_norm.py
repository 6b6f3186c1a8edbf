"""Layer norm, group norm and instance norm spelled out, for they have no gradient in Relax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, dtype, op_name, rewrite, shape


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

    After: There is no nn.layer_norm, nn.group_norm or nn.instance_norm.
    """
    return rewrite(program, _spelled_out)


def _spelled_out(call: Any, maker: Maker) -> Any:
    name = op_name(call)
    if name not in ("nn.layer_norm", "nn.group_norm", "nn.instance_norm"):
        return None
    op, attrs = relax.op, call.attrs
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
    mean = maker.emit(op.mean(x, axes, keepdims=True))
    centred = maker.emit(op.subtract(x, mean))
    variance = maker.emit(op.mean(op.multiply(centred, centred), axes, keepdims=True))
    epsilon = relax.const(float(attrs.epsilon), dtype(x))
    return op.divide(centred, op.sqrt(op.add(variance, epsilon)))
