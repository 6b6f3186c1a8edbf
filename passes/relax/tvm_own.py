"""TVM's own Relax passes, as functions from program to program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from passes.relax.program import RelaxProgram
from passes.relax.rewrite import with_mod

Pass = Callable[[RelaxProgram], RelaxProgram]


def _module_pass(make: Callable[[], Any]) -> Pass:
    def run(program: RelaxProgram) -> RelaxProgram:
        return with_mod(program, make()(program.mod))

    return run


_t = relax.transform

eliminate_common_subexpr = _module_pass(_t.EliminateCommonSubexpr)
fold_constant = _module_pass(_t.FoldConstant)
combine_parallel_matmul = _module_pass(_t.CombineParallelMatmul)
decompose_for_inference = _module_pass(_t.DecomposeOpsForInference)
decompose_for_training = _module_pass(_t.DecomposeOpsForTraining)
remove_redundant_reshape = _module_pass(_t.RemoveRedundantReshape)
canonicalize_bindings = _module_pass(_t.CanonicalizeBindings)
dead_code_elimination = _module_pass(_t.DeadCodeElimination)
legalize_ops = _module_pass(_t.LegalizeOps)
annotate_op_pattern = _module_pass(_t.AnnotateTIROpPattern)
fuse_ops = _module_pass(_t.FuseOps)
fuse_tir = _module_pass(_t.FuseTIR)
fuse_transpose_matmul = _module_pass(_t.FuseTransposeMatmul)


def convert_layout(program: RelaxProgram, data: str = "NHWC", kernel: str = "OHWI") -> RelaxProgram:
    """ConvertLayout for 2D convolutions.

    Args:
        data, kernel: the wanted layouts of data and weights.
    """
    return with_mod(program, _t.ConvertLayout({"relax.nn.conv2d": [data, kernel]})(program.mod))


def to_mixed_precision(program: RelaxProgram, out: str = "float32") -> RelaxProgram:
    """ToMixedPrecision: matmuls and convolutions in float16.

    Args:
        out: dtype in which their results are accumulated.
    """
    return with_mod(program, _t.ToMixedPrecision(out_dtype=out)(program.mod))
