"""Products after a convolution or a matmul, folded into its weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.builtin import canonicalize
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, op_name, rewrite, shape
from relascope.passes.relax.ir.weights import weights_of
from relascope.passes.relax.scales.channel_scale import Applied, Scale, carried
from relascope.passes.relax.scales.scale_flow import Flow, Taker, behind, through


@listed("BackwardFoldScaleAxis", "ours, after TVM's BackwardFoldScaleAxis of Relay")
def backward_fold_scale_axis(program: RelaxProgram) -> RelaxProgram:
    """Folds a product with one number a channel into the weight of the convolution or matmul before
    it.

    (conv(x, w) + b) * s becomes conv(x, w * s) + b * s, and the same for a division and for matmul.
    Between the two may stand sums with biases, pooling, padding with zeros and transposes, and,
    where all of s is known to be above zero, relu and maxima; nothing else may read what lies
    between. What TVM calls BackwardFoldScaleAxis in Relay; Relax has none.

    Before: A scale follows a convolution or matmul, with nothing between that it cannot move
        through; for relu and maxima it must be a positive constant.
    After: The scale stands at the weight; fold makes one constant of both.
    """
    tidy = canonicalize(program)
    flow = Flow(tidy)
    scales, gone = _plan(flow)
    if not gone:
        return program
    applied = Applied()

    def rule(call: Any, maker: Maker) -> Any:
        handle = maker.variable.__chandle__()
        if handle in gone:
            return call.args[gone[handle]]
        if handle not in scales:
            return None
        maker.unlike.add(str(maker.variable.name))  # it takes the product's value
        weight = flow.linear(call)
        if weight is not None and op_name(call) in ("add", "subtract"):
            return applied.shifted(call, weight, scales[handle], maker, inverse=False)
        if behind(flow, call) is not None:
            return applied.behind(call, scales[handle], maker)
        return None

    return rewrite(tidy, rule, weights_of(tidy))


def _plan(flow: Flow) -> tuple[dict[int, list[Scale]], dict[int, int]]:
    """What each variable is scaled by from now on, and the products that go.

    Returns:
        By a variable's handle its scales, and of a product that goes the argument that stays.
    """
    takers: dict[int, Taker] = {}
    for variable, call in flow.bound:
        if variable.__chandle__() not in flow.weights and op_name(call):
            taker = _taker(flow, call, takers)
            if taker is not None:
                takers[variable.__chandle__()] = taker
    scales: dict[int, list[Scale]] = {}
    gone: dict[int, int] = {}
    for variable, call in reversed(flow.bound):
        handle = variable.__chandle__()
        if handle in flow.weights or not op_name(call):
            continue
        moving = scales.get(handle, [])
        scale = flow.scale(call)
        data = flow.data(call)
        if scale is not None:
            source = data[0].__chandle__()
            if flow.reads[source] == 1 and source in takers and takers[source].takes(scale):
                gone[handle] = next(i for i, a in enumerate(call.args) if a.same_as(data[0]))
                moving = [scale, *moving]
        if moving and behind(flow, call) is None:
            for source in data:
                scales[source.__chandle__()] = [carried(call, s, back=True) for s in moving]
    return scales, gone


def _taker(flow: Flow, call: Any, takers: dict[int, Taker]) -> Taker | None:
    """What a call's result can be scaled by, given what its arguments can be."""
    found = behind(flow, call)
    if found is not None:
        return found
    sources = flow.data(call)
    once = [s.__chandle__() for s in sources if flow.reads[s.__chandle__()] == 1]
    of = [takers[handle] for handle in once if handle in takers]
    if not of or len(of) != len(sources):
        return None
    first = of[0]
    if flow.linear(call) is not None:
        return first
    if len(sources) == 1:
        return through(call, first, back=True)
    alike = all((t.axis, t.dtype) == (first.axis, first.dtype) for t in of)
    if op_name(call) not in ("add", "subtract") or not alike or len(set(map(shape, sources))) > 1:
        return None
    return replace(first, positive=any(t.positive for t in of))
