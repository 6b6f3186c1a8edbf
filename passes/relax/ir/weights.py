"""Which variables are computed from weights alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax

from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Binding, variables

_PLAIN = (tvm.ir.Call, relax.Tuple, relax.TupleGetItem, tvm.ir.Var, tvm.ir.GenericConst)


def weights_of(program: RelaxProgram) -> Callable[[Sequence[Binding]], set[int]]:
    """From bindings of "main" to the handles of those that no input goes into.

    They are what parameters and constants alone decide, so they can be computed before anything
    else; the handles of the parameters themselves are among them.
    """
    parameters = {p.__chandle__() for p in program.main.params if str(p.name) in program.params}

    def found(bound: Sequence[Binding]) -> set[int]:
        known = set(parameters)
        for variable, value in bound:
            read = variables(value)
            if isinstance(value, _PLAIN) and all(r.__chandle__() in known for r in read):
                known.add(variable.__chandle__())
        return known

    return found


def is_weight(expr: object, weights: set[int]) -> bool:
    """Whether an argument of an operator is a constant or one of the weights."""
    if isinstance(expr, tvm.ir.GenericConst):
        return True
    return isinstance(expr, tvm.ir.Var) and expr.__chandle__() in weights
