"""The passes that remove a hazard, in each IR."""

from __future__ import annotations

from collections.abc import Mapping

REMEDIES: Mapping[str, Mapping[str, str]] = {
    "relay": {
        "transpose of transpose": "simplify_expr",
        "transposed weight": "linear_to_dense",
        "layouts": "simplify_expr",
        "cast of cast": "simplify_expr",
        "idle cast": "simplify_expr",
        "constant": "fold",
        "weights": "bind|fold",
        "duplicates": "cse",
        "duplicates of constants": "shape_const_dedup|cse",
        "nn.dense": "combine_dense",
        "nn.batch_matmul": "combine_batch_matmul",
        "nn.conv2d": "combine_conv2d",
        "scale": "fold_scale_axis",
        "padding": "fold_explicit_padding",
        "zeros": "drop_zeros",
        "ones": "drop_ones",
        "idle transpose": "drop_identities",
        "dead": "dce",
        "unfused": "fuse",
    },
    "relax": {
        "transpose of transpose": "transpose_dedup",
        "transpose of a product": "transpose_of_matmul",
        "transposed operand": "fuse_transpose_matmul",
        "layouts": "transpose_dedup",
        "constant": "fold",
        "weights": "bind|fold",
        "duplicates": "cse",
        "matmul": "combine_matmul",
        "nn.conv2d": "combine_conv2d",
        "scale": "fold_scale_axis",
        "zeros": "drop_zeros",
        "ones": "drop_ones",
        "idle transpose": "transpose_dedup",
        "dead": "dce",
        "unfused": "fuse_ops",
    },
}
"""By IR and what was found, the pass or passes of the catalogue that remove it, as a pipeline has
them. What is not here, no pass removes."""
