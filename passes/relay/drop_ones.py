"""Products with ones."""

from __future__ import annotations

from typing import Any

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite
from relascope.passes.relay.ir.uniform import uniform_values


def drop_ones(program: RelayProgram) -> RelayProgram:
    """Write x * 1, 1 * x and x / 1 as x, where the one does not broadcast x.

    After the tutorial's OneZapp.
    """
    values = uniform_values(program.main.body)

    def visit(call: Any, args: list[Any]) -> Any:
        name = op_name(call)
        if name not in ("multiply", "divide"):
            return None
        for kept, one in ((0, 1), (1, 0)) if name == "multiply" else ((0, 1),):
            if (
                values.get(call.args[one].handle.value) == 1.0
                and call.args[kept].checked_type == call.checked_type
            ):
                return args[kept]
        return None

    return rewrite(program, visit)
