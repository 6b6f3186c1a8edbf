"""The passes that remove a hazard, in each IR."""

from collections.abc import Mapping

_BOTH = {
    "constant": "fold",
    "weights": "bind|fold",
    "duplicates": "cse",
    "zeros": "drop_zeros",
    "ones": "drop_ones",
    "dead": "dce",
}
REMEDIES: Mapping[str, Mapping[str, str]] = {
    "relay": {
        **_BOTH,
        **dict.fromkeys(("transpose of transpose", "layouts"), "simplify_expr"),
        **dict.fromkeys(("cast of cast", "idle cast"), "simplify_expr"),
        "transposed weight": "linear_to_dense",
        "duplicates of constants": "shape_const_dedup|cse",
        "nn.conv2d": "combine_conv2d",
        "nn.dense": "combine_dense",
        "nn.batch_matmul": "combine_batch_matmul",
        "scale": "fold_scale_axis",
        "padding": "fold_explicit_padding",
        "idle transpose": "drop_identities",
        "unfused": "fuse",
    },
    "relax": {
        **_BOTH,
        **dict.fromkeys(("transpose of transpose", "layouts", "idle transpose"), "transpose_dedup"),
        "transpose of a product": "transpose_of_matmul",
        "transposed operand": "fuse_transpose_matmul",
        "matmul": "combine_matmul",
        "unfused": "fuse_ops",
    },
}
"""By IR and what was found, the pass or passes of the catalogue that remove it, as a pipeline has
them. What is not here, no pass removes."""
