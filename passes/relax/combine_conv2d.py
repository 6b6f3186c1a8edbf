"""Convolutions of one input, joined."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import tvm_ffi
from tvm import relax

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.builtin import canonicalize
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import (
    Maker,
    bindings,
    dtype,
    op_name,
    rewrite,
    shape,
    with_args,
)
from relascope.passes.relax.ir.weights import is_weight, weights_of


@listed(
    "CombineParallelConv2D",
    "ours, after TVM's CombineParallelConv2D of Relay",
    least={"branches": 2},
)
def combine_conv2d(program: RelaxProgram, branches: int = 2) -> RelaxProgram:
    """Joins convolutions that read one input, with kernels of one size, into one.

    They must have equal attributes, kernels of one size, one group, and weights that no input goes
    into. What TVM calls CombineParallelConv2D in Relay; Relax has none.

    Before: Two 2D convolutions, or as many as branches says, read one input, and differ in nothing
        but the number of channels.
    After: Each is a slice of one convolution.

    Args:
        branches: The fewest that are joined.
    """
    tidy = canonicalize(program)
    bound = bindings(tidy.main)
    weights = weights_of(tidy)(bound)
    groups: dict[Any, list[tuple[int, Any]]] = defaultdict(list)
    for variable, call in bound:
        if _joins(call, weights):
            groups[_key(call)].append((variable.__chandle__(), call))
    joined = [g for g in groups.values() if len(g) >= max(branches, 2)]
    if not joined:
        return program
    place = {handle: (g, i) for g in joined for i, (handle, _) in enumerate(g)}
    parts: dict[int, Any] = {}  # the results of a whole group, by its first variable

    def rule(call: Any, maker: Maker) -> Any:
        if maker.variable.__chandle__() not in place:
            return None
        group, index = place[maker.variable.__chandle__()]
        first = group[0][0]
        if first not in parts:
            parts[first] = _together(call, [c for _, c in group], maker)
        return maker.emit(relax.TupleGetItem(parts[first], index))

    return rewrite(tidy, rule, weights_of(tidy))


def _joins(call: Any, weights: set[int]) -> bool:
    if op_name(call) != "nn.conv2d" or int(call.attrs.groups) != 1:
        return False
    data, weight = call.args
    plain = len(str(call.attrs.kernel_layout)) == len(str(call.attrs.data_layout)) == 4
    return plain and not is_weight(data, weights) and is_weight(weight, weights)


def _key(call: Any) -> Any:
    """Equal for those that can be joined."""
    data, weight = call.args
    outward = str(call.attrs.kernel_layout).index("O")
    size = tuple(s for axis, s in enumerate(shape(weight)) if axis != outward)
    return data.__chandle__(), tvm_ffi.structural_hash(call.attrs), size, dtype(weight)


def _together(call: Any, calls: list[Any], maker: Maker) -> Any:
    """The results of several convolutions, as a tuple.

    Args:
        call: the first of them, its arguments rewritten already.
    """
    kernels = [c.args[1] for c in calls]
    outward = str(call.attrs.kernel_layout).index("O")
    channels = str(call.attrs.out_layout or call.attrs.data_layout).index("C")
    weight = maker.emit(relax.op.concat(kernels, axis=outward))
    whole = with_args(call, [call.args[0], weight])
    ends, end = [], 0
    for kernel in kernels[:-1]:
        end += shape(kernel)[outward]
        ends.append(end)
    return maker.emit(relax.op.split(maker.emit(whole), ends, axis=channels))
