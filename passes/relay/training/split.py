"""Splitting a joint program into a forward and a backward."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relay

from relascope.core.graph import Graph
from relascope.passes.cuts.cut import Cut
from relascope.passes.cuts.joint import original
from relascope.passes.cuts.split_program import SplitProgram, capture_names, chosen_cut, part_of
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import children, rebuilt, with_children

PER_USE = "relascope.per_use"
"""The attribute of a function that computes values more than once, on purpose."""


def split(
    program: RelayProgram, graph: Graph, exprs: Mapping[str, Any], captures: Iterable[str]
) -> SplitProgram:
    """Split a joint program in graph normal form; see `passes.cuts.split_program.SplitProgram`.
    Raises EngineError of kind "usage" if a node cannot be captured, or the program has no
    gradients. `graph` is the program's, with `forward_outputs`, and `exprs` the Relay expression of
    each node, by id; `captures` are ids of the nodes that the forward saves. The backward
    recomputes the rest."""
    cut, main = chosen_cut(graph, captures), program.main
    results = list(main.body.fields)
    outputs, gradients = results[: program.outputs], results[program.outputs :]
    saved, names = [exprs[i] for i in cut.handed], capture_names(cut)
    variables = [relay.var(n, e.checked_type) for n, e in zip(names, saved, strict=True)]
    instead = {e.handle.value: v for e, v in zip(saved, variables, strict=True)}
    forward = _half(program, "forward", rebuilt([*outputs, *saved], {}), [*outputs, *saved])
    new = rebuilt(gradients, _rewired(exprs, cut, instead))
    backward = _half(program, "backward", new, gradients, variables, bool(cut.rewiring))
    return SplitProgram.of(program, forward, backward, cut)


def _rewired(exprs: Mapping[str, Any], cut: Cut, instead: dict[int, Any]) -> dict[int, Any]:
    """By handle what replaces expressions in the backward: what `instead` has, and what reads
    values that are computed more than once."""
    new, made, edges = instead, dict[str, Any](), cut.joint.graph.edges
    for node_id in cut.rewired:
        of = exprs[original(node_id)]
        reads = zip(edges[original(node_id)], cut.rewiring[node_id], strict=True)
        read = {exprs[a].handle.value: made[b] for a, b in reads if b in made}
        new = rebuilt([c for c in children(of) if c.handle.value not in read], new)
        made[node_id] = with_children(of, [{**new, **read}[c.handle.value] for c in children(of)])
        if node_id in exprs:
            new = {**new, of.handle.value: made[node_id]}
    return new


def _half(
    program: RelayProgram,
    name: str,
    new: Mapping[int, Any],
    results: Sequence[Any],
    more: Sequence[Any] = (),
    rewired: bool = False,
) -> RelayProgram:
    """A function of the given results as `new` has them by handle; `more` are arguments of it."""
    body = relay.Tuple([new[r.handle.value] for r in results])
    params = [p for p in program.main.params if p.handle.value in new]
    function = relay.Function([*params, *more], body)
    if rewired:
        function = function.with_attr(PER_USE, 1)
    mod = relay.transform.InferType()(tvm.IRModule({name: function}))
    return part_of(program, mod, {p.name_hint for p in params})
