"""Limits on what FuseOps puts into one kernel.

TVM's concatenation for CPUs takes parts as they lie in memory: none that another reader pads, which
TE computes with a margin. And TE inlines an injective operator into each of its readers: a chain of
nodes that are read twice, as in a running maximum's gradient, doubles at each.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import children, op_name, post_order, rewrite, with_children

_SIZE = 1024
"""The most terms of an expression that a reader may inline. The samples have up to 961."""
_INJECTIVE = 2
"""TOpPattern kInjective: operators up to this pattern are inlined into their readers."""


def bounded(program: RelayProgram) -> RelayProgram:
    """The program with `annotation.stop_fusion`, which FuseOps obeys and removes, after long
    expressions and after parts of a concatenation that have other readers."""
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
        if call.handle.value not in ends:
            return None
        return relay.annotation.stop_fusion(with_children(call, [call.op, *args]))

    return rewrite(program, visit) if ends else program


def _size(expr: Any, below: Iterable[int]) -> int:
    if isinstance(expr, relay.Call):
        pattern = expr.op.get_attr("TOpPattern") if isinstance(expr.op, tvm.ir.Op) else None
        return 1 + sum(below) if pattern is not None and pattern <= _INJECTIVE else 1
    return sum(below) if isinstance(expr, (relay.Tuple, relay.TupleGetItem)) else 1


def _ends(expr: Any) -> bool:
    return isinstance(expr, relay.Call) and isinstance(expr.checked_type, relay.TensorType)
