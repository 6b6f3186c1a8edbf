"""A pipeline with the remedy of a finding in it."""

from relascope.passes.catalogue import last_built, read_pipeline
from relascope.passes.pipeline import Pipeline

_BEFORE_BIND = {("relax", "combine_matmul")}
"""Passes that find nothing once the weights are constants."""


def with_remedy(ir: str, pipeline: Pipeline, remedy: str) -> Pipeline:
    """Put the passes that remove a hazard behind the last one that is built from.

    Those that must precede constant weights stand before the step that makes them so; those only
    for looking, at the end. Raises ValueError where there is no such pass.
    """
    steps = read_pipeline(ir, remedy).steps
    at = last_built(ir, pipeline) + 1
    if last_built(ir, read_pipeline(ir, remedy)) < 0:
        at = len(pipeline)
    binds = [i for i, s in enumerate(pipeline) if s.enabled and s.name == "bind"]
    if binds and any((ir, s.name) in _BEFORE_BIND for s in steps):
        at = binds[0]
    for offset, step in enumerate(steps):
        pipeline = pipeline.inserted(at + offset, step)
    return pipeline
