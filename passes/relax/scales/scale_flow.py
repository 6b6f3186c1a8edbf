"""What scales can move through on their way to the weight of a convolution or a matmul."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import (
    Binding,
    bindings,
    dtype,
    is_floating,
    op_name,
    read_counts,
    result_type,
    results,
    shape,
    variables,
)
from relascope.passes.relax.ir.weights import is_weight, weights_of
from relascope.passes.relax.scales.channel_scale import Scale
from relascope.passes.relax.transpose_dedup import axes_of

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_HOMOGENEOUS = ("nn.relu", "nn.leakyrelu")
_MAXIMA = ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
_MEANS = tuple(f"nn.{kind}_pool{n}d" for kind in ("avg", "adaptive_avg") for n in (1, 2, 3))


@dataclass(frozen=True)
class Taker:
    """What scales a tensor's readers, or what it is computed from, can take over from it.

    Args:
        axis: of the channels, in the tensor.
        dtype: of the weight that takes them in the end.
        positive: they must be above zero, for they move through a maximum.
        may_divide: others are divided by them on the way.
    """

    axis: int
    dtype: str
    positive: bool = False
    may_divide: bool = False

    def takes(self, scale: Scale) -> bool:
        return (
            scale.axis in (None, self.axis)
            and dtype(scale.by) == self.dtype
            and (scale.positive or not self.positive)
            and (scale.may_divide or not self.may_divide)
        )


@dataclass
class Flow:
    """The bindings of a function, and who reads what.

    Args:
        program: without renamings.

    Attributes:
        bound: the bindings, in order.
        weights: handles of what weights alone decide.
        reads: how often each variable is read, results included, by its handle.
        returned: handles of the results.
    """

    program: RelaxProgram
    bound: list[Binding] = field(init=False)
    weights: set[int] = field(init=False)
    reads: Counter[int] = field(init=False)
    returned: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.bound = bindings(self.program.main)
        self.weights = weights_of(self.program)(self.bound)
        ends = results(self.program.main, self.bound)
        self.returned = {r.__chandle__() for r in ends}
        self.reads = read_counts(self.bound, ends)

    def weight(self, expr: Any) -> bool:
        return is_weight(expr, self.weights)

    def data(self, call: Any) -> list[Any]:
        """The arguments of a call that inputs go into."""
        return [v for v in variables(call) if v.__chandle__() not in self.weights]

    def scale(self, call: Any) -> Scale | None:
        """By what a call scales its one argument that inputs go into, if it does that alone."""
        other = self.linear(call)
        if other is None or op_name(call) not in ("multiply", "divide"):
            return None
        divides, rank = op_name(call) == "divide", len(shape(call))
        sizes = [1] * (rank - len(shape(other))) + list(shape(other))
        wide = [axis for axis, size in enumerate(sizes) if size != 1]
        if len(wide) > 1:
            return None
        return Scale(other, divides, wide[0] if wide else None)

    def linear(self, call: Any) -> Any | None:
        """The weight that a call adds to its other argument, or multiplies it with, else None.

        Not of a division by what is no weight, nor where the other argument is broadcast.
        """
        name = op_name(call)
        if name not in ("add", "subtract", "multiply", "divide") or not is_floating(call):
            return None
        left, right = call.args
        for kept, weight in ((left, right), (right, left)):
            if name == "divide" and weight is left:
                continue
            if self.weight(weight) and not self.weight(kept):
                return weight if result_type(kept) == result_type(call) else None
        return None


def ahead(flow: Flow, call: Any) -> Taker | None:
    """What scales a convolution or a product can take from its data into its weight."""
    name = op_name(call)
    if name not in (*_CONVOLUTIONS, "matmul") or not _has_weight(flow, call):
        return None
    data = call.args[0]
    if name == "matmul":
        return Taker(len(shape(data)) - 1, dtype(call))
    return Taker(str(call.attrs.data_layout).index("C"), dtype(call))


def behind(flow: Flow, call: Any) -> Taker | None:
    """What scales a convolution or a product can take from its result into its weight."""
    name = op_name(call)
    if name not in (*_CONVOLUTIONS, "matmul") or not _has_weight(flow, call):
        return None
    if name == "matmul":
        return Taker(len(shape(call)) - 1, dtype(call))
    layout = str(call.attrs.out_layout) or str(call.attrs.data_layout)
    return Taker(layout.index("C"), dtype(call)) if len(layout) == len(shape(call)) else None


def _has_weight(flow: Flow, call: Any) -> bool:
    data, weight = call.args
    if flow.weight(data) or not flow.weight(weight) or not is_floating(call):
        return False
    if not dtype(data) == dtype(weight) == dtype(call):
        return False
    if op_name(call) == "matmul":
        return len(shape(weight)) > 1
    kernel = str(call.attrs.kernel_layout)
    return len(kernel) == len(shape(weight)) and len(str(call.attrs.data_layout)) == len(kernel)


def through(call: Any, taker: Taker, back: bool) -> Taker | None:
    """What scales can move through a call that has one argument with data, and no weight.

    Args:
        taker: of the call's result, or with `back` of its argument.
        back: from the result to the argument.

    Returns:
        The taker of the call's argument, or with `back` of its result; None where none can move.
    """
    name, axis = op_name(call), taker.axis
    if name in _HOMOGENEOUS:
        return replace(taker, positive=True)
    if name in (*_MAXIMA, *_MEANS):
        if str(call.attrs.layout) != str(call.attrs.out_layout) or (
            str(call.attrs.layout)[axis] not in "NC"
        ):
            return None
        return replace(taker, positive=taker.positive or name in _MAXIMA)
    if name == "nn.pad":
        width = [int(w) for w in call.attrs.pad_width]
        zeros = str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0
        return taker if zeros and not any(width[2 * axis : 2 * axis + 2]) else None
    if name == "permute_dims":
        order = axes_of(call)
        return replace(taker, axis=order.index(axis) if back else order[axis])
    return None
