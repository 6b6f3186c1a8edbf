"""Splitting a joint program into a forward and a backward."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relay

from relascope.core.graph import Graph
from relascope.passes.cuts.split_program import SplitProgram, capture_names, chosen_cut, part
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import rebuilt


def split(
    program: RelayProgram, graph: Graph, exprs: Mapping[str, Any], captures: Iterable[str]
) -> SplitProgram:
    """Split a joint program in graph normal form; see `passes.cuts.split_program.SplitProgram`.
    Raises EngineError of kind "usage" if a node cannot be captured, or the program has no
    gradients. `graph` is the program's, with `forward_outputs`, and `exprs` the Relay expression of
    each node, by id; `captures` are ids of the nodes that the forward saves. The backward
    recomputes the rest."""
    cut = chosen_cut(graph, captures)
    main = program.main
    results = list(main.body.fields)
    outputs, gradients = results[: program.outputs], results[program.outputs :]
    saved = [exprs[i] for i in cut.handed]
    names = capture_names(cut)
    variables = [relay.var(n, e.checked_type) for n, e in zip(names, saved, strict=True)]
    instead = {e.handle.value: v for e, v in zip(saved, variables, strict=True)}
    forward = _half(program, "forward", [*outputs, *saved], {})
    backward = _half(program, "backward", gradients, instead)
    return SplitProgram.of(program, forward, backward, cut)


def _half(
    program: RelayProgram, name: str, results: Sequence[Any], instead: Mapping[int, Any]
) -> RelayProgram:
    """A function of the given results whose last arguments replace some expressions."""
    new = rebuilt(results, instead)
    body = relay.Tuple([new[r.handle.value] for r in results])
    params = [p for p in program.main.params if p.handle.value in new]
    function = relay.Function([*params, *instead.values()], body)
    mod = relay.transform.InferType()(tvm.IRModule({name: function}))
    return part(program, mod, {p.name_hint for p in params})
