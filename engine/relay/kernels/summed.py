"""Merge many added products, or sums over rows, into one of concatenated operands.

See `engine.relax.kernels.summed`, which does the same for Relax.
"""

from collections import Counter
from functools import reduce
from typing import Any, cast

from tvm import relay

from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import children, op_name, post_order, rewrite, shape

FEW = 4
"""Fewer terms stay unmerged."""


def merged(program: RelayProgram) -> RelayProgram:
    """The program with the alike terms that "main" adds merged, if they are many. Products are as
    `passes.relay.absorb_transposes` leaves them."""
    nodes = post_order(program.main.body)
    readers = Counter(c.handle.value for e in nodes for c in children(e))
    added = {  # read by nothing else, without broadcasting
        a.handle.value
        for e in nodes
        if op_name(e) == "add"
        for a in e.args
        if readers[a.handle.value] == 1 and a.checked_type == e.checked_type
    }

    def visit(call: Any, args: list[Any]) -> Any:
        if call.handle.value in added:
            return None
        alike: dict[Any, list[Any]] = {None: []}
        todo = list(zip(call.args, args, strict=True))
        while todo:
            old, new = todo.pop()
            if old.handle.value in added and op_name(old) == "add":
                todo.extend(zip(old.args, new.args, strict=True))
            else:
                alike.setdefault(_kind(old) if old.handle.value in added else None, []).append(new)
        many = {kind: terms for kind, terms in alike.items() if kind and len(terms) >= FEW}
        rest = [t for kind, terms in alike.items() if kind not in many for t in terms]
        # First, because TVM's SimplifyExpr fails where a product is added to itself.
        return reduce(relay.add, [*map(_one, many.values()), *rest]) if many else None

    return rewrite(program, {"add": visit})


def _kind(term: Any) -> Any:
    """A key that is equal for terms that can be merged; None for others."""
    name, attrs = op_name(term), cast(Any, getattr(term, "attrs", None))
    if name == "nn.matmul" and len(term.args) == 2 and attrs.transpose_a and not attrs.transpose_b:
        return name, *(a.checked_type.dtype for a in term.args), str(attrs.out_dtype)
    if name == "sum" and not attrs.exclude and list(attrs.axis or ()) == [0]:
        return name, bool(attrs.keepdims), shape(term.args[0])[1:]
    return None


def _one(terms: list[Any]) -> Any:
    whole = [
        relay.concatenate(list(each), 0) for each in zip(*(t.args for t in terms), strict=True)
    ]
    return relay.Call(terms[0].op, whole, terms[0].attrs)
