"""Sums that start from zeros."""

from __future__ import annotations

from typing import Any

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite
from relascope.passes.relay.ir.uniform import uniform_values


@listed("x + 0", "the tutorial's ZeroZapp")
def drop_zeros(program: RelayProgram) -> RelayProgram:
    """Removes the zeros that each gradient sum starts from.

    After: No sum has an operand of zeros, but for one that broadcasts the other.
    """
    values = uniform_values(program.main.body)

    def visit(call: Any, args: list[Any]) -> Any:
        name = op_name(call)
        if name not in ("add", "subtract"):
            return None
        for kept, zero in ((0, 1), (1, 0)) if name == "add" else ((0, 1),):
            if (
                values.get(call.args[zero].handle.value) == 0.0
                and call.args[kept].checked_type == call.checked_type
            ):
                return args[kept]
        return None

    return rewrite(program, visit)
