"""Operators beside convolutions, rewritten to round less, and to stay right in another layout.

TVM sums serially, and a batch norm's mean over all axes but the channels' is taken one axis at a
time, because shorter sums round less: PyTorch sums in float64, and 50 layers magnify the
difference.

When AlterOpLayout changes the layout, TVM gives the mean in `variance`, of extent 1 in an axis, the
layout of the data: the divisor of a layer norm after a convolution is then wrong (by 0.3 % in a
ConvNeXt of transformers). A `squeeze` that removes the channels keeps a layout with blocks of
channels, and fails.
"""

import math
from typing import Any

from tvm import relay

from relascope.passes.relay.builtin import applied
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order, rewrite

_OF_VARIANCES = {"variance", "nn.layer_norm", "nn.group_norm", "nn.instance_norm"}


def written_out(program: RelayProgram) -> RelayProgram:
    """The program with means of batch norms one axis at a time; if it has convolutions, with
    variances as means of squares, and with `reshape` in place of each `squeeze` that removes
    channels."""
    names = {op_name(e) for e in post_order(program.main.body)}
    visits = {"mean": _mean}
    if names & {*_OF_VARIANCES, "squeeze"} and any(n.startswith("nn.conv") for n in names):
        program = applied(program, relay.transform.SimplifyInference)
        visits |= {"squeeze": _squeeze, "variance": _variance}
    return rewrite(program, visits) if len(visits) > 1 or "mean" in names else program


def _mean(call: Any, args: list[Any]) -> Any:
    attrs, rank, (mean,) = call.attrs, len(call.checked_type.shape), args
    given = () if attrs.exclude or not attrs.keepdims else attrs.axis or ()
    axes = sorted(int(a) % rank for a in given)
    if axes[:1] != [0] or not 1 < len(axes) == rank - 1:
        return None
    for axis in reversed(axes):
        mean = relay.mean(mean, axis, True)
    return mean


def _squeeze(call: Any, args: list[Any]) -> Any:
    rank, axes = len(call.args[0].checked_type.shape), call.attrs.axis
    channels = axes is None or 1 in {int(a) % rank for a in axes}
    return relay.reshape(args[0], call.checked_type.shape) if channels else None


def _variance(call: Any, args: list[Any]) -> Any:
    apart = relay.subtract(*args)
    squares, attrs = relay.multiply(apart, apart), call.attrs
    found = relay.mean(squares, attrs.axis, attrs.keepdims, attrs.exclude)
    if not attrs.unbiased:
        return found
    whole, kept = (math.prod(map(int, e.checked_type.shape)) for e in (call.args[0], call))
    share = whole / (whole - kept)  # n / (n - 1)
    return relay.multiply(found, relay.const(share, call.checked_type.dtype))
