"""Identity across steps: what stays the same keeps its id, whatever happened around it."""

import pytest

from graphs import graph_of, group
from relascope.core.identity import carry_identity

STEPS = {
    "readers of a changed node keep their ids": (
        "x; a transpose x; b matmul x a @q transpose_b=False; c exp b @q",
        "1=x; 2 matmul 1 1 @q transpose_b=True; 3 exp 2 @q",
        "x ~b c -a",
    ),
    "merged duplicates remove the second": (
        "x; a exp x; b exp x; c add a b",
        "1=x; 2 exp 1; 3 add 2 2",
        "x a ~c -b",
    ),
    "a bound parameter is the same node": (
        "w!; x; a add x w",
        "1# parameter='w'; 2=x; 3 add 2 1",
        "~w x a",
    ),
    "another attribute on the same inputs is a change": (
        "x; a kernel x; b exp a",
        "1=x; 2 kernel 1 pattern=4; 3 exp 2",
        "x ~a b",
    ),
    "an insertion is the only thing added": (
        "x; a exp x @m; b log a @m",
        "1=x; 2 exp 1 @m; 3 cast 2 @m; 4 log 3 @m",
        "x a +3 ~b",
    ),
}
"""Before, after, and the ids then, with what was changed (~), added (+) and removed (-)."""


@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_did_is_told_by_ids(name):
    before, after, told = STEPS[name]
    matched = carry_identity(graph_of(before), graph_of(after))
    marks = dict.fromkeys(matched.added, "+") | dict.fromkeys(matched.changed, "~")
    found = [marks.get(n.id, "") + n.id for n in matched.graph]
    assert " ".join([*found, *(f"-{i}" for i in sorted(matched.removed))]) == told


def test_a_new_id_never_collides_with_an_old_one():
    before = graph_of("x; 2 exp x")
    after = graph_of("x; 2 cast x; 5 exp x", "2 5")
    matched = carry_identity(before, after)
    matched.graph.validate()
    assert matched.renamed["5"] == "2"
    assert matched.renamed["2"] not in {"2", "x"}


def test_fusing_adds_groups_and_removes_nothing():
    before = graph_of("x; a exp x; b log a; c sum b")
    body = graph_of("f.p=p0; f.1 exp f.p; f.2 log f.1")
    after = graph_of(["1=x", group("f", "exp_log", "1", body), "2 sum f"])
    matched = carry_identity(before, after)
    assert (matched.added, matched.removed, matched.changed) == ({"f"}, set(), set())
    assert [n.id for n in matched.graph.by_id["f"].body] == ["f.p", "a", "b"]


def test_lost_provenance_is_taken_from_before():
    before = graph_of("x; a exp x @block.0 <aten::exp")
    after = graph_of("1=x; 2 exp 1")
    node = carry_identity(before, after).graph.by_id["a"]
    assert (node.scope, node.source) == ("block.0", "aten::exp")
