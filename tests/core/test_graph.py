"""The graph model: JSON both ways, promises checked, nothing that depends on depth."""

import json
from dataclasses import replace

import pytest

from effort import calls_of
from graphs import chain, graph_of, transformer
from relascope.core.graph import Graph, Kind, Literal, Node, Role, TensorType


def test_json_round_trip_of_everything_a_node_can_hold():
    function = Node(
        "f",
        Kind.FUNCTION,
        attrs={"Primitive": 1, "list": [1, [2.5, None]], "text": 'a"b'},
        inputs=("x", Literal("0.5")),
        outputs=(TensorType((2, "n"), "float16"), TensorType((), "bool")),
        scope="a.b",
        source="aten::relu",
        role=Role.CAPTURED,
        body=graph_of("p; r nn.relu p", name="fused"),
    )
    whole = graph_of(["x :nx4", function], "f", gradients="f")
    graph = replace(whole, kernels={"k": "def k(): ..."})
    assert Graph.from_json(json.loads(json.dumps(graph.to_json()))) == graph


def test_a_long_chain_is_as_good_as_any_and_no_faster_growing_work():
    graph = chain(10_000)
    graph.validate()
    again = Graph.from_json(json.loads(json.dumps(graph.to_json())))
    assert again.nodes == graph.nodes
    assert len(again.ancestors([again.outputs[0]])) == 10_000
    assert again.readers["n0"] == ("n1",)

    def whole(graph):
        return lambda: Graph.from_json(graph.to_json()).ancestors(graph.outputs)

    assert calls_of(whole(chain(4000))) < 4.5 * calls_of(whole(chain(1000)))


def test_what_is_wrong_with_a_graph_or_its_json_is_said():
    data = transformer().to_json()
    del data["nodes"][5]["kind"]
    with pytest.raises(ValueError, match="kind"):
        Graph.from_json(data)
    with pytest.raises(ValueError, match="nodes"):
        Graph.from_json({"name": "x", "ir": "relay"})
    with pytest.raises(ValueError, match="another form"):
        Graph.from_json({**transformer().to_json(), "nodes": 5})
    with pytest.raises(ValueError, match="nowhere"):
        replace(transformer(), outputs=("nowhere",)).validate()


def test_counts_and_sizes():
    graph = transformer(2)
    assert graph.operators["nn.batch_matmul"] == 2 * 8
    assert list(graph.operators.values()) == sorted(graph.operators.values(), reverse=True)
    assert TensorType((2, 3), "float16").bytes == 12
    assert TensorType((2, "n"), "float32").bytes is None
    assert TensorType((), "int64").elements == 1
