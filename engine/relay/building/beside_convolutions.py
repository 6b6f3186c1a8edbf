"""Operators beside convolutions, rewritten to stay right when AlterOpLayout changes the layout.

TVM gives the mean in `variance`, of extent 1 in an axis, the layout of the data: the divisor of a
layer norm after a convolution is then wrong (by 0.3 % in a ConvNeXt of transformers). A `squeeze`
that removes the channels keeps a layout with blocks of channels, and fails.
"""

import math
from typing import Any

from tvm import relay

from relascope.passes.relay.builtin import applied
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order, rewrite

_OF_VARIANCES = {"variance", "nn.layer_norm", "nn.group_norm", "nn.instance_norm"}


def written_out(program: RelayProgram) -> RelayProgram:
    """The program, if it has convolutions, with variances as means of squares, and with `reshape`
    in place of each `squeeze` that removes channels."""
    names = {op_name(e) for e in post_order(program.main.body)}
    if not names & {*_OF_VARIANCES, "squeeze"} or not any(n.startswith("nn.conv") for n in names):
        return program
    program = applied(program, relay.transform.SimplifyInference)

    return rewrite(program, {"squeeze": _squeeze, "variance": _variance})


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
