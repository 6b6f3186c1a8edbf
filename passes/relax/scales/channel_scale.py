"""Numbers that a tensor is scaled by channel for channel, and how a weight takes them over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relascope.passes.relax.ir.rewrite import Maker, op_name, shape, with_args
from relascope.passes.relax.transpose_dedup import axes_of


@dataclass(frozen=True)
class Scale:
    """A factor, or a divisor, that is the same for all elements of a channel.

    Args:
        by: a constant, or a variable computed from weights, of one element or of as many as there
            are channels.
        divides: whether it is a divisor.
        axis: of the channels, in the tensor that is scaled; None of a single number.
    """

    by: Any
    divides: bool
    axis: int | None

    @property
    def positive(self) -> bool:
        """Whether all of its numbers are known to be above zero."""
        values = _numbers(self.by)
        return values is not None and bool((values > 0).all())

    @property
    def may_divide(self) -> bool:
        """Whether others can be divided by it: it is known, and far from zero and infinity."""
        values = _numbers(self.by)
        if values is None:
            return False
        limit = math.sqrt(np.finfo(values.dtype).tiny)
        size = np.abs(values)
        return bool(((size > limit) & (size < 1 / limit)).all())


def _numbers(expr: Any) -> np.ndarray[Any, Any] | None:
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def carried(call: Any, scale: Scale, back: bool) -> Scale:
    """A scale of a call's argument as one of its result, or with `back` the other way round."""
    if op_name(call) != "permute_dims" or scale.axis is None:
        return scale
    order = axes_of(call)
    return replace(scale, axis=order[scale.axis] if back else order.index(scale.axis))


class Applied:
    """Scales on their way into the weights of one program, as calls that are bound there."""

    def __init__(self) -> None:
        self._joined: dict[tuple[tuple[int, bool], ...], Scale] = {}

    def joined(self, scales: Sequence[Scale], maker: Maker) -> Scale:
        """One scale of several."""
        if len(scales) == 1:
            return scales[0]
        key = tuple((s.by.__chandle__(), s.divides) for s in scales)
        if key not in self._joined:
            axis = next((s.axis for s in scales if s.axis is not None), None)
            factor = _product([s.by for s in scales if not s.divides], maker)
            divisor = _product([s.by for s in scales if s.divides], maker)
            if factor is None:
                self._joined[key] = Scale(divisor, True, axis)
            elif divisor is None:
                self._joined[key] = Scale(factor, False, axis)
            else:
                made = maker.emit(relax.op.divide(factor, divisor))
                self._joined[key] = Scale(made, False, axis)
        return self._joined[key]

    def to(
        self,
        expr: Any,
        scales: Sequence[Scale],
        sizes: Sequence[int],
        maker: Maker,
        inverse: bool = False,
    ) -> Any:
        """A weight with scales applied.

        Args:
            sizes: the shape in which the numbers stand beside the weight's.
            inverse: divide by what is a factor, and the other way round.
        """
        scale = self.joined(scales, maker)
        by = scale.by
        one = math.prod(shape(by)) == 1
        wanted = [1] * len(sizes) if one else list(sizes)
        if list(shape(by)) != wanted and not (one and len(shape(by)) <= len(shape(expr))):
            by = maker.emit(relax.op.reshape(by, wanted))
        op = relax.op.divide if scale.divides != inverse else relax.op.multiply
        return maker.emit(op(expr, by))

    def shifted(
        self, call: Any, weight: Any, scales: Sequence[Scale], maker: Maker, inverse: bool
    ) -> Any:
        """A sum, or a difference, with its weight scaled, or with `inverse` divided by the scales.

        Args:
            weight: the one of its arguments that is scaled.
        """
        sizes = [1] * len(shape(call))
        axis = next((s.axis for s in scales if s.axis is not None), None)
        if axis is not None:
            sizes[axis] = shape(call)[axis]
        scaled = self.to(weight, scales, sizes, maker, inverse)
        return tvm.ir.Call(call.op, [scaled if a.same_as(weight) else a for a in call.args])

    def behind(self, call: Any, scales: Sequence[Scale], maker: Maker) -> Any:
        """A convolution or a product whose result is scaled by its weight."""
        weight = call.args[1]
        sizes = [1] * len(shape(weight))
        outward = -1 if op_name(call) == "matmul" else str(call.attrs.kernel_layout).index("O")
        sizes[outward] = shape(weight)[outward]
        return with_args(call, [call.args[0], self.to(weight, scales, sizes, maker)])

    def ahead(self, call: Any, scales: Sequence[Scale], maker: Maker) -> Any:
        """A convolution or a product that scales its data by its weight."""
        weight = call.args[1]
        sizes = [1] * len(shape(weight))
        groups = 1 if op_name(call) == "matmul" else int(call.attrs.groups)
        inward = -2 if op_name(call) == "matmul" else str(call.attrs.kernel_layout).index("I")
        sizes[inward] = shape(weight)[inward]
        if groups == 1 or all(s.axis is None for s in scales):
            return with_args(call, [call.args[0], self.to(weight, scales, sizes, maker)])
        # The channels of one group after those of another: apart, the outer axis in front.
        outward = str(call.attrs.kernel_layout).index("O")
        apart = list(shape(weight))
        apart[outward : outward + 1] = [groups, apart[outward] // groups]
        sizes[outward : outward + 1] = [groups, 1]
        laid = maker.emit(relax.op.reshape(weight, apart))
        if inward > outward:
            scaled = self.to(laid, scales, sizes, maker)
        else:
            scale = self.joined(scales, maker)
            table = maker.emit(relax.op.reshape(scale.by, [groups, shape(weight)[inward]]))
            turned = replace(scale, by=maker.emit(relax.op.permute_dims(table, [1, 0])))
            scaled = self.to(laid, [turned], sizes, maker)
        whole = relax.op.reshape(scaled, list(shape(weight)))
        return with_args(call, [call.args[0], maker.emit(whole)])


def _product(factors: Sequence[Any], maker: Maker) -> Any | None:
    """The product of scales, each of one number or of one a channel."""
    made = None
    for factor in factors:
        wide = [size for size in shape(factor) if size != 1]
        flat = factor if list(shape(factor)) == wide else maker.emit(relax.op.reshape(factor, wide))
        made = flat if made is None else maker.emit(relax.op.multiply(made, flat))
    return made
