"""Nodes of two graphs matched: made by hand, changed by hand at drawn places, and real ones."""

from dataclasses import replace

import pytest

from changed_by_hand import KINDS, changed_by_hand, nameless, without_layer, without_origins
from effort import calls_of
from engines import shared
from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.core.identity import carry_pairs, flat
from relascope.engine.protocol.source import ModelSource
from relascope.viz.compare.match import Rule, match

T, W = (TensorType((2, 3), "float32"),), (TensorType((3, 3), "float32"),)


def call(ident, op, *inputs, attrs=None, scope="", source="", outputs=T):
    return Node(ident, Kind.CALL, op, "", attrs or {}, inputs, outputs, scope, source)


def value(ident, name, kind=Kind.INPUT):
    return Node(ident, kind, name=name, outputs=T)


def graph(*nodes, outputs=None, ir="relay"):
    inputs = [n.id for n in nodes if n.kind in (Kind.INPUT, Kind.PARAMETER)]
    made = Graph("main", ir, nodes, tuple(inputs), tuple(outputs or [nodes[-1].id]))
    made.validate()
    return made


def layers(count, origins=True):
    """A model of equal layers: a product with a weight of its own, a norm, a sum around both."""
    nodes = [value("x", "x")]
    last, turned = "x", {"axes": [1, 0]}
    for i in range(count):
        scope = f"layer.{i}" if origins else ""
        nodes += [
            replace(value(f"w{i}", f"layer.{i}.weight", Kind.PARAMETER), outputs=W),
            call(f"t{i}", "transpose", f"w{i}", attrs=turned, scope=scope, source="t", outputs=W),
            call(f"m{i}", "matmul", last, f"t{i}", scope=scope, source="linear"),
            call(f"r{i}", "nn.relu", f"m{i}", attrs={"slope": 0.1}, scope=scope, source="relu"),
            call(f"a{i}", "add", f"r{i}", last, scope=scope, source="add"),
        ]
        last = f"a{i}"
    return graph(*nodes)


def pairs(found):
    return {p.left: p.right for p in found.pairs}


def test_an_equal_graph_under_other_ids_is_the_same_and_all_of_it_is_sure():
    left = layers(4)
    right = changed_by_hand(left, 0, 0)
    found = match(left, right.graph)
    assert found.same
    assert pairs(found) == right.truth
    assert {p.sure for p in found.pairs} == {1.0}


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (lambda n: replace(n, attrs={"slope": 0.2}), Rule.PLACE),
        (lambda n: replace(n, op="nn.gelu", attrs={}), Rule.REPLACED),
        (lambda n: replace(n, outputs=(TensorType((2, 3), "float16"),)), Rule.NEIGHBOURS),
    ],
)
def test_a_changed_node_is_the_one_change(edit, rule):
    left = layers(3, origins=rule is Rule.PLACE)
    right = left.with_nodes(edit(n) if n.id == "r1" else n for n in left)
    found = match(left, right)
    assert pairs(found) == {n.id: n.id for n in left}
    (changed,) = found.changed
    assert (changed.left, changed.sure < 1) == ("r1", True)
    if rule is not Rule.PLACE:
        assert changed.rule is rule
    assert not found.same


def test_an_inserted_node_is_added_and_a_left_out_one_removed():
    left = graph(
        value("x", "x"), call("a", "exp", "x"), call("b", "nn.relu", "a"), call("c", "log", "b")
    )
    right = graph(
        value("x", "x"), call("1", "exp", "x"), call("2", "cast", "1"), call("3", "log", "2")
    )
    found = match(
        left,
        graph(
            *left.nodes[:2],
            call("k", "cast", "a"),
            *(replace(n, inputs=("k",)) if n.id == "b" else n for n in left.nodes[2:]),
        ),
    )
    assert (found.added, found.removed) == (("k",), ())
    assert [p.left for p in found.changed] == ["b"]
    found = match(right, graph(*right.nodes[:2], replace(right.nodes[3], inputs=("1",))))
    assert (found.added, found.removed) == ((), ("2",))


def test_other_results_are_a_difference_though_every_node_is_the_same():
    left = graph(value("x", "x"), call("a", "exp", "x"), call("b", "log", "x"), outputs="ab")
    found = match(left, replace(left, outputs=("b", "a")))
    assert all(p.same for p in found.pairs)
    assert not found.same


def test_twins_are_told_apart_by_what_they_serve():
    twice = [
        value("x", "x"),
        *(call(f"{n}1", "exp", "x") for n in "ab"),
        call("a2", "log", "a1"),
        call("b2", "sqrt", "b1"),
    ]
    left = graph(*twice, outputs=("a2", "b2"))
    order = [0, 2, 1, 4, 3]
    right = graph(*(twice[i] for i in order), outputs=("a2", "b2"))
    assert pairs(match(left, right)) == {n.id: n.id for n in left}


def test_a_fused_group_goes_to_what_holds_most_of_it():
    body = graph(value("f.p", "p0"), call("f.1", "exp", "f.p"), call("f.2", "log", "f.1"))
    fused = Node("f", Kind.FUNCTION, "exp+log", inputs=("x",), outputs=T, body=body)
    left = graph(value("x", "x"), fused, call("s", "sqrt", "f"))
    small = graph(value("g.p", "p0"), call("g.1", "exp", "g.p"))
    group = Node("g", Kind.FUNCTION, "exp", inputs=("x",), outputs=T, body=small)
    right = graph(value("x", "x"), group, call("l", "log", "g"), call("s", "sqrt", "l"))
    found = match(left, right)
    assert pairs(found) == {"x": "x", "f.1": "g.1", "f.2": "l", "f": "g", "s": "s"}
    group = found.by_left["f"]
    assert (group.rule, group.sure, group.same) == (Rule.INSIDE, 0.5, False)
    assert {p.left for p in found.changed} == {"f"}


def test_kernels_counted_otherwise_are_the_same():
    def one(name):
        return graph(value("x", "x"), call("k", name, "x", attrs={"call": "call_tir"}))

    assert match(one("fused_matmul2_add"), one("fused_matmul_add1")).same
    assert not match(one("fused_matmul_add"), one("fused_matmul_multiply")).same


def test_two_irs_are_matched_by_words_that_both_know():
    left = graph(
        value("x", "x"),
        value("w", "w", Kind.PARAMETER),
        call("t", "transpose", "w", attrs={"axes": [1, 0]}, scope="fc", source="aten::linear"),
        call("d", "nn.batch_matmul", "x", "t", scope="fc", source="aten::linear"),
    )
    right = graph(
        value("x", "x"),
        value("w", "w", Kind.PARAMETER),
        call("p", "permute_dims", "w", scope="fc", source="aten::linear"),
        call("m", "matmul", "x", "p", scope="fc", source="aten::linear"),
        ir="relax",
    )
    found = match(left, right)
    assert pairs(found) == {"x": "x", "w": "w", "t": "p", "d": "m"}
    assert all(p.sure < 1 for p in found.pairs)  # without attributes, equal is not the same


@pytest.mark.parametrize("seed", range(6))
def test_nearly_all_that_was_not_changed_by_hand_is_matched(seed):
    for make in (lambda g: g, without_origins, nameless):
        left = make(layers(60))
        right = changed_by_hand(left, 20, seed)
        found = match(left, right.graph)
        others = [i for i in right.truth if i not in right.touched]
        matched = pairs(found)
        right_ones = sum(matched.get(i) == right.truth[i] for i in others)
        assert right_ones >= 0.95 * len(others), make
        both = [*matched, *found.removed]
        assert sorted(both) == sorted(n.id for n in flat(left))
        both = [*matched.values(), *found.added]
        assert sorted(both) == sorted(n.id for n in flat(right.graph))
        sure = [p for p in found.pairs if p.sure == 1.0 and p.left in right.truth]
        assert all(right.truth[p.left] == p.right for p in sure) or make is nameless


def test_a_layer_that_is_dropped_is_all_that_is_removed():
    left = layers(8)
    right = without_layer(left, "layer.3")
    found = match(left, right.graph)
    assert set(found.removed) == {"t3", "m3", "r3", "a3"}
    assert not found.added
    assert {p.left for p in found.changed} == {"m4", "a4"}  # they read what was before it


def test_a_match_becomes_a_graph_under_the_other_ones_ids():
    left = layers(3)
    right = changed_by_hand(left, 0, 1).graph
    back = {p.right: p.left for p in match(left, right).pairs}
    assert carry_pairs(left, right, back).graph == left


def test_a_group_that_returns_what_it_is_given_is_nothing_in_between():
    body = Graph("fused", "relay", (value("g.p", "p0"),), ("g.p",), ("g.p",))
    group = Node("g", Kind.FUNCTION, "exp", inputs=("x",), outputs=T, body=body)
    left = graph(value("x", "x"), group, call("s", "sqrt", "g"))
    assert match(left, left).same


def test_work_grows_with_the_length_and_hardly_faster():
    def effort(count):
        left = layers(count)
        right = changed_by_hand(left, 10, 0).graph
        return calls_of(lambda: match(left, right))

    assert effort(240) < 4.8 * effort(60)


def test_each_kind_of_change_is_drawn():
    left = layers(60)
    drawn = {way for seed in range(6) for way in changed_by_hand(left, 20, seed).touched.values()}
    assert drawn == set(KINDS) - {"constant"}  # which it has none of


@pytest.mark.engine
@pytest.mark.parametrize("ir", [pytest.param("relay", marks=pytest.mark.exhaustive), "relax"])
def test_a_bert_layer_changed_by_hand(ir):
    source = ModelSource("bert_layer", batch=1, tokens=14)
    left = shared(ir).call("load", source).graph
    for seed in range(3):
        right = changed_by_hand(left, 10, seed)
        matched = pairs(match(left, right.graph))
        others = [i for i in right.truth if i not in right.touched]
        assert sum(matched.get(i) == right.truth[i] for i in others) >= 0.95 * len(others)
