"""Products with one number a channel, folded into the weights before or after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.builtin import canonicalize
from relascope.passes.relax.fold_constant import fold
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import Maker, op_name, rewrite, shape, variables
from relascope.passes.relax.ir.weights import weights_of
from relascope.passes.relax.scales.channel_scale import Applied, Scale, carried
from relascope.passes.relax.scales.scale_flow import Flow, Taker, ahead, behind, through

Plan = tuple[dict[int, list[Scale]], dict[int, int]]
"""By a variable's handle its scales, and of a product that goes the argument that stays."""


@listed("FoldScaleAxis", "ours, after TVM's FoldScaleAxis of Relay")
def fold_scale_axis(program: RelaxProgram) -> RelaxProgram:
    """Folds products with one number a channel into weights, backward and forward, and then what is
    constant.

    Before: Weights and scales are constants, and batch norm is plain arithmetic: bind,
        decompose_inference and fold have run.
    After: No convolution or matmul has a scale of its own that its weight can take.
    """
    folded = forward_fold_scale_axis(backward_fold_scale_axis(program))
    return program if folded is program else fold(folded)


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
    return _folded(program, _plan_backward, back=True)


@listed("ForwardFoldScaleAxis", "ours, after TVM's ForwardFoldScaleAxis of Relay")
def forward_fold_scale_axis(program: RelaxProgram) -> RelaxProgram:
    """Folds a product with one number a channel into the weights of the convolutions or matmuls
    after it.

    conv(x * s, w) becomes conv(x, w * s), with s along the weight's input channels, and the same
    for a division and for matmul. All that reads x * s must be able to take it. On the way may
    stand pooling, padding with zeros, transposes, sums with biases, which are divided by s, where
    all of s is known and far from zero, and relu and maxima where all of s is known to be above
    zero. What TVM calls ForwardFoldScaleAxis in Relay; Relax has none.

    Before: Every reader of the scaled value is a convolution or matmul, or what a scale can move
        through; for relu and maxima it must be a positive constant.
    After: The scale stands at the weights; fold makes one constant of each.
    """
    return _folded(program, _plan_forward, back=False)


def _folded(program: RelaxProgram, plan: Callable[[Flow], Plan], back: bool) -> RelaxProgram:
    tidy = canonicalize(program)
    flow = Flow(tidy)
    scales, gone = plan(flow)
    if not gone:
        return program
    applied = Applied()

    def rule(call: Any, maker: Maker) -> Any:
        handle = maker.variable.__chandle__()
        if handle in gone:
            return call.args[gone[handle]]
        if handle not in scales:
            return None
        if not back and ahead(flow, call) is not None:
            return applied.ahead(call, scales[handle], maker)
        maker.unlike.add(str(maker.variable.name))  # it takes the product's value, or lacks it
        weight = flow.linear(call)
        if weight is not None and op_name(call) in ("add", "subtract"):
            return applied.shifted(call, weight, scales[handle], maker, inverse=not back)
        if back and behind(flow, call) is not None:
            return applied.behind(call, scales[handle], maker)
        return None

    return rewrite(tidy, rule, weights_of(tidy))


def _plan_backward(flow: Flow) -> Plan:
    """What each variable is scaled by from now on, and the products that go."""
    takers: dict[int, Taker] = {}
    for variable, call in flow.bound:
        if variable.__chandle__() not in flow.weights and op_name(call):
            taker = _taker_behind(flow, call, takers)
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


def _taker_behind(flow: Flow, call: Any, takers: dict[int, Taker]) -> Taker | None:
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


def _plan_forward(flow: Flow) -> Plan:
    """By what the data that each variable is computed from lacks, and the products that go."""
    takers: dict[int, Taker | None] = dict.fromkeys(flow.returned)
    for variable, call in reversed(flow.bound):
        if variable.__chandle__() in flow.weights:
            continue
        for source in {v.__chandle__(): v for v in variables(call)}.values():
            handle = source.__chandle__()
            found = _taker_ahead(flow, call, source, takers.get(variable.__chandle__()))
            takers[handle] = _both(takers[handle], found) if handle in takers else found
    lacks: dict[int, list[Scale]] = {}  # of a variable's own value
    scales: dict[int, list[Scale]] = {}  # of what it is computed from
    gone: dict[int, int] = {}
    for variable, call in flow.bound:
        handle = variable.__chandle__()
        if handle in flow.weights or not op_name(call):
            continue
        data = flow.data(call)
        moving = [s for source in data[:1] for s in lacks.get(source.__chandle__(), [])]
        if moving:
            scales[handle] = moving
        scale, taker = flow.scale(call), takers.get(handle)
        if scale is not None and taker is not None and taker.takes(scale):
            gone[handle] = next(i for i, a in enumerate(call.args) if a.same_as(data[0]))
            moving = [*moving, scale]
        if moving and ahead(flow, call) is None:
            lacks[handle] = [carried(call, s, back=False) for s in moving]
    return scales, gone


def _taker_ahead(flow: Flow, call: Any, source: Any, result: Taker | None) -> Taker | None:
    """What a call can take over from one of its arguments, given what can be taken from it."""
    if [v.__chandle__() for v in flow.data(call)] != [source.__chandle__()] or not op_name(call):
        return None
    found = ahead(flow, call)
    if found is not None or result is None:
        return found
    if flow.linear(call) is not None:
        shifts = op_name(call) in ("add", "subtract")
        return replace(result, may_divide=result.may_divide or shifts)
    return through(call, result, back=False)


def _both(one: Taker | None, other: Taker | None) -> Taker | None:
    """What two readers can both take over."""
    if one is None or other is None or (one.axis, one.dtype) != (other.axis, other.dtype):
        return None
    return replace(
        one, positive=one.positive or other.positive, may_divide=one.may_divide or other.may_divide
    )
