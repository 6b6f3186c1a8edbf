"""Kernels are timed one by one, and each leads back to the nodes that it computes."""

import small_models  # noqa: F401
from kernel_profiles import profile
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline


def test_the_same_node_is_computed_twice_only_where_it_is_computed_again(session):
    source = ModelSource("small_bert", tokens=6)
    found, _, _ = profile(session, source, default_pipeline("relay", False))
    mapped = [i for k in found.kernels for i in k.nodes]
    assert len(mapped) == len(set(mapped))
