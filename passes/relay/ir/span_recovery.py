"""Spans for new calls of TVM's passes, most of which drop spans."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import tvm
from tvm import relay

from relascope.core.graph import NodeOrigin
from relascope.passes.relay.ir import rewrite
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.spans import NEAR, key

Identity = tuple[str, Any]


def with_origins(program: RelayProgram, mod: Any) -> RelayProgram:
    """The program with another module, typed, in which every new call has a place in the model. A
    call without a span gets that of a removed call with the same inputs, preferably of the same
    operator; else that of its reader, else that of an input. The key begins with `NEAR`, because
    the call may compute something other than PyTorch's operator there."""
    after = mod["main"]
    old, new = _calls(program.main), _calls(after)
    made = {h: e for h, e in new.items() if h not in old}
    if not any(e.span is None for e in made.values()):
        return rewrite.with_mod(program, mod)
    labels = _labels({h: e for h, e in old.items() if h not in new}, made)
    if not labels:
        return rewrite.with_mod(program, mod)
    provenance = dict(program.provenance)
    for label in set(labels.values()):
        provenance[NEAR + label] = provenance.get(label, NodeOrigin())

    def spanned(call: Any, args: list[Any]) -> Any:
        label = labels.get(call.handle.value)
        if label is None:
            return None
        span = tvm.ir.Span(tvm.ir.SourceName(NEAR + label), 0, 0, 0, 0)
        return relay.Call(call.op, args, call.attrs, call.type_args, span)

    body = rewrite.rewrite_body(after.body, spanned)
    mod = rewrite.copied(mod)
    mod["main"] = relay.Function(after.params, body, after.ret_type, [], after.attrs)
    return replace(rewrite.with_mod(program, mod), provenance=provenance)


def _calls(function: Any) -> dict[int, Any]:
    """The calls of a function by handle, producers first."""
    return {e.handle.value: e for e in rewrite.post_order(function) if isinstance(e, relay.Call)}


def _labels(old: Mapping[int, Any], new: Mapping[int, Any]) -> dict[int, str]:
    """The key of each new call without one, by handle; `old` calls were removed or rebuilt, `new`
    ones are in order, producers first."""
    name = _Names()
    was, now = [(*name(e), e) for e in old.values()], {h: name(e) for h, e in new.items()}
    # One operator of PyTorch may have become several calls, so a key does not identify a call.
    fewer = Counter((op, k) for op, k, _ in was) - Counter(now.values())
    gone: dict[Identity, list[tuple[str, str]]] = defaultdict(list)
    for op, where, call in was:
        if where and (op, where) in fewer:
            for operand in _operands(call):
                gone[_identity(operand)].append((op, where))
    lost = {h: list(_operands(new[h])) for h, (_, where) in now.items() if not where}
    labels: dict[int, str] = {}
    for handle, operands in lost.items():
        op, _ = now[handle]
        readers = [r for operand in operands for r in gone.get(_identity(operand), ())]
        near = [labels.get(o.handle.value, "") for o in operands]
        same = [where for other, where in readers if other == op]
        found = next(filter(None, (*same, *(where for _, where in readers), *near)), "")
        if found:
            labels[handle] = found.removeprefix(NEAR)
    waiting = lost.keys() - labels.keys()
    for handle in reversed(new) if waiting else ():
        where = labels.get(handle) or now[handle][1]  # also for new operands of a call
        for operand in _operands(new[handle]) if where else ():
            if operand.handle.value in waiting:
                labels.setdefault(operand.handle.value, where.removeprefix(NEAR))
    for handle in (h for h in lost if h not in labels):
        found = next(filter(None, (labels.get(o.handle.value) or key(o) for o in lost[handle])), "")
        if found:
            labels[handle] = found.removeprefix(NEAR)
    return labels


class _Names:
    """Operator and key of a call, cached: each look into TVM takes microseconds."""

    def __init__(self) -> None:
        self._ops: dict[int, str] = {}
        self._keys: dict[int, str] = {}
        self._alive: list[Any] = []  # an address is only an identity while its object lives

    def __call__(self, call: Any) -> tuple[str, str]:
        op, span = call.op, call.span
        if op.handle.value not in self._ops:
            self._ops[op.handle.value] = rewrite.op_name(call)
            self._alive.append(op)
        if span is None:
            return self._ops[op.handle.value], ""
        if span.handle.value not in self._keys:
            self._keys[span.handle.value] = key(call)
            self._alive.append(span)
        return self._ops[op.handle.value], self._keys[span.handle.value]


def _operands(call: Any) -> Iterator[Any]:
    """A call's operands, with tuples and items replaced by their fields and tuples."""
    stack = list(reversed(list(call.args)))
    while stack:
        expr = stack.pop()
        if isinstance(expr, relay.Tuple | relay.TupleGetItem):
            stack.extend(reversed(rewrite.children(expr)))
        else:
            yield expr


def _identity(expr: Any) -> Identity:
    """Identifies a value before and after a pass that may have copied it."""
    if isinstance(expr, relay.Var):
        return "variable", str(expr.name_hint)
    if isinstance(expr, relay.Constant):
        return "constant", int(expr.data.handle.contents.data or 0)
    known = key(expr)
    return ("call", (rewrite.op_name(expr), known)) if known else ("other", expr.handle.value)
