"""Products with ones."""

from __future__ import annotations

from typing import Any

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite
from relascope.passes.relay.ir.uniform import uniform_values


@listed("x * 1", "the tutorial's OneZapp")
def drop_ones(program: RelayProgram) -> RelayProgram:
    """Removes products with the ones that the chain rule starts from.

    After: No product has a factor of ones, but for one that broadcasts the other.
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
