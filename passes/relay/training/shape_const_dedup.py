"""Equal shapes read from one constant."""

from __future__ import annotations

from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite

_READ_A_SHAPE = {"reshape", "broadcast_to", "collapse_sum_to"}


@listed("equal shapes once", "the tutorial's ShapeConstDedup")
def shape_const_dedup(program: RelayProgram) -> RelayProgram:
    """Lets operators that take a shape as a constant take one constant for equal shapes, so that
    cse sees that they are equal.

    EliminateCommonSubexpr tells constants apart by object, not by value, so without this it takes
    two sums to one shape for two.

    Before: broadcast_to or collapse_sum_to read constants: static_like makes such.
    After: Equal shapes are one constant.
    """
    shared: dict[tuple[str, bytes], Any] = {}

    def visit(call: Any, args: list[Any]) -> Any:
        shape = args[1] if len(args) == 2 else None
        if op_name(call) not in _READ_A_SHAPE or not isinstance(shape, relay.Constant):
            return None
        values = shape.data.numpy()
        first = shared.setdefault((str(values.dtype), values.tobytes()), shape)
        if first.same_as(shape):
            return None
        return relay.Call(call.op, [args[0], first], call.attrs, call.type_args, call.span)

    return rewrite(program, visit)
