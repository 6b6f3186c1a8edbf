"""Layer norm in operators that have gradients."""

from __future__ import annotations

from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite, shape


@listed(
    "layer norm spelled out",
    "the tutorial's DecomposeLayerNorm, with the exact place of eps",
    required=True,
)
def decompose_layer_norm(program: RelayProgram) -> RelayProgram:
    """Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a gradient.

    The variance is the mean squared distance to the mean (not the unbiased one), and eps is added
    to it before the root, both as PyTorch does it.

    After: There is no nn.layer_norm.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) != "nn.layer_norm":
            return None
        data, gamma, beta = args
        size, dtype = shape(call.args[0]), call.checked_type.dtype
        axis = int(call.attrs.axis) % len(size)
        epsilon = relay.const(float(call.attrs.epsilon), dtype)
        centred = relay.subtract(data, relay.mean(data, axis=[axis], keepdims=True))
        variance = relay.mean(relay.multiply(centred, centred), axis=[axis], keepdims=True)
        result = relay.divide(centred, relay.sqrt(relay.add(variance, epsilon)))
        # weight and bias are vectors along the axis; axes of size 1 follow where it is not last
        along = [size[axis]] + [1] * (len(size) - axis - 1)
        if bool(call.attrs.scale):
            result = relay.multiply(result, _shaped(gamma, along))
        if bool(call.attrs.center):
            result = relay.add(result, _shaped(beta, along))
        return result

    return rewrite(program, visit)


def _shaped(vector: Any, along: list[int]) -> Any:
    return vector if len(along) == 1 else relay.reshape(vector, along)
