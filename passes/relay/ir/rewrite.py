"""Rewriting a Relay function node by node without recursion.

TVM's `ExprMutator` fails at Python's recursion limit on deep graphs; this walks in post order. It
rewrites graph normal form, and leaves let bindings and control flow as they are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relay

from relascope.passes import applications
from relascope.passes.relay.ir.program import RelayProgram

_PARTS = (relay.Call, relay.Tuple, relay.TupleGetItem)
"""Expressions that consist of others, except functions and let bindings."""

_NAMES: dict[int, str] = {}  # of operators, which TVM never frees, by address

Visit = Callable[[Any, list[Any]], Any]
"""From an original call and its rewritten arguments to its replacement, or None to keep the call
(with its rewritten arguments)."""

Visits = Visit | Mapping[str, Visit]
"""A visit of all calls, or visits by the names of operators."""


def everything(root: Any) -> list[Any]:
    """Every expression below `root`, producers first, each once, with those of nested functions."""
    nodes: list[Any] = []
    relay.analysis.post_order_visit(root, nodes.append)
    return nodes


def post_order(root: Any) -> list[Any]:
    """Every expression below `root`, producers first, each once, nested functions left out."""
    nodes = everything(root)
    if any(isinstance(n, relay.Function) and not n.same_as(root) for n in nodes):
        outside = _reachable_outside(root)
        nodes = [n for n in nodes if n.handle.value in outside]
    return nodes


def _reachable_outside(root: Any) -> set[int]:
    """Handles of the expressions reached without entering a nested function's body."""
    seen: set[int] = set()
    todo = [root.body if isinstance(root, relay.Function) else root]
    if isinstance(root, relay.Function):
        seen.add(root.handle.value)
        todo.extend(root.params)
    while todo:
        expr = todo.pop()
        if expr.handle.value in seen:
            continue
        seen.add(expr.handle.value)
        todo.extend(children(expr))
    return seen


def children(expr: Any) -> list[Any]:
    """The expressions that one expression reads directly."""
    if isinstance(expr, relay.Call):
        return [expr.op, *expr.args[:]]  # a slice asks TVM for the length once
    if isinstance(expr, relay.Tuple):
        return expr.fields[:]
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relay.Let):
        return [expr.var, expr.value, expr.body]
    return []


def with_children(expr: Any, fresh: Sequence[Any], span: Any = None) -> Any:
    """A call, tuple or item on inputs in the order of `children`; with `span` if it has none."""
    span = expr.span or span
    if isinstance(expr, relay.Call):
        return relay.Call(fresh[0], list(fresh[1:]), expr.attrs, expr.type_args, span)
    if isinstance(expr, relay.Tuple):
        return relay.Tuple(list(fresh), span)
    return relay.TupleGetItem(fresh[0], expr.index, span)


def op_name(expr: Any) -> str:
    """A call's operator, by name ("nn.dense"); "" for other expressions."""
    op = expr.op if isinstance(expr, relay.Call) else None
    if not isinstance(op, tvm.ir.Op):
        return ""
    address = op.handle.value
    if address not in _NAMES:
        _NAMES[address] = str(op.name)
    return _NAMES[address]


def shape(expr: Any) -> tuple[int, ...]:
    """The static shape of a typed expression."""
    return tuple(int(d) for d in expr.checked_type.shape)


def axes_of(call: Any, rank: int) -> list[int]:
    """The axes of a transpose, not negative; in reverse order if it has none."""
    axes = call.attrs.axes
    return [int(a) % rank for a in axes] if axes else list(range(rank))[::-1]


def turned(operand: Any, axes: list[int]) -> Any:
    """An operand with two axes exchanged; the inner operand if it is such a transpose itself."""
    if op_name(operand) == "transpose" and axes_of(operand, len(axes)) == axes:
        return operand.args[0]
    return relay.transpose(operand, axes=axes)


def rewrite_body(body: Any, visit: Visit) -> Any:
    """Rewrite an expression; see `rewrite`."""
    new: dict[int, Any] = {}

    def of(expr: Any) -> Any:
        return new.get(expr.handle.value, expr)

    for expr in post_order(body):
        if not isinstance(expr, _PARTS):
            continue
        below, result = children(expr), None
        fresh = [of(c) for c in below]
        if isinstance(expr, relay.Call):
            result = visit(expr, fresh[1:])
        elif isinstance(expr, relay.TupleGetItem) and isinstance(fresh[0], relay.Tuple):
            result = fresh[0].fields[expr.index]
        if result is None and any(not a.same_as(b) for a, b in zip(below, fresh, strict=True)):
            result = with_children(expr, fresh)
        if result is not None:
            new[expr.handle.value] = result
    return of(body)


def rewrite(program: RelayProgram, visits: Visits, arguments: Sequence[Any] = ()) -> RelayProgram:
    """Rewrite the calls of "main", producers first, and infer types again. A replacement without a
    span gets that of the call that it replaces, so its module stays known. The program is typed and
    in graph normal form. A visit may read types of the original call (`call.args[0].checked_type`),
    not of rewritten arguments, which may have none yet; see `Visit`. `arguments` are variables to
    append to the arguments of "main"."""
    main = program.main

    def keep_span(call: Any, args: list[Any]) -> Any:
        visit = visits if callable(visits) else visits.get(op_name(call))
        applications.looking_at(call)
        result = None if visit is None else visit(call, args)
        if result is None or not applications.may_replace(call):
            return None
        return spanned(result, call.span, args)

    body = rewrite_body(main.body, keep_span)
    applications.looking_at(None)
    if body.same_as(main.body):
        return program
    params = [*main.params, *arguments]
    return with_main(program, relay.Function(params, body, main.ret_type, [], main.attrs))


def unbound(expr: Any) -> Any:
    """A chain of let bindings as a graph: each variable's readers read its value. TVM's own pass
    recurses over the chain, and overflows the stack if it is long."""
    new: dict[int, Any] = {}
    while isinstance(expr, relay.Let):
        new[expr.var.handle.value] = rebuilt([expr.value], new)[expr.value.handle.value]
        expr = expr.body
    return rebuilt([expr], new)[expr.handle.value]


def rebuilt(results: Iterable[Any], new: dict[int, Any], span: Any = None) -> dict[int, Any]:
    """By old handle, every expression that some results need, after replacing some expressions by
    those in `new` (by handle), which grows by the rest and is returned. Expressions without a span
    get `span`, if not None."""
    todo: list[tuple[Any, bool]] = [(r, False) for r in results]
    while todo:
        expr, ready = todo.pop()
        handle = expr.handle.value
        if handle in new:
            continue
        below = children(expr)
        if span is not None and (not isinstance(expr, _PARTS) or expr.span is not None):
            new[handle] = expr
        elif not ready and below:
            todo.append((expr, True))
            todo.extend((c, False) for c in reversed(below))
        else:
            fresh = [new[c.handle.value] for c in below]
            same = all(a.same_as(b) for a, b in zip(below, fresh, strict=True))
            new[handle] = expr if same and span is None else with_children(expr, fresh, span)
    return new


def spanned(result: Any, span: Any, stop: Iterable[Any]) -> Any:
    """Give `span` to every call of `result` that has none, down to the expressions in `stop`."""
    if span is None:
        return result
    return rebuilt([result], {e.handle.value: e for e in stop}, span)[result.handle.value]


def with_main(program: RelayProgram, function: Any) -> RelayProgram:
    """The program with another "main", typed."""
    mod = copied(program.mod)
    mod["main"] = function
    return with_mod(program, mod)


def copied(mod: tvm.IRModule) -> tvm.IRModule:
    """A module of the same functions, to change without changing the first."""
    return tvm.IRModule(mod.functions, mod.type_definitions)


def with_mod(program: RelayProgram, mod: tvm.IRModule) -> RelayProgram:
    """The program with another module, typed."""
    return replace(program, mod=relay.transform.InferType()(mod))
