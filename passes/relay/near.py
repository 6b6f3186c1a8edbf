"""Spans for what TVM's passes make, most of which drop them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import tvm
from tvm import relay

from passes.relay.program import RelayProgram
from passes.relay.rewrite import children, copied, op_name, post_order, rewrite_body, with_mod
from passes.relay.spans import NEAR, key

Identity = tuple[str, Any]


def with_origins(program: RelayProgram, mod: Any) -> RelayProgram:
    """The program with another module, typed, in which every new call has a place in the model.

    A call that a pass made without a span gets that of a call which is gone and read one of the
    same values, first of all one of the same operator; else that of what reads it, and else that of
    what it reads. Such a span says where the call belongs and no more: its key begins with `NEAR`,
    for what it computes need not be what PyTorch's operator there computed.
    """
    before, after = program.main, mod["main"]
    new = [e for e in post_order(after) if isinstance(e, relay.Call)]
    lost = [e for e in new if e.span is None]
    if not lost:
        return with_mod(program, mod)
    old = [e for e in post_order(before) if isinstance(e, relay.Call)]
    known = {e.handle.value for e in old}
    lost = [e for e in lost if e.handle.value not in known]
    labels = _labels(old, new, lost)
    if not labels:
        return with_mod(program, mod)
    provenance = dict(program.provenance)
    for label in set(labels.values()):
        provenance[NEAR + label] = provenance.get(label, ("", ""))

    def spanned(call: Any, args: list[Any]) -> Any:
        label = labels.get(call.handle.value)
        if label is None:
            return None
        span = tvm.ir.Span(tvm.ir.SourceName(NEAR + label), 0, 0, 0, 0)
        return relay.Call(call.op, args, call.attrs, call.type_args, span)

    body = rewrite_body(after.body, spanned)
    made = copied(mod)
    made["main"] = relay.Function(after.params, body, after.ret_type, [], after.attrs)
    return replace(with_mod(program, made), provenance=provenance)


def _labels(old: list[Any], new: list[Any], lost: list[Any]) -> dict[int, str]:
    """The key that each call without one belongs to, by handle."""
    # One operator of PyTorch may have become several calls, so a key alone does not tell a call.
    fewer = Counter((op_name(e), key(e)) for e in old) - Counter((op_name(e), key(e)) for e in new)
    gone: dict[Identity, list[tuple[str, str]]] = defaultdict(list)
    for call in old:
        where = key(call)
        if where and (op_name(call), where) in fewer:
            for operand in _operands(call):
                gone[_identity(operand)].append((op_name(call), where))
    labels: dict[int, str] = {}
    for call in lost:
        readers = [r for operand in _operands(call) for r in gone.get(_identity(operand), ())]
        near = [labels.get(o.handle.value, "") for o in _operands(call)]
        same = [where for op, where in readers if op == op_name(call)]
        found = next(filter(None, (*same, *(where for _, where in readers), *near)), "")
        if found:
            labels[call.handle.value] = found.removeprefix(NEAR)
    waiting = {e.handle.value for e in lost} - labels.keys()
    for call in reversed(new):  # what stands in front of a call belongs to it
        where = labels.get(call.handle.value) or key(call)
        for operand in _operands(call) if where else ():
            if operand.handle.value in waiting:
                labels.setdefault(operand.handle.value, where.removeprefix(NEAR))
    for call in lost:
        if call.handle.value not in labels:
            read = (labels.get(o.handle.value) or key(o) for o in _operands(call))
            found = next(filter(None, read), "")
            if found:
                labels[call.handle.value] = found.removeprefix(NEAR)
    return labels


def _operands(call: Any) -> Iterator[Any]:
    """What a call reads, tuples and their items opened."""
    stack = list(reversed(list(call.args)))
    while stack:
        expr = stack.pop()
        if isinstance(expr, relay.Tuple | relay.TupleGetItem):
            stack.extend(reversed(list(children(expr))))
        else:
            yield expr


def _identity(expr: Any) -> Identity:
    """What tells a value before and after a pass that may have copied it."""
    if isinstance(expr, relay.Var):
        return "variable", str(expr.name_hint)
    if isinstance(expr, relay.Constant):
        return "constant", int(expr.data.handle.contents.data or 0)
    return ("call", (op_name(expr), key(expr))) if key(expr) else ("other", expr.handle.value)
