"""Products beside convolutions and matmuls, folded into their weights."""

from __future__ import annotations

from relascope.passes.relax.fold_constant import fold_constant
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.scales.backward_fold_scale_axis import backward_fold_scale_axis
from relascope.passes.relax.scales.forward_fold_scale_axis import forward_fold_scale_axis


def fold_scale_axis(program: RelaxProgram) -> RelaxProgram:
    """Fold scales backward, then forward, then what is constant, as FoldScaleAxis does in Relay."""
    folded = forward_fold_scale_axis(backward_fold_scale_axis(program))
    return program if folded is program else fold_constant(folded)
