"""Passes over Relax."""

from __future__ import annotations

from passes.entry import PassInfo
from passes.parameters import Parameter

_HALF_OR_SINGLE = ("float32", "float16")
_DATA_LAYOUTS = ("NHWC", "NCHW")
_KERNEL_LAYOUTS = ("OHWI", "OIHW", "HWIO")

PASSES = (
    PassInfo(
        "cse", "relax", "EliminateCommonSubexpr",
        "Computes equal expressions once.",
        "TVM", "passes.relax.tvm_own:eliminate_common_subexpr",
    ),
    PassInfo(
        "bind", "relax", "BindParams",
        "Puts the weights into the program as constants, so that what depends on them alone can be "
        "computed now.",
        "TVM", "passes.relax.bind:bind",
    ),
    PassInfo(
        "fold", "relax", "FoldConstant",
        "Computes every expression whose inputs are constants and stores the result.",
        "TVM", "passes.relax.tvm_own:fold_constant",
    ),
    PassInfo(
        "combine_matmul", "relax", "CombineParallelMatmul",
        "Joins matmuls that read one input into one: q, k and v become a single product. Finds "
        "them before the weights are constants.",
        "TVM", "passes.relax.tvm_own:combine_parallel_matmul",
    ),
    PassInfo(
        "decompose_inference", "relax", "DecomposeOpsForInference",
        "Spells out batch norm by its running statistics, as only inference may.",
        "TVM", "passes.relax.tvm_own:decompose_for_inference",
    ),
    PassInfo(
        "decompose_training", "relax", "DecomposeOpsForTraining",
        "Spells out layer norm, and batch norm by the batch's statistics, in operators that have a "
        "gradient.",
        "TVM", "passes.relax.tvm_own:decompose_for_training",
    ),
    PassInfo(
        "decompose_gelu", "relax", "gelu spelled out",
        "Writes gelu in erf (or tanh), which has a gradient.",
        "ours", "passes.relax.decompose_gelu:decompose_gelu", required=True,
    ),
    PassInfo(
        "decompose_layer_norm", "relax", "layer norm spelled out",
        "Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a "
        "gradient.",
        "the tutorial's DecomposeLayerNorm, with the exact place of eps",
        "passes.relax.decompose_layer_norm:decompose_layer_norm", required=True,
    ),
    PassInfo(
        "decompose_batch_norm", "relax", "batch norm spelled out",
        "Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, "
        "which has a gradient.",
        "ours", "passes.relax.decompose_batch_norm:decompose_batch_norm", required=True,
    ),
    PassInfo(
        "root_grad_out", "relax", "grad_out rooted",
        "Multiplies each output with its grad_out and sums, so that the gradient of this scalar is "
        "the backward that PyTorch asks for.",
        "the tutorial", "passes.relax.root_grad_out:root_grad_out", required=True,
        excludes=("bind",),
    ),
    PassInfo(
        "gradient", "relax", "Gradient",
        "Takes the reverse-mode gradient for every input and parameter.",
        "TVM, with gradients of ours for operators that lack one",
        "passes.relax.gradient:gradient", required=True, needs=("root_grad_out",),
    ),
    PassInfo(
        "drop_zeros", "relax", "x + 0",
        "Removes sums with zeros, which gradients start from.",
        "the tutorial's ZeroZapp", "passes.relax.drop_zeros:drop_zeros",
    ),
    PassInfo(
        "drop_ones", "relax", "x * 1",
        "Removes products with the ones that the chain rule starts from.",
        "the tutorial's OneZapp", "passes.relax.drop_ones:drop_ones",
    ),
    PassInfo(
        "transpose_dedup", "relax", "transpose of transpose",
        "Makes one permute_dims of two, and none where they undo each other.",
        "the tutorial's TransposeDedup", "passes.relax.transpose_dedup:transpose_dedup",
    ),
    PassInfo(
        "transpose_of_matmul", "relax", "transpose of a product",
        "Writes a transposed product as the product of the transposed operands, the other way "
        "round: gradients of weights need no copy then.",
        "ours", "passes.relax.transpose_of_matmul:transpose_of_matmul",
    ),
    PassInfo(
        "fuse_transpose_matmul", "relax", "FuseTransposeMatmul",
        "Makes one function of a matmul and the transpose of its right side.",
        "TVM", "passes.relax.tvm_own:fuse_transpose_matmul",
    ),
    PassInfo(
        "remove_redundant_reshape", "relax", "RemoveRedundantReshape",
        "Makes one reshape of two, and none where the shape stays.",
        "TVM", "passes.relax.tvm_own:remove_redundant_reshape",
    ),
    PassInfo(
        "canonicalize", "relax", "CanonicalizeBindings",
        "Removes variables that only rename another.",
        "TVM", "passes.relax.tvm_own:canonicalize_bindings",
    ),
    PassInfo(
        "dce", "relax", "DeadCodeElimination",
        "Removes what no output needs.",
        "TVM", "passes.relax.tvm_own:dead_code_elimination",
    ),
    PassInfo(
        "convert_layout", "relax", "ConvertLayout",
        "Turns 2D convolutions to another order of axes, NHWC where none is named.",
        "TVM", "passes.relax.tvm_own:convert_layout",
        parameters=(
            Parameter("data", "text", "NHWC", "The order of the data's axes.", _DATA_LAYOUTS),
            Parameter(
                "kernel", "text", "OHWI", "The order of the weights' axes.", _KERNEL_LAYOUTS
            ),
        ),
    ),
    PassInfo(
        "mixed_precision", "relax", "ToMixedPrecision",
        "Lets matmuls and convolutions take float16; results differ by its rounding.",
        "TVM", "passes.relax.tvm_own:to_mixed_precision",
        parameters=(
            Parameter(
                "out", "text", "float32", "The type in which results are summed up.",
                _HALF_OR_SINGLE,
            ),
        ),
    ),
    PassInfo(
        "legalize", "relax", "LegalizeOps",
        "Gives every operator a kernel: a loop nest in TVM's tensor IR. For looking: building does "
        "this by itself.",
        "TVM", "passes.relax.tvm_own:legalize_ops", looking=True,
    ),
    PassInfo(
        "annotate_pattern", "relax", "AnnotateTIROpPattern",
        "Marks each kernel as elementwise, reduction, and so on, which decides what may fuse.",
        "TVM", "passes.relax.tvm_own:annotate_op_pattern", looking=True,
    ),
    PassInfo(
        "fuse_ops", "relax", "FuseOps",
        "Groups kernels into the functions that will run as one.",
        "TVM", "passes.relax.tvm_own:fuse_ops", looking=True,
    ),
    PassInfo(
        "fuse_tir", "relax", "FuseTIR",
        "Makes one kernel of each group.",
        "TVM", "passes.relax.tvm_own:fuse_tir", looking=True,
    ),
)  # fmt: skip

INFERENCE = (
    "cse|combine_matmul|bind|fold|decompose_inference|remove_redundant_reshape"
    "|canonicalize|dce|legalize|annotate_pattern|fuse_ops|fuse_tir"
)
TRAINING = (
    "decompose_gelu|decompose_layer_norm|decompose_batch_norm|root_grad_out|gradient"
    "|drop_zeros|drop_ones|transpose_dedup|transpose_of_matmul|remove_redundant_reshape"
    "|canonicalize|dce|cse"
)
JOINT = (
    "cse|drop_zeros|drop_ones|transpose_dedup|transpose_of_matmul|remove_redundant_reshape"
    "|canonicalize|dce|cse"
)
"""What tidies up a program that was imported with PyTorch's own gradient."""
