"""Searches of the client: ways of building on a machine, and nodes against PyTorch's tensors."""

from types import SimpleNamespace

import pytest

from answers import refused
from page_session import forward_graph
from relascope.engine.jobs import node_accuracy, variants
from relascope.engine.protocol.accuracy import Comparison, NodeError, Spread
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import PYTORCH
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.targets import Target
from relascope.passes.catalogue import last_built
from relascope.passes.pipeline import Pipeline
from relascope.viz.rows import tables

HERE = (
    Target("llvm -libs=blas -schedules=relascope -records=relascope", "a CPU", True),
    Target("llvm -libs=blas -schedules=relascope", "a CPU", True),
    Target("llvm -libs=openblas", "a CPU", True),
    Target("llvm -libs=blas", "a CPU", True),
    Target("llvm", "a CPU", True),
    Target("cuda -arch=sm_90", "a GPU", True),
    Target("cuda -arch=sm_90 -graphs=cuda", "a GPU", True),
    Target("cuda -arch=sm_80 -gpu=1", "another GPU", True),
    Target("opencl", "no GPU", False, "There is none."),
)

ON_CPU = ["library", "openblas", "schedules", "tuned", "mixed_precision", "layout"]


def names(target):
    return [o.name for o in variants.offers("relax", HERE, target)]


def test_ways_are_those_of_the_chosen_targets_device_and_are_chosen_by_name():
    assert names("llvm") == ["tvm", *ON_CPU]
    assert names("cuda -arch=sm_90") == ["tvm", "graphs", "mixed_precision", "layout"]
    assert names("cuda -gpu=1") == ["tvm", "mixed_precision", "layout"]
    assert names("opencl") == ["mixed_precision", "layout"]
    offered = variants.offers("relax", HERE, "llvm")
    assert variants.chosen("all", offered) == offered
    found = variants.chosen("layout, library,layout", offered)
    assert [o.name for o in found] == ["layout", "library"]
    for text in ("magic", ",", "library,magic"):
        with refused("usage"):
            variants.chosen(text, offered)


@pytest.mark.parametrize("training", [False, True])
def test_a_way_has_its_own_pipeline_and_captures(training):
    source, pipeline = ModelSource("mlp", training=training), Pipeline.parse("cse|dce")
    asked = []

    def split(request):
        asked.append(str(request.pipeline))
        return request.split_at([str(request.pipeline)])

    offered = variants.offers("relax", HERE, "llvm")
    made = variants.variants(BuildRequest(source, pipeline, "llvm"), offered, split)
    assert [w.name for w in made] == ON_CPU
    by_name = {w.name: w.request for w in made}
    assert (by_name["library"].pipeline, by_name["library"].target) == (pipeline, "llvm -libs=blas")
    mixed = by_name["mixed_precision"]
    last = "cse|dce|mixed_precision" if training else "mixed_precision|cse|dce"
    assert str(mixed.pipeline) == last
    assert mixed.target == "llvm" and mixed.captures == (str(mixed.pipeline),)
    assert len(asked) == 6


GRAPH = forward_graph()
CALLS = [n.id for n in GRAPH if n.op]


def asked(sizes, results=(), against=PYTORCH):
    """An engine whose nodes are off by `sizes[dtype]`, node by node; the calls are kept."""
    calls = []

    def ask(method, *rest):
        if method == "graph_after":
            source, pipeline, last = rest
            calls.append((method, source.dtype, str(pipeline), last))
            return GRAPH
        if method == "check":
            return results
        if method == "load":
            return SimpleNamespace(against=against)
        assert method == "inside"
        (request,) = rest
        source = request.source
        calls.append((method, source.dtype, str(request.pipeline), request.target))
        return tuple(
            NodeError(i, size, size, "aten::x in m", Spread(mean_abs=size / 2, nans=size > 1))
            for i, size in zip(CALLS, sizes[source.dtype], strict=False)
        )

    ask.calls = calls
    return ask


def said(sizes, dtype="float32", results=(), against=PYTORCH):
    ask = asked(sizes, results, against)
    source = ModelSource("mlp", dtype=dtype)
    found = list(node_accuracy.both(ask, "relay", source, Pipeline.parse("cse"), 0, "llvm"))
    return node_accuracy.verdict(*found), found


def test_what_is_within_or_compared_with_nothing_is_not_asked_for_in_float64():
    text, found = said({"float32": [1e-7, 1e-6]})
    assert text == "All 2 nodes with a counterpart in PyTorch are within the limit in float32."
    assert [f.dtype for f in found] == ["float32"]
    assert found[0].first is None
    text, found = said({"float32": []})
    assert "none can be compared" in text
    assert set(CALLS) <= set(found[0].without)


def test_a_program_without_pytorch_has_one_precision():
    text, found = said({"float32": [1e-7, 1e-6]}, against="ONNX Runtime")
    assert "with a counterpart in the imported program are within" in text
    text, found = said({"float32": [1e-7, 1e-3]}, against="the imported program")
    assert [f.dtype for f in found] == ["float32"]
    assert "one precision, so this may be rounding or a fault" in text


def test_float64_tells_rounding_from_a_fault():
    off = [1e-7, 1e-3, 1e-7]
    text, _ = said({"float32": off, "float64": [1e-16, 1e-15, 1e-16]})
    assert text.startswith("It is rounding: one node is over the limit in float32, first ")
    assert text.endswith("and none in float64.")
    text, found = said({"float32": off, "float64": [1e-16, 1e-3, 1e-16]})
    assert text.startswith("It is wrong: ")
    assert found[1].first.id == CALLS[1]
    text, found = said({"float64": [1e-3, 1e-16]}, "float64")
    assert text.startswith("It is wrong: ")
    assert "rounding plays no part" in text
    assert len(found) == 1


def test_outputs_that_are_swapped_are_wrong_though_all_nodes_are_right():
    swapped = [Comparison(f"output {i}", 1.5, 0.75, 2.0, "float32") for i in range(2)]
    right = {"float32": [1e-7, 1e-6], "float64": [1e-16, 1e-16]}
    text, found = said(right, results=swapped)
    assert text == (
        "It is wrong: output 0, output 1 are over the limit in float32, though all nodes are "
        "within it, and output 0, output 1 are in float64, too."
    )
    assert tables.inside_document(found)["compared"][0]["wrong_results"] == ["output 0", "output 1"]
    assert len(found) == 2


def test_rows_stand_farthest_first_with_all_figures():
    document = tables.inside_document(said({"float32": [1e-7, 2.0], "float64": [0.0, 2.0]})[1])
    single, double = document["compared"]
    assert [r["id"] for r in single["nodes"]] == [CALLS[1], CALLS[0]]
    assert single["nodes"][0]["nans"] == 1
    assert single["nodes"][0]["mean_abs"] == 1.0
    assert single["over"] == double["over"] == [CALLS[1]]
    assert document["verdict"].startswith("It is wrong")


@pytest.mark.parametrize(("index", "compared"), [(0, 0), (1, 0), (2, 0), (3, 3)])
def test_what_is_for_looking_is_not_compared(index, compared):
    pipeline = Pipeline.parse("cse|fuse|-fold|dce")
    assert last_built("relay", pipeline.upto(index)) == compared
    ask = asked({"float32": []})
    node_accuracy.look(ask, "relay", ModelSource("mlp"), pipeline, index, "llvm")
    assert {c[2] for c in ask.calls} == {str(pipeline.upto(compared))}
