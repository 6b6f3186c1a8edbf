"""Products with ones."""

from __future__ import annotations

from typing import Any

from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, op_name, result_type, rewrite
from relascope.passes.relax.ir.uniform import uniform


def drop_ones(program: RelaxProgram) -> RelaxProgram:
    """Write x * 1, 1 * x and x / 1 as x, where the one does not broadcast x.

    After the tutorial's OneZapp.
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
