"""Which expressions hold one and the same number everywhere."""

from typing import Any

from tvm import relay

from relascope.core.operators import KEEPS_NUMBERS, ONES, ZEROS
from relascope.passes.constants import number_of
from relascope.passes.relay.ir.rewrite import op_name, post_order


def uniform_values(body: Any) -> dict[int, float]:
    """The number that an expression holds everywhere, by handle, where that is known."""
    values: dict[int, float] = {}
    for expr in post_order(body):
        name, handle = op_name(expr), expr.handle.value
        if isinstance(expr, relay.Constant):
            if (number := number_of(expr.data.numpy())) is not None:
                values[handle] = number
        elif name in ZEROS:
            values[handle] = 0.0
        elif name in ONES:
            values[handle] = 1.0
        elif name in KEEPS_NUMBERS or name in ("full", "full_like"):
            source = expr.args[1 if name == "full_like" else 0].handle.value
            if source in values:
                values[handle] = values[source]
    return values
