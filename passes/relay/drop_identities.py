"""Views that change nothing, and reshapes of reshapes."""

from typing import Any

from tvm import relay

from relascope.core.operators import RESHAPES, TRANSPOSES
from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite, shape

_FITTED = {"broadcast_to", "collapse_sum_to"}


@listed("views that change nothing", "ours")
def drop_identities(program: RelayProgram) -> RelayProgram:
    """Removes reshapes, squeezes, broadcasts and transposes whose result is their operand, and
    makes one reshape of two.

    A reshape of a reshape (or squeeze) becomes one reshape of the first operand.

    After: Every view changes something, and none reads another reshape.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        name = op_name(call)
        if name not in RESHAPES | TRANSPOSES | _FITTED:
            return None
        result = shape(call)
        if name in TRANSPOSES:
            axes = [int(a) for a in call.attrs.axes or ()]
            return args[0] if axes == list(range(len(result))) else None
        if shape(call.args[0]) == result:
            return args[0]
        if name in _FITTED:
            return None
        inner = args[0]
        while op_name(inner) in RESHAPES:
            inner = inner.args[0]
        if inner.same_as(args[0]):
            return None
        return relay.reshape(inner, list(result))

    return rewrite(program, visit)
