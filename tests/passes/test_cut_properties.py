"""What holds of every cut of every joint graph, whichever strategy makes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, joint_graphs
from relascope.core.graph import Role
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut, roles


def backward_can_run(joint, found):
    """Whether captures, what is given, and what is computed again are enough for the backward."""
    there = {*found.ids, *joint.free}
    for node in joint.graph.nodes:
        again = node.id in found.recomputed
        if (again or node.id not in joint.forward) and all(e in there for e in node.edges):
            there.add(node.id)
    needed = {n.id for n in joint.graph.nodes if n.id not in joint.forward}
    return needed | set(joint.gradients) <= there


@pytest.mark.parametrize("strategy", STRATEGIES)
@few
@given(joint_graphs())
def test_the_backward_has_all_it_needs(strategy, graph):
    found = cut(graph, strategy, budget=1.0 if STRATEGIES[strategy].has_budget else None)
    joint = found.joint
    assert all(joint.may_be_captured(i) for i in found.ids)
    assert not set(found.ids) & set(found.recomputed)
    assert backward_can_run(joint, found)
    assert found.bytes <= cut(graph, "keep_all").bytes
    captured = {i for i, role in roles(graph, found.ids).items() if role is Role.CAPTURED}
    assert captured == set(found.ids)


@few
@given(joint_graphs(), st.floats(0.0, 1.0))
def test_a_budget_is_never_exceeded(graph, share):
    limit = cut(graph, "budget", share)
    assert limit.bytes <= limit.budget <= cut(graph, "keep_all").bytes
    assert backward_can_run(Joint(graph), limit)


@few
@given(joint_graphs(), st.data())
def test_a_tensor_that_is_asked_for_is_saved(graph, data):
    crossing = Joint(graph).crossings
    if crossing:
        wanted = data.draw(st.sampled_from(crossing))
        found = cut(graph, "min_cut", save=[wanted])
        assert wanted in found.ids
        assert backward_can_run(found.joint, found)
