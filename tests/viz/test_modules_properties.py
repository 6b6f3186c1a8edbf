"""What holds of every graph that is drawn: modules hold each node once, folding loses no edge."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, graphs
from relascope.core.graph import Kind, Literal
from relascope.viz.drawing.modules import fold_constants, module_groups


@few
@given(graphs())
def test_every_node_stands_in_one_group(graph):
    tree = module_groups(graph)
    members = Counter(m for g in tree.groups.values() for m in g.members)
    assert set(tree.group_of) == set(graph.by_id)
    assert members == Counter(n for n, group in tree.group_of.items() if group)
    assert all(tree.group_of[m] == g.id for g in tree.groups.values() for m in g.members)
    for group in tree.groups.values():
        inside = [tree.groups[child].nodes for child in group.groups]
        assert group.nodes == len(group.members) + sum(inside) >= 2
        assert tree.path(group.id)[-1] == group.id
    everything = sum(tree.groups[root].nodes for root in tree.roots)
    assert everything + sum(not group for group in tree.group_of.values()) == len(graph)


@few
@given(graphs(), st.integers(1, 30))
def test_folding_constants_keeps_every_other_edge(graph, fewer_than):
    folded = fold_constants(graph, fewer_than)
    folded.validate()
    gone = set(graph.by_id) - set(folded.by_id)
    assert all(graph.by_id[i].kind is Kind.CONSTANT for i in gone)
    assert not gone & set(graph.outputs)
    for node in folded.nodes:
        before = graph.by_id[node.id].inputs
        assert len(node.inputs) == len(before)
        for old, new in zip(before, node.inputs, strict=True):
            assert new == old or (old in gone and isinstance(new, Literal))
