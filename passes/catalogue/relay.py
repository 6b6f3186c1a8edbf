"""Passes over Relay."""

from __future__ import annotations

from relascope.passes.catalogue.entry import PassInfo
from relascope.passes.catalogue.parameters import Parameter

_CPU = Parameter("cpu", "text", None, "LLVM's name of the CPU; any of the family otherwise.")
_BRANCHES = Parameter("branches", "whole number", 3, "The fewest that are joined.", least=2)
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
        "relay",
        "EliminateCommonSubexpr",
        "Computes equal expressions once: one reshape of the input for q, k and v, not three.",
        "TVM",
        "relascope.passes.relay.builtin:eliminate_common_subexpr",
        after="Equal calls of equal operands stand once; dropouts stay apart.",
    ),
    PassInfo(
        "bind",
        "relay",
        "bind parameters",
        "Puts the weights into the program as constants, so that what depends on them alone can be "
        "computed now.",
        "TVM, relay.build_module.bind_params_by_name",
        "relascope.passes.relay.bind:bind",
        after="The weights are constants and no arguments any more, so they have no gradient.",
    ),
    PassInfo(
        "fold",
        "relay",
        "FoldConstant",
        "Computes every expression whose inputs are constants and stores the result.",
        "TVM; what only moves data, and plain arithmetic, is done by numpy, which is quicker",
        "relascope.passes.relay.fold_constant:fold_constant",
        before="It has constants: bind made them.",
        after="What depends on constants alone is a constant.",
    ),
    PassInfo(
        "batch_matmul_nt",
        "relay",
        "batch_matmul to NT form",
        "Writes batch_matmul(a, b) as batch_matmul(a, transpose(b), transpose_b=True), the form "
        "that CombineParallelBatchMatmul takes.",
        "ours",
        "relascope.passes.relay.batch_matmul_nt:batch_matmul_nt",
        after="Every batch_matmul has transpose_a=False and transpose_b=True.",
    ),
    PassInfo(
        "combine_batch_matmul",
        "relay",
        "CombineParallelBatchMatmul",
        "Joins matmuls that read one input into one: q, k and v become a single product.",
        "TVM, by the tutorial's author",
        "relascope.passes.relay.builtin:combine_parallel_batch_matmul",
        parameters=(_BRANCHES,),
        before=(
            "Three batch_matmuls, or as many as branches says, read one left operand, in the form "
            "that batch_matmul_nt makes."
        ),
        after="Each is a slice of one product, whose weight is a constant after bind and fold.",
    ),
    PassInfo(
        "linear_to_dense",
        "relay",
        "linear layers to nn.dense",
        "Writes a matmul whose right side is one matrix for the whole batch as nn.dense, which the "
        "CPU schedules serve well.",
        "ours",
        "relascope.passes.relay.linear_to_dense:linear_to_dense",
        after=(
            "Products with one matrix for the whole batch are nn.dense, with their bias in front "
            "of the reshape."
        ),
    ),
    PassInfo(
        "drop_identities",
        "relay",
        "views that change nothing",
        "Removes reshapes, squeezes, broadcasts and transposes whose result is their operand, and "
        "makes one reshape of two.",
        "ours",
        "relascope.passes.relay.drop_identities:drop_identities",
        after="Every view changes something, and none reads another reshape.",
    ),
    PassInfo(
        "simplify_inference",
        "relay",
        "SimplifyInference",
        "Removes dropout and spells out the normalisations, as only inference may.",
        "TVM; norms in float64 are spelled out by ours",
        "relascope.passes.relay.simplify_inference:simplify_inference",
        before="It is for inference: running statistics, and no dropout.",
        after=(
            "Dropout and the normalisations are plain arithmetic or gone; fold computes what is "
            "left of weights."
        ),
    ),
    PassInfo(
        "fuse",
        "relay",
        "FuseOps",
        "Groups operators into the kernels that will run. For looking: building fuses by itself.",
        "TVM",
        "relascope.passes.relay.builtin:fuse_ops",
        looking=True,
        after="Every operator stands in a function marked Primitive, which will be one kernel.",
    ),
    PassInfo(
        "fold_scale_axis",
        "relay",
        "FoldScaleAxis",
        "Folds products with one number a channel into weights, backward and forward, and then "
        "what is constant: batch norm vanishes into its convolution.",
        "TVM, with its three parts called one by one",
        "relascope.passes.relay.fold_scale_axis:fold_scale_axis",
        before=(
            "Weights and scales are constants, and batch norm is plain arithmetic: bind, "
            "simplify_inference and fold have run."
        ),
        after="No convolution or dense layer has a scale of its own that its weight can take.",
    ),
    PassInfo(
        "backward_fold_scale_axis",
        "relay",
        "BackwardFoldScaleAxis",
        "Folds a product with one number a channel into the weight of the convolution or dense "
        "layer before it.",
        "TVM",
        "relascope.passes.relay.builtin:backward_fold_scale_axis",
        before=(
            "A scale follows a convolution or dense layer, with nothing but sums and ReLUs "
            "between; for a ReLU it must be a positive constant."
        ),
        after="The scale stands at the weight; fold makes one constant of both.",
    ),
    PassInfo(
        "forward_fold_scale_axis",
        "relay",
        "ForwardFoldScaleAxis",
        "Folds a product with one number a channel into the weights of the convolutions or dense "
        "layers after it.",
        "TVM",
        "relascope.passes.relay.builtin:forward_fold_scale_axis",
        before=(
            "Every reader of the scaled value is a convolution or dense layer, with nothing but "
            "sums and ReLUs between; for a ReLU the scale must be a positive constant."
        ),
        after="The scale stands at the weights; fold makes one constant of each.",
    ),
    PassInfo(
        "combine_dense",
        "relay",
        "CombineParallelDense",
        "Joins dense layers that read one input into one product.",
        "TVM",
        "relascope.passes.relay.builtin:combine_parallel_dense",
        parameters=(
            _BRANCHES,
            Parameter("batch", "switch", True, "As one batch_matmul; else as one nn.dense."),
        ),
        before=(
            "Three nn.dense, or as many as branches says, read one input; linear_to_dense makes "
            "them."
        ),
        after="Each is a slice of one product.",
    ),
    PassInfo(
        "combine_conv2d",
        "relay",
        "CombineParallelConv2D",
        "Joins convolutions that read one input, with kernels of one size, into one.",
        "TVM",
        "relascope.passes.relay.builtin:combine_parallel_conv2d",
        parameters=(_BRANCHES,),
        before=(
            "Three 2D convolutions, or as many as branches says, read one input, and differ in "
            "nothing but the number of channels."
        ),
        after="Each is a slice of one convolution.",
    ),
    PassInfo(
        "simplify_expr",
        "relay",
        "SimplifyExpr",
        "Applies some forty small rules: views of views, casts of casts, sums and products of "
        "constants, x * 1, and the like.",
        "TVM",
        "relascope.passes.relay.builtin:simplify_expr",
    ),
    PassInfo(
        "canonicalize_ops",
        "relay",
        "CanonicalizeOps",
        "Writes nn.bias_add as a sum with the bias in the shape that broadcasts.",
        "TVM",
        "relascope.passes.relay.builtin:canonicalize_ops",
        after="There is no nn.bias_add.",
    ),
    PassInfo(
        "fold_explicit_padding",
        "relay",
        "FoldExplicitPadding",
        "Lets a convolution or pooling pad by itself where an operator of its own padded for it.",
        "TVM",
        "relascope.passes.relay.builtin:fold_explicit_padding",
        before=(
            "A padding is read by a convolution or pooling alone, and pads with what that would."
        ),
        after="The padding is an attribute of its reader.",
    ),
    PassInfo(
        "convert_layout",
        "relay",
        "ConvertLayout",
        "Turns 2D convolutions, and what can follow them, to another order of axes.",
        "TVM",
        "relascope.passes.relay.builtin:convert_layout",
        parameters=(
            Parameter("data", "text", "NHWC", "The order of the data's axes.", ("NHWC", "NCHW")),
        ),
        after="Convolutions have the layout; layout_transform stands where it begins and ends.",
    ),
    PassInfo(
        "alter_op_layout",
        "relay",
        "AlterOpLayout",
        "Gives convolutions the blocked layout that the schedules of a CPU are written for, such "
        "as NCHW16c. Building does this by itself.",
        "TVM",
        "relascope.passes.relay.builtin:alter_op_layout",
        parameters=(_CPU,),
        after=(
            "Convolutions are nn.contrib_conv2d_NCHWc; layout_transform stands where the layout "
            "begins and ends."
        ),
    ),
    PassInfo(
        "mixed_precision",
        "relay",
        "ToMixedPrecision",
        "Lets products and convolutions take float16; results differ by its rounding.",
        "TVM",
        "relascope.passes.relay.builtin:to_mixed_precision",
        after=(
            "Products and convolutions, and what may follow them, are in float16; what "
            "the program returns keeps its type."
        ),
    ),
    PassInfo(
        "fast_math",
        "relay",
        "FastMath",
        "Takes exp, tanh, erf and softmax by polynomials: quicker, and rounded otherwise.",
        "TVM",
        "relascope.passes.relay.builtin:fast_math",
        before="It computes in float32; no gradient follows, for the quick forms have none.",
        after="exp, tanh, erf and softmax are fast_exp, fast_tanh, fast_erf and fast_softmax.",
    ),
    PassInfo(
        "qnn_legalize",
        "relay",
        "QNN Legalize",
        "Writes quantized products and convolutions in integer operators that a CPU has.",
        "TVM",
        "relascope.passes.relay.builtin:qnn_legalize",
        parameters=(_CPU,),
        before="It has quantized operators (qnn.dense, qnn.conv2d).",
        after="The CPU's instructions fit what is left of them.",
    ),
    PassInfo(
        "qnn_canonicalize",
        "relay",
        "QNN CanonicalizeOps",
        "Writes what is left of quantized operators in plain ones, with scales as fixed-point "
        "products.",
        "TVM",
        "relascope.passes.relay.builtin:qnn_canonicalize",
        before="It has quantized operators.",
        after="There is no operator of the qnn dialect, so that it can be built.",
    ),
    PassInfo(
        "inline",
        "relay",
        "Inline",
        "Puts functions of the module that are marked Inline in the place of their calls.",
        "TVM",
        "relascope.passes.relay.builtin:inline",
        before=(
            "main calls functions of the module that are marked Inline=1, and that call no "
            "function without the mark."
        ),
        after="Those functions are gone.",
    ),
    PassInfo(
        "remove_unused_functions",
        "relay",
        "RemoveUnusedFunctions",
        "Removes functions of the module that main does not reach.",
        "TVM",
        "relascope.passes.relay.builtin:remove_unused_functions",
        before="The module has more functions than main.",
        after="Every function is main or called from it.",
    ),
    PassInfo(
        "on_device",
        "relay",
        "on_device marks",
        "Marks, wherever a value goes from one device to another, the device that computes it. "
        "For looking: relascope builds for one device.",
        "ours, for PlanDevices",
        "relascope.passes.relay.on_device:on_device",
        looking=True,
        parameters=(
            Parameter(
                "operators",
                "text",
                "nn.dense nn.batch_matmul nn.conv2d",
                "Those that run on the device, with blanks between.",
            ),
            _DEVICE,
        ),
        before="It has one of the operators named.",
        after="on_device stands on every edge between devices, one for each reader.",
    ),
    PassInfo(
        "plan_devices",
        "relay",
        "PlanDevices",
        "Gives every value a device, and puts a copy wherever one goes from device to device. "
        "For looking, as on_device.",
        "TVM",
        "relascope.passes.relay.plan_devices:plan_devices",
        looking=True,
        parameters=(_DEVICE,),
        before="on_device marks stand in it, each read once.",
        after="device_copy stands on every edge between devices.",
    ),
    PassInfo(
        "defuse",
        "relay",
        "DefuseOps",
        "Takes the groups of FuseOps apart again. For looking.",
        "TVM",
        "relascope.passes.relay.builtin:defuse_ops",
        looking=True,
        before="fuse made groups, right before it.",
        after="The program is as it was before fuse.",
    ),
    PassInfo(
        "externalize_dropout",
        "relay",
        "dropout to mask inputs",
        "Makes each dropout a product with a mask that PyTorch draws, in PyTorch's own order.",
        "the tutorial's ExternalizeDropout",
        "relascope.passes.relay.training.externalize_dropout:externalize_dropout",
        required=True,
        before="Dropouts have the spans of the import.",
        after="Each dropout is a product with an argument.",
    ),
    PassInfo(
        "decompose_layer_norm",
        "relay",
        "layer norm spelled out",
        "Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a "
        "gradient.",
        "the tutorial's DecomposeLayerNorm, with the exact place of eps",
        "relascope.passes.relay.training.decompose_layer_norm:decompose_layer_norm",
        required=True,
        after="There is no nn.layer_norm.",
    ),
    PassInfo(
        "decompose_batch_norm",
        "relay",
        "batch norm spelled out",
        "Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, "
        "which has a gradient.",
        "ours",
        "relascope.passes.relay.training.decompose_batch_norm:decompose_batch_norm",
        required=True,
        before="Batch norm is in eval mode.",
        after="There is no nn.batch_norm.",
    ),
    PassInfo(
        "root_grad_out",
        "relay",
        "grad_out rooted",
        "Multiplies each output with its grad_out and sums, so that the gradient of this scalar is "
        "the backward that PyTorch asks for.",
        "the tutorial",
        "relascope.passes.relay.training.root_grad_out:root_grad_out",
        required=True,
        excludes=("bind",),
        before="An output is of a floating type.",
        after=(
            "main returns the root, then the outputs; each floating output has an argument "
            "grad_out_<index>."
        ),
    ),
    PassInfo(
        "gradient",
        "relay",
        "gradient",
        "Takes the reverse-mode gradient for every input and parameter.",
        "TVM, relay.transform.gradient(mode='first_order')",
        "relascope.passes.relay.training.gradient:gradient",
        required=True,
        needs=("root_grad_out",),
        before="main returns the root, and every operator on the way has a gradient.",
        after=(
            "main is a chain of let bindings that ends in ((outputs), (gradients of all "
            "arguments))."
        ),
    ),
    PassInfo(
        "graph_normal_form",
        "relay",
        "ToGraphNormalForm",
        "Turns the gradient's let bindings back into a graph, and keeps the outputs and the wanted "
        "gradients.",
        "TVM, and the tutorial",
        "relascope.passes.relay.training.graph_normal_form:graph_normal_form",
        required=True,
        needs=("gradient",),
        before="It is right behind the gradient.",
        after=(
            "main is a graph again and returns a flat tuple: outputs, then the gradients of "
            "inputs and parameters."
        ),
    ),
    PassInfo(
        "static_like",
        "relay",
        "*_like to static shapes",
        "Replaces collapse_sum_like, broadcast_to_like, reshape_like, zeros_like and ones_like by "
        "forms whose shape is written down, so that nothing is kept for its shape alone.",
        "the tutorial's LikeZapp",
        "relascope.passes.relay.training.static_like:static_like",
        before="Shapes are static.",
        after="No operator reads a tensor for its shape or type alone.",
    ),
    PassInfo(
        "shape_const_dedup",
        "relay",
        "equal shapes once",
        "Lets operators that take a shape as a constant take one constant for equal shapes, so "
        "that cse sees that they are equal.",
        "the tutorial's ShapeConstDedup",
        "relascope.passes.relay.training.shape_const_dedup:shape_const_dedup",
        before="broadcast_to or collapse_sum_to read constants: static_like makes such.",
        after="Equal shapes are one constant.",
    ),
    PassInfo(
        "drop_zeros",
        "relay",
        "x + 0",
        "Removes the zeros that each gradient sum starts from.",
        "the tutorial's ZeroZapp",
        "relascope.passes.relay.drop_zeros:drop_zeros",
        after="No sum has an operand of zeros, but for one that broadcasts the other.",
    ),
    PassInfo(
        "drop_ones",
        "relay",
        "x * 1",
        "Removes products with the ones that the chain rule starts from.",
        "the tutorial's OneZapp",
        "relascope.passes.relay.drop_ones:drop_ones",
        after="No product has a factor of ones, but for one that broadcasts the other.",
    ),
    PassInfo(
        "transpose_dedup",
        "relay",
        "transpose of transpose",
        "Makes one transpose of two, and none where they undo each other.",
        "the tutorial's TransposeDedup",
        "relascope.passes.relay.transpose_dedup:transpose_dedup",
        after="No transpose reads a transpose.",
    ),
    PassInfo(
        "dce",
        "relay",
        "DeadCodeElimination",
        "Removes what no output needs.",
        "TVM",
        "relascope.passes.relay.builtin:dead_code_elimination",
        before="It has let bindings.",
        after="Every let binding is read.",
    ),
)

INFERENCE = (
    "cse|bind|fold|batch_matmul_nt|combine_batch_matmul|fold|linear_to_dense"
    "|drop_identities|fold|simplify_inference|fuse"
)
TRAINING = (
    "externalize_dropout|decompose_layer_norm|decompose_batch_norm|linear_to_dense"
    "|drop_identities|root_grad_out|gradient|graph_normal_form|static_like|drop_zeros|drop_ones"
    "|transpose_dedup|dce|cse"
)
