"""What holds of every graph: it travels as JSON, and keeps its identity through a step."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, graphs
from relascope.core.graph import Graph, Kind
from relascope.core.identity import carry_identity


def renamed(graph, name):
    nodes = [
        replace(
            n, id=name(n.id), inputs=tuple(name(i) if isinstance(i, str) else i for i in n.inputs)
        )
        for n in graph.nodes
    ]
    ends = {"inputs": graph.inputs, "outputs": graph.outputs}
    return replace(graph, nodes=tuple(nodes), **{k: tuple(map(name, v)) for k, v in ends.items()})


@few
@given(graphs())
def test_a_graph_comes_back_from_json_as_it_was(graph):
    graph.validate()
    again = Graph.from_json(json.loads(json.dumps(graph.to_json())))
    assert again == graph
    assert again.readers == graph.readers


@few
@given(graphs(), st.data())
def test_a_node_that_is_read_before_it_is_made_is_refused(graph, data):
    node = data.draw(st.sampled_from([n for n in graph.nodes if n.edges]))
    first = graph.by_id[node.edges[0]]
    rest = [n for n in graph.nodes if n is not first]
    with pytest.raises(ValueError, match=first.id):
        graph.with_nodes([*rest, first]).validate()
    with pytest.raises(ValueError, match=f"two nodes have the id {node.id}"):
        graph.with_nodes([*graph.nodes, node]).validate()


@few
@given(graphs())
def test_readers_are_edges_turned_round(graph):
    edges = {(source, n) for n, read in graph.edges.items() for source in read}
    assert edges == {(n, reader) for n, readers in graph.readers.items() for reader in readers}


@few
@given(graphs())
def test_a_graph_is_itself_whatever_its_nodes_are_called(graph):
    for later in (graph, renamed(graph, lambda i: f"new/{i}")):
        matched = carry_identity(graph, later)
        assert not (matched.added or matched.removed or matched.changed)
        assert set(matched.renamed) == set(later.by_id)
        assert set(matched.graph.by_id) == set(graph.by_id)
        assert renamed(later, matched.renamed.__getitem__).nodes == matched.graph.nodes
        matched.graph.validate()


@few
@given(graphs(), st.data())
def test_what_is_added_and_removed_is_that_and_nothing_else(graph, data):
    base = data.draw(st.sampled_from(graph.nodes))
    fresh = replace(
        base, id="fresh", kind=Kind.CALL, op="only.here", name="", attrs={}, inputs=(base.id,)
    )
    larger = replace(graph, nodes=(*graph.nodes, fresh), outputs=(*graph.outputs, "fresh"))
    there = carry_identity(graph, renamed(larger, lambda i: f"new/{i}"))
    assert len(there.added) == 1
    assert not (there.removed or there.changed)
    back = carry_identity(larger, renamed(graph, lambda i: f"old/{i}"))
    assert back.removed == {"fresh"}
    assert not (back.added or back.changed)
