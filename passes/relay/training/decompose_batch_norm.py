"""Batch norm with running statistics in operators that have gradients."""

from __future__ import annotations

from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite, shape


@listed("batch norm spelled out", "ours", required=True)
def decompose_batch_norm(program: RelayProgram) -> RelayProgram:
    """Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, which
    has a gradient.

    Mean and variance are the running statistics, as in PyTorch's eval mode; batch norm in train
    mode is imported in these operators already. TVM's SimplifyInference does it too, but makes
    weight / sqrt(variance + eps) first, whose gradient for the weight is rounded otherwise.

    Before: Batch norm is in eval mode.
    After: There is no nn.batch_norm.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) != "nn.batch_norm":
            return None
        data, gamma, beta, mean, variance = args
        size = shape(call.args[0])
        axis = int(call.attrs.axis) % len(size)
        along = [size[axis]] + [1] * (len(size) - axis - 1)

        def shaped(vector: Any) -> Any:
            return vector if len(along) == 1 else relay.reshape(vector, along)

        epsilon = relay.const(float(call.attrs.epsilon), call.args[0].checked_type.dtype)
        result = relay.divide(
            relay.subtract(data, shaped(mean)), shaped(relay.sqrt(relay.add(variance, epsilon)))
        )
        if bool(call.attrs.scale):
            result = relay.multiply(result, shaped(gamma))
        if bool(call.attrs.center):
            result = relay.add(result, shaped(beta))
        # The operator's other results are the statistics, as they came in.
        return relay.Tuple([result, mean, variance])

    return rewrite(program, visit)
