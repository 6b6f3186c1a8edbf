"""Scales folded into weights, from both sides."""

from __future__ import annotations

from relascope.passes.relay.builtin import backward_fold_scale_axis, forward_fold_scale_axis
from relascope.passes.relay.fold_constant import fold_constant
from relascope.passes.relay.ir.program import RelayProgram


def fold_scale_axis(program: RelayProgram) -> RelayProgram:
    """BackwardFoldScaleAxis, ForwardFoldScaleAxis and FoldConstant, one after the other.

    TVM's pass of this name is the same three; asked for by itself, it does nothing at the default
    level of optimisation, without a word, for it skips passes above that level.
    """
    return fold_constant(forward_fold_scale_axis(backward_fold_scale_axis(program)))
