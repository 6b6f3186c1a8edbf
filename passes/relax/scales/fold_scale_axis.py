"""Products beside convolutions and matmuls, folded into their weights."""

from __future__ import annotations

from relascope.passes.catalogue.entry import listed
from relascope.passes.relax.fold_constant import fold
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.scales.backward_fold_scale_axis import backward_fold_scale_axis
from relascope.passes.relax.scales.forward_fold_scale_axis import forward_fold_scale_axis


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
