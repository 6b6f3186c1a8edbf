"""Bounds on what FuseOps makes one kernel.

TE's concatenation takes parts as they lie in memory, and cannot take what another part pads, which
TE computes with a margin. And TE puts an injective operator into each of its readers: a chain of
nodes that are read twice, as in the gradient of a running maximum, doubles with each.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import children, op_name, post_order, rewrite, with_children

_SIZE = 1024
"""Terms of an expression that a reader may put into its own. The samples have up to 961."""
_INJECTIVE = 2
"""TOpPattern kInjective: operators of at most this are put into what reads them."""


def bounded(program: RelayProgram) -> RelayProgram:
    """A program whose long expressions, and parts of a concatenation with other readers, end in
    `annotation.stop_fusion`, which FuseOps obeys and removes."""
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
