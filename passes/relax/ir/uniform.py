"""Which variables hold one number in all their elements."""

from typing import Any

import tvm

from relascope.core.operators import KEEPS_NUMBERS, ONES, ZEROS
from relascope.passes.constants import number_of
from relascope.passes.relax.ir.rewrite import Maker, op_name


def uniform(expr: Any, maker: Maker) -> float | None:
    """The one number that all elements of a tensor are, or None.

    Args:
        expr: a variable, or a constant.
        maker: knows what variables are bound to.
    """
    while True:
        value = maker.look(expr)
        name = op_name(value)
        if name in ONES:
            return 1.0
        if name in ZEROS:
            return 0.0
        if name == "full":
            value = value.args[1]
            name = ""
        if name not in KEEPS_NUMBERS:
            constant = isinstance(value, tvm.ir.GenericConst)
            return number_of(value.value.numpy()) if constant else None
        expr = value.args[0]
