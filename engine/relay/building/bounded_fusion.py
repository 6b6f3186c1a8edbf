"""Limits on what FuseOps puts into one kernel.

TVM's concatenation for CPUs takes parts as they lie in memory: none that another reader pads, which
TE computes with a margin. LLVM's time for a kernel of many parts grows with their square. And TE
inlines an injective operator into each of its readers: a chain of nodes that are read twice, as in
a running maximum's gradient, doubles at each.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
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
    terms, ends, wide = dict[int, int](), set[int](), set[int]()
    nodes = post_order(program.main.body)
    readers = Counter(c.handle.value for e in nodes for c in children(e))
    for expr in nodes:
        here, name = expr.handle.value, op_name(expr)
        tuple_ = name in _JOINS and isinstance(expr.args[0], relay.Tuple)
        parts = children(expr.args[0]) if tuple_ else []
        if name == "concatenate":
            ends |= {p.handle.value for p in parts if readers[p.handle.value] > 1 and _ends(p)}
        if len(expr.checked_type.fields if name == "split" else parts) > _PARTS:
            wide.add(here)
        size = _size(expr, (terms.get(c.handle.value, 1) for c in children(expr)))
        if size > _SIZE and _ends(expr):
            ends.add(here)
            size = 1
        terms[here] = size

    def visit(call: Any, args: list[Any]) -> Any:
        made = None
        if call.handle.value in wide and (join := _JOINS.get(op_name(call))):
            made = _in_groups(join, args[0].fields[:], int(call.attrs.axis))
        elif call.handle.value in wide:
            made = _slices(call, args[0])
        if call.handle.value in ends:
            made = relay.annotation.stop_fusion(made or with_children(call, [call.op, *args]))
        return made

    return rewrite(program, visit) if ends or wide else program


def _slices(split: Any, x: Any) -> Any:
    parts = split.checked_type.fields
    axis = int(split.attrs.axis) % len(parts[0].shape)  # TVM's slices take no negative one
    bounds = accumulate((int(part.shape[axis]) for part in parts), initial=0)
    return relay.Tuple([relay.strided_slice(x, [b], [e], axes=[axis]) for b, e in pairwise(bounds)])


def _in_groups(join: Callable[..., Any], parts: Sequence[Any], axis: int) -> Any:
    """A concatenation of what `join` makes of groups of parts."""
    groups = (parts[i : i + _PARTS] for i in range(0, len(parts), _PARTS))
    joined = [relay.annotation.stop_fusion(join(g, axis)) for g in groups]
    if len(joined) > _PARTS:
        return _in_groups(relay.concatenate, joined, axis)
    return relay.concatenate(joined, axis)


def _size(expr: Any, below: Iterable[int]) -> int:
    if isinstance(expr, relay.Call):
        pattern = expr.op.get_attr("TOpPattern") if isinstance(expr.op, tvm.ir.Op) else None
        return 1 + sum(below) if pattern is not None and pattern <= _INJECTIVE else 1
    return sum(below) if isinstance(expr, (relay.Tuple, relay.TupleGetItem)) else 1


def _ends(expr: Any) -> bool:
    return isinstance(expr, relay.Call) and isinstance(expr.checked_type, relay.TensorType)
