"""Splitting a joint program into a forward and a backward."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from relascope.core.graph import Graph
from relascope.passes.cuts import split_program
from relascope.passes.cuts.cut import Cut
from relascope.passes.cuts.joint import MARK, original
from relascope.passes.cuts.split_program import SplitProgram, capture_names, chosen_cut, part_of
from relascope.passes.relax import channels_last
from relascope.passes.relax.ir import rewrite
from relascope.passes.relax.ir.program import RelaxProgram


def split(
    program: RelaxProgram, graph: Graph, exprs: Mapping[str, Any], captures: Iterable[str]
) -> SplitProgram:
    """Split a joint program, as the gradient leaves it, with the Relax variable of each node in
    `exprs`; otherwise as `passes.relay.training.split.split`."""
    cut, main = chosen_cut(graph, captures), program.main
    bound = rewrite.bindings(main)
    returned = rewrite.results(main, bound)
    outputs, gradients = returned[: program.outputs], returned[program.outputs :]
    saved, names = [exprs[i] for i in cut.handed], capture_names(cut)
    stand_ins = [relax.Var(n, v.ty) for n, v in zip(names, saved, strict=True)]
    instead = {v.__chandle__(): s for v, s in zip(saved, stand_ins, strict=True)}
    out, back = dict[int, rewrite.Binding](), list[rewrite.Binding]()
    for value in (exprs[i] for i in cut.offloaded):
        handle, name, kind = value.__chandle__(), value.name, value.ty
        copy = relax.op.call_pure_packed(split_program.TO_HOST, value, ty_args=kind)
        out[handle] = relax.DataflowVar(f"{name}_to_host", kind), copy
        given = relax.Tuple([instead[handle]])
        copy = relax.op.call_dps_packed(split_program.FROM_HOST, given, kind)
        instead[handle] = relax.DataflowVar(f"{name}_from_host", kind)
        back.append((instead[handle], copy))
    last = channels_last.in_a_row(bound)
    turned = [v.__chandle__() in last and v.__chandle__() not in out for v in saved]
    gives = [len(outputs) + k for k, is_last in enumerate(turned) if is_last]
    ahead = [b for one in bound for b in (one, out.get(one[0].__chandle__())) if b is not None]
    handed = [out[v.__chandle__()][0] if v.__chandle__() in out else v for v in saved]
    attrs: dict[str, Any] = {channels_last.GIVES: gives}
    forward = _half(program, "forward", ahead, [*outputs, *handed], [], attrs)
    # Values for the forward alone would draw their recomputed operands far ahead, so leave them
    # out.
    others = cut.joint.forward.difference(cut.recomputed, cut.joint.free)
    left = {exprs[i].__chandle__() for i in others if i in exprs}
    wired, again = _rewired(bound, exprs, cut)
    known = program.provenance
    origins = {str(v.name): known.get(str(exprs[original(i)].name)) for i, v in again.items()}
    program = replace(program, provenance={**known, **{n: o for n, o in origins.items() if o}})
    own = [(v, rewrite.substituted(e, instead)) for v, e in wired if v.__chandle__() not in left]
    movable = [exprs[i] for i in cut.recomputed] + [copy for copy, _ in back]
    kept = rewrite.late([*back, *own], {v.__chandle__() for v in (*movable, *again.values())})
    takes = [name for name, is_last in zip(names, turned, strict=True) if is_last]
    by_backward = [rewrite.substituted(g, instead) for g in gradients]
    attrs = {channels_last.TAKES: takes}
    backward = _half(program, "backward", kept, by_backward, stand_ins, attrs)
    return SplitProgram.of(program, forward, backward, cut)


def _rewired(
    bound: Sequence[rewrite.Binding], exprs: Mapping[str, Any], cut: Cut
) -> tuple[list[rewrite.Binding], dict[str, Any]]:
    """Bindings as the backward reads them, and by id the variables of values computed once more."""
    values, edges = {v.__chandle__(): value for v, value in bound}, cut.joint.graph.edges
    made: dict[str, Any] = {}
    tuples: dict[int, Any] = {}  # within calls, by those that they replace
    wired: dict[int, list[rewrite.Binding]] = {}
    for node_id in cut.rewired:
        of = exprs[original(node_id)]
        reads = zip(edges[original(node_id)], cut.rewiring[node_id], strict=True)
        new = {exprs[a].__chandle__(): made[b] for a, b in reads if b in made}
        value = rewrite.substituted(values.get(of.__chandle__(), of), new)
        if of.__chandle__() not in values:
            made[node_id] = value
            tuples |= {of.__chandle__(): value} if node_id in exprs else {}
            continue
        made[node_id] = of
        if node_id not in exprs:
            made[node_id] = relax.DataflowVar(f"{of.name}_{node_id.partition(MARK)[2]}", of.ty)
        wired.setdefault(of.__chandle__(), []).append((made[node_id], value))
    found = []
    for variable, value in bound:
        own = wired.get(variable.__chandle__(), [])
        first = [] if any(v.same_as(variable) for v, _ in own) else [(variable, value)]
        found += [(v, rewrite.substituted(e, tuples)) for v, e in (*first, *own)]
    return found, {i: v for i, v in made.items() if i not in exprs and isinstance(v, relax.Var)}


def _half(
    program: RelaxProgram,
    name: str,
    bound: Sequence[rewrite.Binding],
    returned: Sequence[Any],
    more: Sequence[Any],
    attrs: Mapping[str, Sequence[Any]],
) -> RelaxProgram:
    """A function of the given results; it takes the arguments that it needs, and all `more`."""
    function = rewrite.function_of([], bound, returned)
    read = rewrite.read_counts(rewrite.bindings(function), ())
    params = [p for p in program.main.params if p.__chandle__() in read]
    function = relax.Function([*params, *more], function.body, function.ret_ty, True)
    # Kernels that passes made, such as those of fast_math, are functions of the module.
    functions = {g: f for g, f in program.mod.functions.items() if g.name_hint != "main"}
    about = {"global_symbol": name, **{k: list(v) for k, v in attrs.items() if v}}
    functions[tvm.ir.GlobalVar(name)] = function.with_attrs(about)
    mod = tvm.IRModule(functions)
    if len(functions) > 1:
        mod = relax.transform.DeadCodeElimination([name])(mod)
    return part_of(program, relax.transform.Normalize()(mod), {str(p.name) for p in params})
