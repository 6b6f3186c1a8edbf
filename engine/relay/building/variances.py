"""Variances beside convolutions, written so that another memory layout leaves them right.

TVM's AlterOpLayout gives `variance`'s mean, of extent 1 in an axis, the layout of the data, and the
divisor of a layer norm after a convolution is wrong (0.3 % in a ConvNeXt of transformers).
"""

import math
from typing import Any

from tvm import relay

from relascope.passes.relay.builtin import applied
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, post_order, rewrite

_OF_VARIANCES = {"variance", "nn.layer_norm", "nn.group_norm", "nn.instance_norm"}


def written_out(program: RelayProgram) -> RelayProgram:
    """A program whose variances are means of squares, where it has convolutions, too."""
    names = {op_name(e) for e in post_order(program.main.body)}
    if not names & _OF_VARIANCES or not any(n.startswith("nn.conv") for n in names):
        return program
    program = applied(program, relay.transform.SimplifyInference)

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) != "variance":
            return None
        apart = relay.subtract(*args)
        squares, attrs = relay.multiply(apart, apart), call.attrs
        found = relay.mean(squares, attrs.axis, attrs.keepdims, attrs.exclude)
        if not attrs.unbiased:
            return found
        whole, kept = (math.prod(map(int, e.checked_type.shape)) for e in (call.args[0], call))
        share = whole / (whole - kept)  # n / (n - 1)
        return relay.multiply(found, relay.const(share, call.checked_type.dtype))

    return rewrite(program, visit)
