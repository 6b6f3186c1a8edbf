"""What holds of every cut of every joint graph, whichever strategy makes it."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, joint_graphs
from joints import choices
from relascope.core.graph import Role
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut, cut_at, roles
from relascope.passes.cuts.frontier import frontier
from relascope.passes.cuts.problem import Wish
from relascope.viz.rows.tables import cut_document, frontier_document


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
    found = cut(graph, strategy)
    joint = found.joint
    assert all(joint.may_be_captured(i) for i in found.ids)
    assert not set(found.ids) & set(found.recomputed)
    assert backward_can_run(joint, found)
    assert found.bytes <= cut(graph, "keep_all").bytes
    captured = {i for i, role in roles(graph, found.ids).items() if role is Role.CAPTURED}
    assert captured == set(found.ids)


@few
@given(joint_graphs(), st.floats(0.0, 1.0))
def test_a_budget_is_never_exceeded_and_no_worse_than_the_frontier(graph, share):
    joint = Joint(graph)
    least = frontier(joint)[-1].bytes
    allowed = max(int(share * cut(joint, "keep_all").bytes), least)
    limit, line = cut(joint, "budget", allowed), cut(joint, "frontier", allowed)
    assert max(limit.bytes, line.bytes) <= limit.budget == allowed
    assert joint.extra_seconds(limit.ids) <= joint.extra_seconds(line.ids) * (1 + 1e-9)
    assert backward_can_run(joint, limit)
    if least:
        with pytest.raises(ValueError, match=f"no cut keeps less than {least:,}"):
            cut(joint, "budget", least - 1)


def kept(document):
    return sum(row["bytes"] for row in (*document["captures"], *document["masks"]))


@few
@given(joint_graphs(), st.sampled_from(("relay", "relax")))
def test_every_total_is_the_sum_of_the_sizes_beside_it(graph, ir):
    joint = Joint(replace(graph, ir=ir))
    for strategy in STRATEGIES:
        found = cut(joint, strategy)
        document = cut_document(found)
        assert kept(document) == document["bytes"] == joint.bytes_of(found.ids)
        assert all(c.readers for c in (*found.captures, *found.masks))
        assert sum(m["bytes"] for m in document["masks"]) == document["mask_bytes"]
        own = [c for c in (*found.captures, *found.masks) if not c.is_output]
        assert sum(c.bytes for c in own) == document["extra_bytes"]
        assert {m["id"] for m in document["masks"]} == {
            m
            for m in joint.masks
            for r in graph.readers[m]
            if r in found.recomputed or r not in joint.forward
        }
        lived, held = found.lifetimes, document["held"]
        most = max((s["bytes"] for s in held["changes"]), default=0)
        assert lived.peak == max(lived.bytes()) == most == held["at_peak"]["bytes"]
        end = lived.bytes("captured")[lived.forward]
        assert end == found.bytes + sum(joint.work.bytes[m] - 5056 for m in found.drawn_again)
    table = frontier_document(joint)
    for row in table["strategies"]:
        assert row["bytes"] == kept(cut_document(cut(joint, row["strategy"])))
    for row, point in zip(table["frontier"], reversed(frontier(joint)), strict=True):
        assert row["bytes"] == kept(cut_document(cut_at(graph, point.saved)))


@few
@given(joint_graphs(6))
def test_no_choice_at_all_lies_below_a_frontier_with_masks(graph):
    points = frontier(Joint(graph))
    assert points.proven
    for it, chosen, _ in choices(graph):
        held, taken = it.bytes_of(chosen), it.extra_seconds(chosen)
        assert held >= points[-1].bytes and taken >= points[0].seconds * (1 - 1e-5)
        for left, right in itertools.pairwise(points):
            if right.bytes <= held <= left.bytes:
                share = (left.bytes - held) / (left.bytes - right.bytes)
                line = left.seconds + share * (right.seconds - left.seconds)
                assert taken >= line * (1 - 1e-5) - 1e-15


@few
@given(joint_graphs(6), st.data())
def test_the_cheapest_cut_meets_wishes_and_none_that_meets_them_is_cheaper(graph, data):
    joint = Joint(graph)
    able = [i for i in joint.behind(joint.needed) if joint.may_be_captured(i)]
    if not able:
        return
    out = frozenset(data.draw(st.sets(st.sampled_from(able), max_size=3)))
    into = frozenset(data.draw(st.sets(st.sampled_from(able), max_size=2))) - out
    kept = [
        it.bytes_of(chosen)
        for it, chosen, again in choices(graph)
        if into <= chosen and not out & chosen
    ]
    points = frontier(joint, Wish(save=into, recompute=out))
    assert all(into <= p.saved and not out & p.saved for p in points)
    assert points[-1].bytes == min(kept)


@few
@given(joint_graphs(), st.data())
def test_a_tensor_that_is_asked_for_is_saved(graph, data):
    crossing = Joint(graph).crossings
    if crossing:
        wanted = data.draw(st.sampled_from(crossing))
        found = cut(graph, "min_cut", save=[wanted])
        assert wanted in found.ids
        assert backward_can_run(found.joint, found)
