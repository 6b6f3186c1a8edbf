"""Passes over Relay."""

from __future__ import annotations

from passes.entry import PassInfo

PASSES = (
    PassInfo(
        "cse", "relay", "EliminateCommonSubexpr",
        "Computes equal expressions once: one reshape of the input for q, k and v, not three.",
        "TVM", "passes.relay.tvm_own:eliminate_common_subexpr",
    ),
    PassInfo(
        "bind", "relay", "bind parameters",
        "Puts the weights into the program as constants, so that what depends on them alone can be "
        "computed now.",
        "TVM, relay.build_module.bind_params_by_name", "passes.relay.bind:bind",
    ),
    PassInfo(
        "fold", "relay", "FoldConstant",
        "Computes every expression whose inputs are constants and stores the result.",
        "TVM; what only moves data is done by numpy, which is quicker",
        "passes.relay.fold_constant:fold_constant",
    ),
    PassInfo(
        "batch_matmul_nt", "relay", "batch_matmul to NT form",
        "Writes batch_matmul(a, b) as batch_matmul(a, transpose(b), transpose_b=True), the form "
        "that CombineParallelBatchMatmul takes.",
        "ours", "passes.relay.batch_matmul_nt:batch_matmul_nt",
    ),
    PassInfo(
        "combine_batch_matmul", "relay", "CombineParallelBatchMatmul",
        "Joins matmuls that read one input into one: q, k and v become a single product.",
        "TVM, by the tutorial's author", "passes.relay.tvm_own:combine_parallel_batch_matmul",
    ),
    PassInfo(
        "linear_to_dense", "relay", "linear layers to nn.dense",
        "Writes a matmul whose right side is one matrix for the whole batch as nn.dense, which the "
        "CPU schedules serve well.",
        "ours", "passes.relay.linear_to_dense:linear_to_dense",
    ),
    PassInfo(
        "drop_identities", "relay", "views that change nothing",
        "Removes reshapes, squeezes, broadcasts and transposes whose result is their operand, and "
        "makes one reshape of two.",
        "ours", "passes.relay.drop_identities:drop_identities",
    ),
    PassInfo(
        "simplify_inference", "relay", "SimplifyInference",
        "Removes dropout and spells out the normalisations, as only inference may.",
        "TVM", "passes.relay.tvm_own:simplify_inference",
    ),
    PassInfo(
        "fuse", "relay", "FuseOps",
        "Groups operators into the kernels that will run. For looking: building fuses by itself.",
        "TVM", "passes.relay.tvm_own:fuse_ops", looking=True,
    ),
    PassInfo(
        "externalize_dropout", "relay", "dropout to mask inputs",
        "Makes each dropout a product with a mask that PyTorch draws, in PyTorch's own order.",
        "the tutorial's ExternalizeDropout", "passes.relay.externalize_dropout:externalize_dropout",
        required=True,
    ),
    PassInfo(
        "decompose_layer_norm", "relay", "layer norm spelled out",
        "Writes layer norm as (x - mean) / sqrt(variance + eps) * weight + bias, which has a "
        "gradient.",
        "the tutorial's DecomposeLayerNorm, with the exact place of eps",
        "passes.relay.decompose_layer_norm:decompose_layer_norm", required=True,
    ),
    PassInfo(
        "decompose_batch_norm", "relay", "batch norm spelled out",
        "Writes batch norm in eval mode as (x - mean) / sqrt(variance + eps) * weight + bias, "
        "which has a gradient.",
        "ours", "passes.relay.decompose_batch_norm:decompose_batch_norm", required=True,
    ),
    PassInfo(
        "root_grad_out", "relay", "grad_out rooted",
        "Multiplies each output with its grad_out and sums, so that the gradient of this scalar is "
        "the backward that PyTorch asks for.",
        "the tutorial", "passes.relay.root_grad_out:root_grad_out", required=True,
        excludes=("bind",),
    ),
    PassInfo(
        "gradient", "relay", "gradient",
        "Takes the reverse-mode gradient for every input and parameter.",
        "TVM, relay.transform.gradient(mode='first_order')", "passes.relay.gradient:gradient",
        required=True,
        needs=("root_grad_out",),
    ),
    PassInfo(
        "graph_normal_form", "relay", "ToGraphNormalForm",
        "Turns the gradient's let bindings back into a graph, and keeps the outputs and the wanted "
        "gradients.",
        "TVM, and the tutorial", "passes.relay.graph_normal_form:graph_normal_form", required=True,
        needs=("gradient",),
    ),
    PassInfo(
        "static_like", "relay", "*_like to static shapes",
        "Replaces collapse_sum_like, broadcast_to_like, reshape_like, zeros_like and ones_like by "
        "forms whose shape is written down, so that nothing is kept for its shape alone.",
        "the tutorial's LikeZapp", "passes.relay.static_like:static_like",
    ),
    PassInfo(
        "drop_zeros", "relay", "x + 0",
        "Removes the zeros that each gradient sum starts from.",
        "the tutorial's ZeroZapp", "passes.relay.drop_zeros:drop_zeros",
    ),
    PassInfo(
        "drop_ones", "relay", "x * 1",
        "Removes products with the ones that the chain rule starts from.",
        "the tutorial's OneZapp", "passes.relay.drop_ones:drop_ones",
    ),
    PassInfo(
        "transpose_dedup", "relay", "transpose of transpose",
        "Makes one transpose of two, and none where they undo each other.",
        "the tutorial's TransposeDedup", "passes.relay.transpose_dedup:transpose_dedup",
    ),
    PassInfo(
        "dce", "relay", "DeadCodeElimination",
        "Removes what no output needs.",
        "TVM", "passes.relay.tvm_own:dead_code_elimination",
    ),
)  # fmt: skip

INFERENCE = (
    "cse|bind|fold|batch_matmul_nt|combine_batch_matmul|fold|linear_to_dense"
    "|drop_identities|fold|simplify_inference|fuse"
)
TRAINING = (
    "externalize_dropout|decompose_layer_norm|decompose_batch_norm|linear_to_dense"
    "|drop_identities|root_grad_out|gradient|graph_normal_form|static_like|drop_zeros|drop_ones"
    "|transpose_dedup|dce|cse"
)
