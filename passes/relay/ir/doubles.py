"""Sums and differences of a value with itself, in a form that TVM builds right.

SimplifyExpr fails on `x + x` if x is more than a variable ("contains free variables"), and kernels
take `x - x` for 0, which is wrong for NaN and infinity.
"""

import math
from typing import Any

import tvm
from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import children, op_name, post_order, rewrite


def without_doubles(program: RelayProgram, building: bool = False) -> RelayProgram:
    """A program in which no value is added to itself or to an equal one, in the sense of
    EliminateCommonSubexpr. For `building`, differences of equal values are rewritten, too, and
    dropouts count as their inputs."""
    number: dict[int, int] = {}
    known: dict[Any, int] = {}

    def of(expr: Any) -> int:
        return number.get(expr.handle.value, expr.handle.value)

    for expr in post_order(program.main.body):
        below = [of(c) for c in children(expr)]
        if building and op_name(expr) == "nn.dropout":
            number[expr.handle.value] = below[1]
        elif op_name(expr):
            key = (op_name(expr), tvm.ir.structural_hash(expr.attrs), *below[1:])
            number[expr.handle.value] = known.setdefault(key, expr.handle.value)
        elif isinstance(expr, relay.TupleGetItem):
            dropped = building and op_name(expr.tuple_value) == "nn.dropout" and expr.index == 0
            key = ("", expr.index, *below)
            found = below[0] if dropped else known.setdefault(key, expr.handle.value)
            number[expr.handle.value] = found

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) not in ("add", "subtract") or of(call.args[0]) != of(call.args[1]):
            return None
        dtype = call.checked_type.dtype
        if op_name(call) == "add":
            return relay.multiply(args[0], relay.const(2, dtype))
        if not building or "float" not in dtype:
            return None
        zero, nan = (relay.const(number, dtype) for number in (0.0, math.nan))
        return relay.where(relay.isfinite(args[0]), zero, nan)

    return rewrite(program, visit)
