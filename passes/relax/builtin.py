"""TVM's own Relax passes, as functions from program to program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from relascope.core.errors import EngineError
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.ir.rewrite import bindings, op_name, with_mod

Pass = Callable[[RelaxProgram], RelaxProgram]


def _module_pass(make: Callable[[], Any]) -> Pass:
    def run(program: RelaxProgram) -> RelaxProgram:
        return with_mod(program, make()(program.mod))

    return run


_t = relax.transform

eliminate_common_subexpr = _module_pass(_t.EliminateCommonSubexpr)
combine_parallel_matmul = _module_pass(_t.CombineParallelMatmul)
remove_redundant_reshape = _module_pass(_t.RemoveRedundantReshape)
canonicalize_bindings = _module_pass(_t.CanonicalizeBindings)
dead_code_elimination = _module_pass(_t.DeadCodeElimination)
legalize_ops = _module_pass(_t.LegalizeOps)
annotate_op_pattern = _module_pass(_t.AnnotateTIROpPattern)
fuse_ops = _module_pass(_t.FuseOps)
fuse_tir = _module_pass(_t.FuseTIR)
fuse_transpose_matmul = _module_pass(_t.FuseTransposeMatmul)
inline = _module_pass(_t.InlinePrivateFunctions)
expand_matmul_of_sum = _module_pass(_t.ExpandMatmulOfSum)
adjust_matmul_order = _module_pass(_t.AdjustMatmulOrder)
reorder_permute_dims_after_concat = _module_pass(_t.ReorderPermuteDimsAfterConcat)
fast_math = _module_pass(_t.FastMathTransform)
plan_devices = _module_pass(_t.RealizeVDevice)


def topological_sort(
    program: RelaxProgram, order: str = "depth-first", direction: str = "from-inputs"
) -> RelaxProgram:
    """TopologicalSort.

    Args:
        order: "depth-first" or "breadth-first".
        direction: "from-inputs" or "from-outputs".
    """
    return with_mod(program, _t.TopologicalSort(order, direction)(program.mod))


def decompose_for_inference(program: RelaxProgram) -> RelaxProgram:
    """DecomposeOpsForInference.

    Raises:
        EngineError: kind "pass"; a batch norm is in train mode. TVM does not look at its mode and
            would take the running statistics all the same.
    """
    _refuse_batch_norm(program, True, "decompose_inference")
    return with_mod(program, _t.DecomposeOpsForInference()(program.mod))


def decompose_for_training(program: RelaxProgram) -> RelaxProgram:
    """DecomposeOpsForTraining.

    Raises:
        EngineError: kind "pass"; a batch norm is in eval mode. TVM does not look at its mode and
            would take the batch's statistics all the same.
    """
    _refuse_batch_norm(program, False, "decompose_training")
    return with_mod(program, _t.DecomposeOpsForTraining()(program.mod))


def _refuse_batch_norm(program: RelaxProgram, training: bool, name: str) -> None:
    """Refuse a batch norm of a mode in which a pass would change its meaning without a word."""
    for variable, value in bindings(program.main):
        if op_name(value) == "nn.batch_norm" and bool(value.attrs.training) == training:
            scope, source = program.provenance.get(str(variable.name), ("", ""))
            where = " in ".join(p for p in (source or "nn.batch_norm", scope) if p)
            mode, others = ("train", "the running") if training else ("eval", "the batch's")
            raise EngineError(
                "pass",
                f"This batch norm is in {mode} mode, and the pass would normalise by "
                f"{others} statistics all the same.",
                where,
                f"Switch {name} off; "
                + (
                    "take decompose_training."
                    if training
                    else "take decompose_inference or decompose_batch_norm."
                ),
            )


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
