"""A joint program sawn into the forward and the backward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relay

from engine.session import EngineError
from passes.cut import Cut, cut_at
from passes.relay.program import RelayProgram
from passes.relay.rewrite import children
from viz.graph import Graph


@dataclass(frozen=True)
class Halves:
    """The two functions, and how values pass between them.

    Args:
        forward: its module has one function, "forward": it takes what it needs of the inputs,
            parameters and masks, in the joint program's order, and returns a flat tuple of the
            outputs, then the captures.
        backward: its module has one function, "backward": it takes what it needs of the inputs,
            parameters, masks and grad_outs, in the joint program's order, then the captures, and
            returns a flat tuple of gradients in the order of `RelayProgram.gradients`.
        captures: ids of the captures, in the order in which both functions have them.
        saved: names of the backward's arguments that the captures are handed to.
        cut: the same captures with what is to be known of them.
    """

    forward: RelayProgram
    backward: RelayProgram
    captures: tuple[str, ...]
    saved: tuple[str, ...]
    cut: Cut


def split(
    program: RelayProgram, graph: Graph, exprs: Mapping[str, Any], captured: Iterable[str]
) -> Halves:
    """Saw a joint program into two.

    Args:
        program: after the gradient, in graph normal form.
        graph: of the program, with `forward_outputs` set.
        exprs: the Relay expression of each node, by its id.
        captured: ids of the nodes that the forward saves. What else the backward needs of the
            forward, it computes again; constants stand in both functions.

    Raises:
        EngineError: kind "usage"; a node cannot be captured, or the program has no gradients.
    """
    try:
        cut = cut_at(graph, captured)
    except ValueError as wrong:
        raise EngineError(
            "usage", f"The program cannot be split there: {wrong}.", "split",
            "Capture tensors that the forward computes.",
        ) from wrong  # fmt: skip
    main = program.main
    results = list(main.body.fields)
    outputs, gradients = results[: program.outputs], results[program.outputs :]
    saved = [exprs[i] for i in cut.ids]
    names = tuple(f"saved_{i}".replace("#", "_") for i in cut.ids)
    variables = [relay.var(n, e.checked_type) for n, e in zip(names, saved, strict=True)]
    instead = {e.handle.value: v for e, v in zip(saved, variables, strict=True)}
    forward = _half(program, "forward", [*outputs, *saved], {})
    backward = _half(program, "backward", gradients, instead)
    return Halves(
        forward=replace(forward, grad_outs=(), outputs=len(outputs) + len(saved)),
        backward=replace(backward, inputs=(*backward.inputs, *names), outputs=len(gradients)),
        captures=cut.ids,
        saved=names,
        cut=cut,
    )


def _half(
    program: RelayProgram, name: str, results: Sequence[Any], instead: Mapping[int, Any]
) -> RelayProgram:
    """A function of the given results, in which some expressions are replaced by variables.

    The variables are its last arguments, all of them, needed or not.
    """
    new = _replaced(results, instead)
    body = relay.Tuple([new[r.handle.value] for r in results])
    params = [p for p in program.main.params if p.handle.value in new]
    function = relay.Function([*params, *instead.values()], body)
    mod = relay.transform.InferType()(tvm.IRModule({name: function}))
    taken = {p.name_hint for p in params}
    return replace(
        program,
        mod=mod,
        params={n: v for n, v in program.params.items() if n in taken},
        inputs=tuple(n for n in program.inputs if n in taken),
        buffers=tuple(n for n in program.buffers if n in taken),
        masks=tuple(m for m in program.masks if m.name in taken),
        grad_outs=tuple(n for n in program.grad_outs if n in taken),
        gradients=(),
    )


def _replaced(results: Iterable[Any], instead: Mapping[int, Any]) -> dict[int, Any]:
    """Every expression that the results still need after the replacement, by its old handle."""
    new: dict[int, Any] = dict(instead)
    todo: list[tuple[Any, bool]] = [(r, False) for r in results]
    while todo:
        expr, ready = todo.pop()
        handle = expr.handle.value
        if handle in new:
            continue
        below = list(children(expr))
        if not ready and below:
            todo.append((expr, True))
            todo.extend((c, False) for c in reversed(below))
            continue
        fresh = [new[c.handle.value] for c in below]
        if all(a.same_as(b) for a, b in zip(below, fresh, strict=True)):
            new[handle] = expr
        elif isinstance(expr, relay.Call):
            new[handle] = relay.Call(fresh[0], fresh[1:], expr.attrs, expr.type_args, expr.span)
        elif isinstance(expr, relay.Tuple):
            new[handle] = relay.Tuple(fresh, expr.span)
        else:
            new[handle] = relay.TupleGetItem(fresh[0], expr.index, expr.span)
    return new
