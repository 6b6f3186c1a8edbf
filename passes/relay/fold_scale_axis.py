"""Scales folded into weights, from both sides."""

from relascope.passes.catalogue.entry import listed
from relascope.passes.relay.builtin import backward_fold_scale_axis, forward_fold_scale_axis
from relascope.passes.relay.fold_constant import fold
from relascope.passes.relay.ir.program import RelayProgram


@listed("FoldScaleAxis", "TVM, with its three parts called one by one")
def fold_scale_axis(program: RelayProgram) -> RelayProgram:
    """Folds products with one number a channel into weights, backward and forward, and then what is
    constant: batch norm vanishes into its convolution.

    BackwardFoldScaleAxis, ForwardFoldScaleAxis and FoldConstant run one after the other. TVM's pass
    of this name is the same three; asked for by itself, it does nothing at the default level of
    optimisation, without a word, for it skips passes above that level.

    Before: Weights and scales are constants, and batch norm is plain arithmetic: bind,
        simplify_inference and fold have run.
    After: No convolution or dense layer has a scale of its own that its weight can take.
    """
    return fold(forward_fold_scale_axis(backward_fold_scale_axis(program)))
