"""The default pipelines, and the order in which passes are listed."""

INFERENCE = {
    "relay": "cse|bind|fold|batch_matmul_nt|combine_batch_matmul|fold|linear_to_dense"
    "|drop_identities|fold|simplify_inference|fuse",
    "relax": "cse|combine_matmul|bind|decompose_inference|fold|remove_redundant_reshape"
    "|canonicalize|dce|legalize|annotate_pattern|fuse_ops|fuse_tir",
}
TRAINING = {
    "relay": "externalize_dropout|decompose_layer_norm|decompose_batch_norm|linear_to_dense"
    "|drop_identities|root_grad_out|gradient|graph_normal_form|static_like|drop_zeros|drop_ones"
    "|transpose_dedup|dce|cse",
    "relax": "decompose_gelu|decompose_layer_norm|decompose_batch_norm|root_grad_out|gradient"
    "|drop_zeros|drop_ones|transpose_dedup|transpose_of_matmul|remove_redundant_reshape"
    "|canonicalize|dce|cse",
}
JOINT = {
    "relax": "cse|drop_zeros|drop_ones|transpose_dedup|transpose_of_matmul"
    "|remove_redundant_reshape|canonicalize|dce|cse"
}
"""Passes that tidy up a program imported with PyTorch's gradient."""

ORDER = {
    "relay": """
        cse bind fold batch_matmul_nt combine_batch_matmul linear_to_dense drop_identities
        simplify_inference fuse fold_scale_axis backward_fold_scale_axis forward_fold_scale_axis
        combine_dense combine_conv2d simplify_expr canonicalize_ops fold_explicit_padding
        convert_layout alter_op_layout mixed_precision fast_math qnn_legalize qnn_canonicalize
        inline remove_unused_functions defuse externalize_dropout
        decompose_layer_norm decompose_batch_norm root_grad_out gradient graph_normal_form
        static_like shape_const_dedup drop_zeros drop_ones transpose_dedup dce masks_as_bits
    """,
    "relax": """
        cse bind fold combine_matmul decompose_inference decompose_training decompose_gelu
        decompose_layer_norm decompose_batch_norm root_grad_out gradient drop_zeros drop_ones
        transpose_dedup transpose_of_matmul fuse_transpose_matmul remove_redundant_reshape
        canonicalize dce masks_as_bits inline topological_sort expand_matmul_of_sum
        adjust_matmul_order reorder_permute_dims_after_concat fast_math convert_layout
        mixed_precision legalize annotate_pattern fuse_ops fuse_tir
    """,
}
"""The most common passes first. Passes that are not named here follow them."""
