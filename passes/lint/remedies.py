"""The passes that remove a hazard, in each IR, and a pipeline with them in it."""

from collections.abc import Mapping

from relascope.passes.catalogue import last_built, read_pipeline
from relascope.passes.pipeline import Pipeline

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
"""By IR and hazard, the passes that remove it, as in a pipeline's text; others have none."""

_BEFORE_BIND = {("relax", "combine_matmul")}
"""Passes that find nothing once the weights are constants."""


def with_remedy(ir: str, pipeline: Pipeline, remedy: str) -> Pipeline:
    """Put the passes that remove a hazard behind the last step that is built; passes that must
    precede constant weights, before the step that binds them; passes for inspection, at the end.
    Raises ValueError if there is no such pass."""
    steps, at = read_pipeline(ir, remedy).steps, last_built(ir, pipeline) + 1
    if last_built(ir, read_pipeline(ir, remedy)) < 0:
        at = len(pipeline)
    binds = [i for i, s in enumerate(pipeline) if s.enabled and s.name == "bind"]
    if binds and any((ir, s.name) in _BEFORE_BIND for s in steps):
        at = binds[0]
    for offset, step in enumerate(steps):
        pipeline = pipeline.inserted(at + offset, step)
    return pipeline
