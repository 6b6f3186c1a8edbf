"""The frontier of bytes against work: against all possible choices on small graphs."""

import itertools

import pytest

import graphs
from joints import messy, seconds
from relascope.passes.cuts.cut import Joint, cut
from relascope.passes.cuts.frontier import frontier
from relascope.passes.cuts.problem import Wish


@pytest.mark.parametrize("seed", range(6))
def test_its_points_are_what_they_say(seed):
    graph = messy(seed, 60)
    it = Joint(graph)
    points = frontier(it)
    assert len(points) > 3
    for point in points:
        assert it.bytes_of(point.saved) == point.bytes
        assert seconds(it, it.computed_again(point.saved)) == point.seconds
    for left, right in itertools.pairwise(points):
        assert left.bytes > right.bytes
        assert left.seconds < right.seconds
    assert points[0].seconds == 0
    assert points[-1].bytes == 0 == cut(graph, "inputs_only").bytes


def test_wishes_hold_on_all_of_it():
    graph = messy(3, 40)
    crossing = [c.id for c in cut(graph, "keep_all").captures]
    wish = Wish(save=frozenset(crossing[:1]), recompute=frozenset(crossing[1:2]))
    for point in frontier(Joint(graph), wish):
        assert crossing[0] in point.saved
        assert crossing[1] not in point.saved


def test_what_draws_random_numbers_is_saved_on_all_of_it():
    graph = graphs.graph_of(
        "x; g; r nn.dropout x :9x9; y exp r; b multiply g r y", "y", gradients="b"
    )
    points = frontier(Joint(graph))
    assert points
    assert all("r" in p.saved for p in points)


def test_the_number_of_questions_is_bounded():
    graph = graphs.joint(4)
    found = frontier(Joint(graph), most=3)
    assert len(found) <= 5
    assert not found.proven
    assert frontier(Joint(graph), most=10_000).proven


@pytest.mark.parametrize("seed", range(4))
def test_the_strategy_takes_the_least_work_on_it_within_the_budget(seed):
    graph = messy(seed, 40)
    points = frontier(Joint(graph))
    for point, after in itertools.pairwise(points):
        assert cut(graph, "frontier", point.bytes).bytes == point.bytes
        found = cut(graph, "frontier", point.bytes - 1)
        assert (found.bytes, found.recomputed_seconds) == (after.bytes, after.seconds)
    with pytest.raises(ValueError, match="no cut keeps less than"):
        cut(graph, "frontier", 0, save=[next(iter(points[0].saved))])
