"""Sums with zeros."""

from __future__ import annotations

from typing import Any

from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, op_name, result_type, rewrite
from relascope.passes.relax.ir.uniform import uniform


def drop_zeros(program: RelaxProgram) -> RelaxProgram:
    """Write x + 0, 0 + x and x - 0 as x, where the zero does not broadcast x.

    After the tutorial's ZeroZapp.
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
