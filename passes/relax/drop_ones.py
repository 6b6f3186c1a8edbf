"""Products with ones."""

from __future__ import annotations

from typing import Any

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, op_name, result_type, rewrite
from relascope.passes.relax.ir.uniform import uniform


@listed("x * 1", "the tutorial's OneZapp")
def drop_ones(program: RelaxProgram) -> RelaxProgram:
    """Removes products with the ones that the chain rule starts from.

    After: No product has a factor of ones, but for one that broadcasts the other.
    """
    return rewrite(program, _without)


def _without(call: Any, maker: Maker) -> Any:
    name = op_name(call)
    if name not in ("multiply", "divide"):
        return None
    for kept, one in ((0, 1), (1, 0)) if name == "multiply" else ((0, 1),):
        keeps_type = result_type(call.args[kept]) == result_type(call)
        if keeps_type and uniform(call.args[one], maker) == 1.0:
            return call.args[kept]
    return None
