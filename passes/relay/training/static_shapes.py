"""Static shapes in place of shapes read from another tensor, and each shape once."""

from collections.abc import Callable
from typing import Any

from tvm import relay

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name, rewrite, shape, with_children

_STATIC: dict[str, Callable[[list[Any], list[int], str], Any]] = {
    "zeros_like": lambda args, size, dtype: relay.zeros(size, dtype),
    "ones_like": lambda args, size, dtype: relay.ones(size, dtype),
    "full_like": lambda args, size, dtype: relay.full(args[1], size, dtype),
    "collapse_sum_like": lambda args, size, dtype: relay.collapse_sum_to(args[0], size),
    "broadcast_to_like": lambda args, size, dtype: relay.broadcast_to(args[0], size),
    "reshape_like": lambda args, size, dtype: relay.reshape(args[0], size),
    "cast_like": lambda args, size, dtype: relay.cast(args[0], dtype),
}
_CHANGE_TYPE_ONLY = {
    *("collapse_sum_like", "broadcast_to_like", "reshape_like", "cast_like"),
    *("collapse_sum_to", "broadcast_to"),
}

_READ_A_SHAPE = {"reshape", "broadcast_to", "collapse_sum_to"}


@listed("*_like to static shapes", "the tutorial's LikeZapp")
def static_like(program: RelayProgram) -> RelayProgram:
    """Replaces collapse_sum_like, broadcast_to_like, reshape_like, zeros_like and ones_like by
    forms with a static shape, so that no tensor is kept only for its shape.

    Operators that change nothing are removed.

    Before: Shapes are static.
    After: No operator reads a tensor only for its shape or type.
    """

    def visit(call: Any, args: list[Any]) -> Any:
        name = op_name(call)
        if name in _CHANGE_TYPE_ONLY and call.args[0].checked_type == call.checked_type:
            return args[0]
        make = _STATIC.get(name)
        return make(args, list(shape(call)), call.checked_type.dtype) if make else None

    return rewrite(program, visit)


@listed("equal shapes once", "the tutorial's ShapeConstDedup")
def shape_const_dedup(program: RelayProgram) -> RelayProgram:
    """Makes operators with equal constant shapes read one constant, so that cse sees that the
    shapes are equal.

    EliminateCommonSubexpr compares constants by object, not by value, so without this pass it
    keeps two equal sums to one shape.

    Before: broadcast_to or collapse_sum_to reads constants, as static_like makes them.
    After: Equal shapes are one constant.
    """
    shared: dict[tuple[str, bytes], Any] = {}

    def visit(call: Any, args: list[Any]) -> Any:
        wanted = args[1] if len(args) == 2 else None
        if op_name(call) not in _READ_A_SHAPE or not isinstance(wanted, relay.Constant):
            return None
        values = wanted.data.numpy()
        first = shared.setdefault((str(values.dtype), values.tobytes()), wanted)
        return None if first.same_as(wanted) else with_children(call, [call.op, args[0], first])

    return rewrite(program, visit)
