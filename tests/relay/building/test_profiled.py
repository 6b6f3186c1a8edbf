"""Kernels are timed one by one, and each leads back to the nodes that it computes."""

import re

import pytest

import small_models  # noqa: F401
from kernel_profiles import check_figures, check_fusion, check_node, profile
from quick import QUICK
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline


@pytest.mark.exhaustive
def test_kernels_of_one_operator_put_out_the_value_of_their_node(session):
    source = ModelSource("bert_layer", tokens=6)
    check_nodes(*profile(session, source, default_pipeline("relay", False)))


@pytest.mark.exhaustive
def test_kernels_of_a_training_step_put_out_the_values_of_their_nodes(session):
    source = ModelSource("small_bert", batch=4, tokens=8, training=True)
    pipeline = default_pipeline("relay", True)
    found, graph, values = profile(session, source, pipeline, QUICK)
    check_nodes(found, graph, values)
    check_fusion(session, source, pipeline)


def check_nodes(found, graph, values):
    check_figures(found)
    checked = 0
    for kernel in found.kernels:
        if not kernel.nodes:
            # Packing a weight is TVM's own doing: no node of the graph.
            assert "layout_transform" in kernel.name
            continue
        last = graph.by_id[kernel.nodes[-1]]
        plain = re.sub(r"_\d+$", "", kernel.name).removeprefix("fused_")
        if len(kernel.nodes) == 1 and plain == last.op.replace(".", "_"):
            check_node(kernel, last.id, values)
            checked += 1
    assert checked >= 6
    mapped = [i for k in found.kernels for i in k.nodes]
    calls = [n for n in graph if n.kind.value == "call"]
    assert len(set(mapped)) > 0.7 * len(calls)


def test_the_same_node_is_computed_twice_only_where_it_is_computed_again(session):
    source = ModelSource("small_bert", tokens=6)
    found, _, _ = profile(session, source, default_pipeline("relay", False))
    mapped = [i for k in found.kernels for i in k.nodes]
    assert len(mapped) == len(set(mapped))
