"""What becomes of each node under a cut, and what is held over the length of a step."""

import pytest

from graphs import graph_of
from joints import chain, messy, small, views
from relascope.passes.cuts.cut import cut, cut_at
from relascope.passes.cuts.depth import depth


@pytest.mark.parametrize(
    ("node_id", "kind", "word"),
    [
        ("x", "given", "given it"),
        ("a", "too far", "tanh nearer to the backward"),
        ("b", "captured", "Saved: "),
        ("c", "recomputed", "recomputable from tanh by tanh"),
        ("u", "not needed", "nothing in the backward"),
        ("dc", "backward", "backward computes it"),
    ],
)
def test_every_node_has_its_standing_and_says_why(node_id, kind, word):
    found = cut_at(chain(), ["b"]).reasons.standing(node_id)
    assert found.kind == kind
    assert word in found.reason
    assert found.can_save == (kind not in ("given", "backward", "not needed"))


def test_what_is_forced_says_so():
    found = cut(chain(), "min_cut", save=["a"], recompute=["c"])
    assert found.reasons.standing("a").forced == "save"
    assert found.reasons.standing("c").forced == "recompute"
    assert found.reasons.standing("b").forced == ""
    assert "by hand" in found.reasons.standing("a").reason


def test_a_random_node_cannot_be_computed_again_by_wish():
    graph = graph_of("x; g; r random.uniform x; y exp r; dx multiply g r", "y", gradients="dx")
    found = cut(graph).reasons.standing("r")
    assert found.can_save and not found.can_recompute


def test_captures_are_held_from_their_making_to_their_last_reader():
    kept = cut(chain(), "keep_all")
    found = depth(kept.joint, kept.ids, kept.recomputed)
    assert [(s.phase, s.step, s.id, s.bytes) for s in found.changes] == [
        ("forward", 2, "b", 128),
        ("forward", 3, "c", 128 + 256),
        ("backward", 1, "dc", 128),
        ("backward", 2, "db", 0),
    ]
    assert (found.forward, found.backward) == (5, 2)


def test_what_is_computed_again_comes_right_before_its_reader():
    found = cut_at(chain(), ["a"])
    assert found.recomputed == ("b", "c")
    steps = depth(found.joint, found.ids, found.recomputed).changes
    assert [(s.phase, s.step, s.id, s.bytes) for s in steps] == [
        ("forward", 1, "a", 32),
        ("backward", 1, "b", 128),
        ("backward", 2, "c", 128 + 256),
        ("backward", 3, "dc", 128),
        ("backward", 4, "db", 0),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_most_that_is_held_is_what_the_cut_says(seed):
    found = cut(messy(seed, 40), "keep_all")
    steps = depth(found.joint, found.ids, found.recomputed).changes
    forward = [s for s in steps if s.phase == "forward"]
    assert max(s.bytes for s in steps) == forward[-1].bytes == found.bytes


def test_a_view_holds_its_storage_once_and_what_is_a_result_stays():
    found = cut(views(), "keep_all")
    steps = depth(found.joint, found.ids, found.recomputed).changes
    assert max(s.bytes for s in steps) == found.bytes
    kept = cut_at(small(), ["y", "t"])
    steps = [(s.phase, s.step, s.id, s.bytes) for s in depth(kept.joint, kept.ids, ()).changes]
    assert steps == [
        ("forward", 0, "m", 32),  # the mask is there before
        ("forward", 2, "t", 64),
        ("forward", 3, "y", 96),
        ("backward", 1, "dt", 64),
        ("backward", 2, "dh", 32),
    ]


def test_a_view_made_again_has_no_storage_and_keeps_that_of_its_base():
    found = cut_at(views(), ["h"])
    assert found.recomputed == ("v", "a", "b")
    steps = depth(found.joint, found.ids, found.recomputed).changes
    assert [(s.phase, s.id, s.bytes) for s in steps] == [
        ("forward", "h", 32),
        ("backward", "dx", 0),
    ]
    again = cut(views(), "inputs_only")
    steps = depth(again.joint, again.ids, again.recomputed).changes
    assert [(s.phase, s.id, s.bytes) for s in steps] == [
        ("backward", "h", 32),
        ("backward", "dx", 0),
    ]
