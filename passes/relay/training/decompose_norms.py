"""Norms in operators that have gradients."""

from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import rewrite, shape


@listed(
    "layer norm spelled out",
    "the tutorial's DecomposeLayerNorm, with the exact place of eps",
    required=True,
)
def decompose_layer_norm(program: RelayProgram) -> RelayProgram:
    """Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a gradient.

    The variance is the mean squared distance to the mean (not the unbiased one), and eps is added
    to it before the root, both as PyTorch does it.

    After: No nn.layer_norm is left.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        data, gamma, beta = args
        axis = int(call.attrs.axis) % len(shape(call.args[0]))
        return weighted(call, normalized(call, data, axis), gamma, beta)

    return rewrite(program, {"nn.layer_norm": visit})


@listed("batch norm spelled out", "ours", required=True)
def decompose_batch_norm(program: RelayProgram) -> RelayProgram:
    """Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, which
    has a gradient.

    Mean and variance are the running statistics, as in PyTorch's eval mode; the import already
    writes out batch norm in train mode. TVM's SimplifyInference does it too, but makes
    weight / sqrt(variance + eps) first, whose gradient for the weight is rounded differently.

    Before: Batch norm is in eval mode.
    After: No nn.batch_norm is left.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        data, gamma, beta, mean, variance = args
        centred = relay.subtract(data, _along(call, mean))
        result = relay.divide(centred, _along(call, _deviation(call, variance)))
        # The operator's other results are the statistics, as they came in.
        return relay.Tuple([weighted(call, result, gamma, beta), mean, variance])

    return rewrite(program, {"nn.batch_norm": visit})


def normalized(call: Any, data: Any, axis: int) -> Any:
    """Data minus its mean along an axis, divided by its deviation, with a norm's epsilon."""
    centred = relay.subtract(data, relay.mean(data, axis=[axis], keepdims=True))
    variance = relay.mean(relay.multiply(centred, centred), axis=[axis], keepdims=True)
    return relay.divide(centred, _deviation(call, variance))


def _deviation(call: Any, variance: Any) -> Any:
    epsilon = relay.const(float(call.attrs.epsilon), call.args[0].checked_type.dtype)
    return relay.sqrt(relay.add(variance, epsilon))


def weighted(call: Any, result: Any, gamma: Any, beta: Any) -> Any:
    """A norm's result, with its scale and shift, if any."""
    if bool(call.attrs.scale):
        result = relay.multiply(result, _along(call, gamma))
    return relay.add(result, _along(call, beta)) if bool(call.attrs.center) else result


def _along(call: Any, vector: Any) -> Any:
    """A vector along the norm's axis, with axes of size 1 for the axes behind it."""
    size = shape(call.args[0])
    axis = int(call.attrs.axis) % len(size)
    along = [size[axis]] + [1] * (len(size) - axis - 1)
    return vector if len(along) == 1 else relay.reshape(vector, along)
