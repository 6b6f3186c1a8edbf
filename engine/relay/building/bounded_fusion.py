"""Limits on what FuseOps puts into one kernel.

TVM's concatenation for CPUs takes parts as they lie in memory: none that another reader pads, which
TE computes with a margin. LLVM's time for a kernel of many parts grows with their square. And TE
inlines an injective operator into each of its readers: a chain of nodes that are read twice, as in
a running maximum's gradient, doubles at each.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import tvm
from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import children, op_name, post_order, rewrite, with_children

_SIZE = 1024
"""The most terms of an expression that a reader may inline. The samples have up to 961."""
_PARTS = 16
"""The most parts that one kernel joins or splits: more are joined in groups, and are slices."""
_JOINS = {"concatenate": relay.concatenate, "stack": relay.stack}
_INJECTIVE = 2
"""TOpPattern kInjective: operators up to this pattern are inlined into their readers."""


def bounded(program: RelayProgram) -> RelayProgram:
    """The program with `annotation.stop_fusion`, which FuseOps obeys and removes, after long
    expressions, after parts of a concatenation that have other readers, and after groups of parts.
    """
    terms: dict[int, int] = {}
    nodes = post_order(program.main.body)
    readers = Counter(c.handle.value for e in nodes for c in children(e))
    joined = (e.args[0] for e in nodes if op_name(e) == "concatenate")
    ends = {
        part.handle.value
        for parts in joined
        for part in children(parts)
        if readers[part.handle.value] > 1 and _ends(part)
    }
    for expr in nodes:
        size = _size(expr, (terms.get(c.handle.value, 1) for c in children(expr)))
        if size > _SIZE and _ends(expr):
            ends.add(expr.handle.value)
            size = 1
        terms[expr.handle.value] = size

    def visit(call: Any, args: list[Any]) -> Any:
        if op_name(call) == "split" and len(call.checked_type.fields) > _PARTS:
            return _slices(args[0], call.checked_type.fields, int(call.attrs.axis))
        join = _JOINS.get(op_name(call)) if args and isinstance(args[0], relay.Tuple) else None
        made = _in_groups(join, [*args[0].fields], int(call.attrs.axis)) if join else None
        if call.handle.value not in ends:
            return made
        return relay.annotation.stop_fusion(made or with_children(call, [call.op, *args]))

    return rewrite(program, visit)


def _slices(x: Any, parts: Sequence[Any], axis: int) -> Any:
    axis %= len(parts[0].shape)  # TVM's slices take no negative one
    ends = [*accumulate(int(part.shape[axis]) for part in parts)]
    pairs = zip([0, *ends], ends, strict=False)
    return relay.Tuple([relay.strided_slice(x, [b], [e], axes=[axis]) for b, e in pairs])


def _in_groups(join: Callable[..., Any], parts: list[Any], axis: int) -> Any:
    """A concatenation of what `join` makes of groups; None for few parts."""
    if len(parts) <= _PARTS:
        return None
    groups = (parts[i : i + _PARTS] for i in range(0, len(parts), _PARTS))
    joined = [relay.annotation.stop_fusion(join(g, axis)) for g in groups]
    return _in_groups(relay.concatenate, joined, axis) or relay.concatenate(joined, axis)


def _size(expr: Any, below: Iterable[int]) -> int:
    if isinstance(expr, relay.Call):
        pattern = expr.op.get_attr("TOpPattern") if isinstance(expr.op, tvm.ir.Op) else None
        return 1 + sum(below) if pattern is not None and pattern <= _INJECTIVE else 1
    return sum(below) if isinstance(expr, (relay.Tuple, relay.TupleGetItem)) else 1


def _ends(expr: Any) -> bool:
    return isinstance(expr, relay.Call) and isinstance(expr.checked_type, relay.TensorType)
