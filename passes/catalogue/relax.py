"""Passes over Relax."""

from __future__ import annotations

from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.catalogue.parameters import Parameter

_HALF_OR_SINGLE = ("float32", "float16")
_DATA_LAYOUTS = ("NHWC", "NCHW")
_KERNEL_LAYOUTS = ("OHWI", "OIHW", "HWIO")
_DEVICE = Parameter(
    "device",
    "text",
    "cuda",
    "The device beside the CPU.",
    ("cuda", "opencl", "vulkan", "metal", "rocm"),
)

PASSES = (
    PassInfo(
        "cse",
        "relax",
        "EliminateCommonSubexpr",
        "Computes equal expressions once.",
        "TVM",
        "relascope.passes.relax.builtin:eliminate_common_subexpr",
        after="Equal calls of equal operands stand once; a renaming stands where the second was.",
    ),
    PassInfo(
        "bind",
        "relax",
        "BindParams",
        "Puts the weights into the program as constants, so that what depends on them alone can be "
        "computed now.",
        "TVM",
        "relascope.passes.relax.bind:bind",
        after="The weights are constants and no arguments any more, so they have no gradient.",
    ),
    PassInfo(
        "fold",
        "relax",
        "FoldConstant",
        "Computes every expression whose inputs are constants and stores the result.",
        "TVM; what only moves data, and plain arithmetic, is done by numpy, which is quicker",
        "relascope.passes.relax.fold_constant:fold_constant",
        before="It has constants: bind made them.",
        after="What depends on constants alone is a constant.",
    ),
    PassInfo(
        "combine_matmul",
        "relax",
        "CombineParallelMatmul",
        "Joins matmuls that read one input into one: q, k and v become a single product. Finds "
        "them before the weights are constants.",
        "TVM",
        "relascope.passes.relax.builtin:combine_parallel_matmul",
        before="Two products read one left operand, and their right sides are no constants yet.",
        after="Each is a slice of one product, whose weight is a constant after bind and fold.",
    ),
    PassInfo(
        "combine_conv2d",
        "relax",
        "CombineParallelConv2D",
        "Joins convolutions that read one input, with kernels of one size, into one.",
        "ours, after TVM's CombineParallelConv2D of Relay",
        "relascope.passes.relax.combine_conv2d:combine_conv2d",
        parameters=(
            Parameter("branches", "whole number", 2, "The fewest that are joined.", least=2),
        ),
        before=(
            "Two 2D convolutions, or as many as branches says, read one input, and differ in "
            "nothing but the number of channels."
        ),
        after="Each is a slice of one convolution.",
    ),
    PassInfo(
        "decompose_inference",
        "relax",
        "DecomposeOpsForInference",
        "Spells out batch norm by its running statistics, as only inference may.",
        "TVM",
        "relascope.passes.relax.builtin:decompose_for_inference",
        before="Batch norm is in eval mode.",
        after="There is no nn.batch_norm; fold computes what is left of weights.",
    ),
    PassInfo(
        "backward_fold_scale_axis",
        "relax",
        "BackwardFoldScaleAxis",
        "Folds a product with one number a channel into the weight of the convolution or matmul "
        "before it.",
        "ours, after TVM's BackwardFoldScaleAxis of Relay",
        "relascope.passes.relax.scales.backward_fold_scale_axis:backward_fold_scale_axis",
        before=(
            "A scale follows a convolution or matmul, with nothing between that it cannot move "
            "through; for relu and maxima it must be a positive constant."
        ),
        after="The scale stands at the weight; fold makes one constant of both.",
    ),
    PassInfo(
        "forward_fold_scale_axis",
        "relax",
        "ForwardFoldScaleAxis",
        "Folds a product with one number a channel into the weights of the convolutions or matmuls "
        "after it.",
        "ours, after TVM's ForwardFoldScaleAxis of Relay",
        "relascope.passes.relax.scales.forward_fold_scale_axis:forward_fold_scale_axis",
        before=(
            "Every reader of the scaled value is a convolution or matmul, or what a scale can "
            "move through; for relu and maxima it must be a positive constant."
        ),
        after="The scale stands at the weights; fold makes one constant of each.",
    ),
    PassInfo(
        "fold_scale_axis",
        "relax",
        "FoldScaleAxis",
        "Folds products with one number a channel into weights, backward and forward, and then "
        "what is constant.",
        "ours, after TVM's FoldScaleAxis of Relay",
        "relascope.passes.relax.scales.fold_scale_axis:fold_scale_axis",
        before=(
            "Weights and scales are constants, and batch norm is plain arithmetic: bind, "
            "decompose_inference and fold have run."
        ),
        after="No convolution or matmul has a scale of its own that its weight can take.",
    ),
    PassInfo(
        "decompose_training",
        "relax",
        "DecomposeOpsForTraining",
        "Spells out layer norm, and batch norm by the batch's statistics, in operators that have a "
        "gradient.",
        "TVM",
        "relascope.passes.relax.builtin:decompose_for_training",
        before="Batch norm is in train mode.",
        after="There is no nn.layer_norm and no nn.batch_norm.",
    ),
    PassInfo(
        "decompose_gelu",
        "relax",
        "gelu spelled out",
        "Writes gelu in erf (or tanh), which has a gradient.",
        "ours",
        "relascope.passes.relax.training.decompose_gelu:decompose_gelu",
        required=True,
        after="There is no nn.gelu and no nn.gelu_tanh.",
    ),
    PassInfo(
        "decompose_layer_norm",
        "relax",
        "layer norm spelled out",
        "Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a "
        "gradient.",
        "the tutorial's DecomposeLayerNorm, with the exact place of eps",
        "relascope.passes.relax.training.decompose_layer_norm:decompose_layer_norm",
        required=True,
        after="There is no nn.layer_norm, nn.group_norm or nn.instance_norm.",
    ),
    PassInfo(
        "decompose_batch_norm",
        "relax",
        "batch norm spelled out",
        "Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, "
        "which has a gradient.",
        "ours",
        "relascope.passes.relax.training.decompose_batch_norm:decompose_batch_norm",
        required=True,
        before="Batch norm is in eval mode.",
        after="There is no nn.batch_norm.",
    ),
    PassInfo(
        "root_grad_out",
        "relax",
        "grad_out rooted",
        "Multiplies each output with its grad_out and sums, so that the gradient of this scalar is "
        "the backward that PyTorch asks for.",
        "the tutorial",
        "relascope.passes.relax.training.root_grad_out:root_grad_out",
        required=True,
        excludes=("bind",),
        before="An output is of a floating type, and the parameters are arguments.",
        after=(
            "main returns the root, then the outputs; each floating output has an argument "
            "grad_out_<index>."
        ),
    ),
    PassInfo(
        "gradient",
        "relax",
        "Gradient",
        "Takes the reverse-mode gradient for every input and parameter.",
        "TVM, with gradients of ours for operators that lack one",
        "relascope.passes.relax.training.gradient:gradient",
        required=True,
        needs=("root_grad_out",),
        before="main returns the root, and every operator on the way has a gradient.",
        after="main returns a flat tuple: outputs, then the gradients of inputs and parameters.",
    ),
    PassInfo(
        "drop_zeros",
        "relax",
        "x + 0",
        "Removes sums with zeros, which gradients start from.",
        "the tutorial's ZeroZapp",
        "relascope.passes.relax.drop_zeros:drop_zeros",
        after="No sum has an operand of zeros, but for one that broadcasts the other.",
    ),
    PassInfo(
        "drop_ones",
        "relax",
        "x * 1",
        "Removes products with the ones that the chain rule starts from.",
        "the tutorial's OneZapp",
        "relascope.passes.relax.drop_ones:drop_ones",
        after="No product has a factor of ones, but for one that broadcasts the other.",
    ),
    PassInfo(
        "transpose_dedup",
        "relax",
        "transpose of transpose",
        "Makes one permute_dims of two, and none where they undo each other.",
        "the tutorial's TransposeDedup",
        "relascope.passes.relax.transpose_dedup:transpose_dedup",
        after="No permute_dims reads a permute_dims, and none leaves the axes in order.",
    ),
    PassInfo(
        "transpose_of_matmul",
        "relax",
        "transpose of a product",
        "Writes a transposed product as the product of the transposed operands, the other way "
        "round: gradients of weights need no copy then.",
        "ours",
        "relascope.passes.relax.transpose_of_matmul:transpose_of_matmul",
        before="A product is read by nothing but its transpose.",
        after="Such a product is written with its operands transposed.",
    ),
    PassInfo(
        "fuse_transpose_matmul",
        "relax",
        "FuseTransposeMatmul",
        "Makes one function of a matmul and the transpose of its right side.",
        "TVM",
        "relascope.passes.relax.builtin:fuse_transpose_matmul",
        before="A matmul reads a permute_dims on its right: the weights are not folded.",
        after="Such a pair is one kernel, which is no operator any more.",
    ),
    PassInfo(
        "remove_redundant_reshape",
        "relax",
        "RemoveRedundantReshape",
        "Makes one reshape of two, and none where the shape stays.",
        "TVM",
        "relascope.passes.relax.builtin:remove_redundant_reshape",
        after="No reshape reads a reshape, and each changes the shape.",
    ),
    PassInfo(
        "canonicalize",
        "relax",
        "CanonicalizeBindings",
        "Removes variables that only rename another.",
        "TVM",
        "relascope.passes.relax.builtin:canonicalize_bindings",
        after="No variable only renames another.",
    ),
    PassInfo(
        "dce",
        "relax",
        "DeadCodeElimination",
        "Removes what no output needs.",
        "TVM",
        "relascope.passes.relax.builtin:dead_code_elimination",
        after="Every binding is read, and every function is called.",
    ),
    PassInfo(
        "inline",
        "relax",
        "InlinePrivateFunctions",
        "Puts private functions in the place of their calls.",
        "TVM",
        "relascope.passes.relax.builtin:inline",
        before="main calls private functions of the module.",
        after="Those functions are gone.",
    ),
    PassInfo(
        "topological_sort",
        "relax",
        "TopologicalSort",
        "Puts bindings into another order in which each stands behind what it reads. The graph "
        "stays; what is held in memory at a time may not.",
        "TVM",
        "relascope.passes.relax.builtin:topological_sort",
        parameters=(
            Parameter(
                "order",
                "text",
                "depth-first",
                "How the graph is gone through.",
                ("depth-first", "breadth-first"),
            ),
            Parameter(
                "direction",
                "text",
                "from-inputs",
                "Where that begins.",
                ("from-inputs", "from-outputs"),
            ),
        ),
        after="Each binding stands behind what it reads, in the order that was asked for.",
    ),
    PassInfo(
        "expand_matmul_of_sum",
        "relax",
        "ExpandMatmulOfSum",
        "Writes x @ (A + B) as x @ A + x @ B.",
        "TVM",
        "relascope.passes.relax.builtin:expand_matmul_of_sum",
        before="A matmul reads a sum that weights alone do not decide, or that is not bound.",
        after="Such a product is a sum of two.",
    ),
    PassInfo(
        "adjust_matmul_order",
        "relax",
        "AdjustMatmulOrder",
        "Writes x @ (A @ B) as (x @ A) @ B, or the other way round, whichever takes less work.",
        "TVM",
        "relascope.passes.relax.builtin:adjust_matmul_order",
        before="A matmul reads a matmul.",
        after="Such a pair is written in the order of less work.",
    ),
    PassInfo(
        "reorder_permute_dims_after_concat",
        "relax",
        "ReorderPermuteDimsAfterConcat",
        "Joins weights first and transposes them as one, not each by itself.",
        "TVM",
        "relascope.passes.relax.builtin:reorder_permute_dims_after_concat",
        before="A concat reads transposes alone, as combine_matmul leaves it before fold.",
        after="One transpose reads the concat.",
    ),
    PassInfo(
        "fast_math",
        "relax",
        "FastMathTransform",
        "Replaces exp, erf, tanh and softmax by approximations in float32.",
        "TVM",
        "relascope.passes.relax.builtin:fast_math",
        before="It computes in float32; no gradient follows, for the quick forms have none.",
        after=(
            "exp, tanh, erf and softmax are kernels: fast_exp, fast_tanh, fast_erf and "
            "fast_softmax."
        ),
    ),
    PassInfo(
        "convert_layout",
        "relax",
        "ConvertLayout",
        "Turns 2D convolutions to another order of axes, NHWC where none is named.",
        "TVM",
        "relascope.passes.relax.builtin:convert_layout",
        parameters=(
            Parameter("data", "text", "NHWC", "The order of the data's axes.", _DATA_LAYOUTS),
            Parameter("kernel", "text", "OHWI", "The order of the weights' axes.", _KERNEL_LAYOUTS),
        ),
        after="Convolutions have the layout; permute_dims stands where it begins and ends.",
    ),
    PassInfo(
        "mixed_precision",
        "relax",
        "ToMixedPrecision",
        "Lets matmuls and convolutions take float16; results differ by its rounding.",
        "TVM",
        "relascope.passes.relax.builtin:to_mixed_precision",
        parameters=(
            Parameter(
                "out",
                "text",
                "float32",
                "The type in which results are summed up.",
                _HALF_OR_SINGLE,
            ),
        ),
        before="It computes in float32.",
        after=(
            "Products and convolutions take float16, and what the program returns keeps its type."
        ),
    ),
    PassInfo(
        "on_device",
        "relax",
        "hint_on_device marks",
        "Marks, wherever a value goes from one device to another, both. For looking: relascope "
        "builds for one device.",
        "ours, for RealizeVDevice",
        "relascope.passes.relax.on_device:on_device",
        looking=True,
        parameters=(
            Parameter(
                "operators",
                "text",
                "matmul nn.conv2d",
                "Those that run on the device, with blanks between.",
            ),
            _DEVICE,
        ),
        before="It has one of the operators named.",
        after="Two hint_on_device stand on every edge between devices; the module names both.",
    ),
    PassInfo(
        "plan_devices",
        "relax",
        "RealizeVDevice",
        "Gives every value a device, and puts a copy wherever one goes from device to device. "
        "For looking, as on_device.",
        "TVM",
        "relascope.passes.relax.builtin:plan_devices",
        looking=True,
        before="hint_on_device marks stand in it, and the module names their devices.",
        after="to_vdevice stands on every edge between devices; types say where a value lies.",
    ),
    PassInfo(
        "legalize",
        "relax",
        "LegalizeOps",
        "Gives every operator a kernel: a loop nest in TVM's tensor IR. For looking: building does "
        "this by itself.",
        "TVM",
        "relascope.passes.relax.builtin:legalize_ops",
        looking=True,
        after="Every operator is a call of a kernel.",
    ),
    PassInfo(
        "annotate_pattern",
        "relax",
        "AnnotateTIROpPattern",
        "Marks each kernel as elementwise, reduction, and so on, which decides what may fuse.",
        "TVM",
        "relascope.passes.relax.builtin:annotate_op_pattern",
        looking=True,
        before="It has kernels: legalize made them.",
        after="Every kernel has an op_pattern.",
    ),
    PassInfo(
        "fuse_ops",
        "relax",
        "FuseOps",
        "Groups kernels into the functions that will run as one.",
        "TVM",
        "relascope.passes.relax.builtin:fuse_ops",
        looking=True,
        before="Its kernels have an op_pattern: annotate_pattern gave it.",
        after="Kernels that will run as one stand in a function marked Primitive.",
    ),
    PassInfo(
        "fuse_tir",
        "relax",
        "FuseTIR",
        "Makes one kernel of each group.",
        "TVM",
        "relascope.passes.relax.builtin:fuse_tir",
        looking=True,
        before="It has functions marked Primitive: fuse_ops made them.",
        after="Each such function is one kernel.",
    ),
)

INFERENCE = (
    "cse|combine_matmul|bind|decompose_inference|fold|remove_redundant_reshape"
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
