"""Sums with zeros."""

from __future__ import annotations

from typing import Any

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, op_name, result_type, rewrite
from relascope.passes.relax.ir.uniform import uniform


@listed("x + 0", "the tutorial's ZeroZapp")
def drop_zeros(program: RelaxProgram) -> RelaxProgram:
    """Removes sums with zeros, which gradients start from.

    After: No sum has an operand of zeros, but for one that broadcasts the other.
    """
    return rewrite(program, _without)


def _without(call: Any, maker: Maker) -> Any:
    name = op_name(call)
    if name not in ("add", "subtract"):
        return None
    for kept, zero in ((0, 1), (1, 0)) if name == "add" else ((0, 1),):
        keeps_type = result_type(call.args[kept]) == result_type(call)
        if keeps_type and uniform(call.args[zero], maker) == 0.0:
            return call.args[kept]
    return None
