"""Identity across steps: what stays the same keeps its id, whatever happened around it."""

from graphs import graph_of, group
from relascope.core.identity import carry_identity


def test_readers_of_a_changed_node_keep_their_ids():
    before = graph_of("x; a transpose x; b matmul x a @q transpose_b=False; c exp b @q")
    after = graph_of("1=x; 2 matmul 1 1 @q transpose_b=True; 3 exp 2 @q")
    matched = carry_identity(before, after)
    assert [n.id for n in matched.graph] == ["x", "b", "c"]
    assert matched.changed == {"b"}
    assert matched.removed == {"a"}
    assert not matched.added


def test_merged_duplicates_remove_the_second():
    before = graph_of("x; a exp x; b exp x; c add a b")
    after = graph_of("1=x; 2 exp 1; 3 add 2 2")
    matched = carry_identity(before, after)
    assert matched.removed == {"b"}
    assert [n.id for n in matched.graph] == ["x", "a", "c"]
    assert matched.changed == {"c"}


def test_a_bound_parameter_is_the_same_node():
    before = graph_of("w!; x; a add x w")
    after = graph_of("1# parameter='w'; 2=x; 3 add 2 1")
    matched = carry_identity(before, after)
    assert [n.id for n in matched.graph] == ["w", "x", "a"]
    assert matched.changed == {"w"}


def test_another_attribute_on_the_same_inputs_is_a_change():
    before = graph_of("x; a kernel x; b exp a")
    matched = carry_identity(before, graph_of("1=x; 2 kernel 1 pattern=4; 3 exp 2"))
    assert [n.id for n in matched.graph] == ["x", "a", "b"]
    assert (matched.added, matched.removed, matched.changed) == (set(), set(), {"a"})


def test_an_insertion_is_the_only_thing_added():
    before = graph_of("x; a exp x @m; b log a @m")
    after = graph_of("1=x; 2 exp 1 @m; 3 cast 2 @m; 4 log 3 @m")
    matched = carry_identity(before, after)
    assert matched.added == {"3"}
    assert matched.changed == {"b"}
    assert not matched.removed


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
    assert matched.added == {"f"}
    assert not matched.removed
    assert not matched.changed
    function = matched.graph.by_id["f"]
    assert [n.id for n in function.body] == ["f.p", "a", "b"]


def test_lost_provenance_is_taken_from_before():
    before = graph_of("x; a exp x @block.0 <aten::exp")
    after = graph_of("1=x; 2 exp 1")
    node = carry_identity(before, after).graph.by_id["a"]
    assert (node.scope, node.source) == ("block.0", "aten::exp")
