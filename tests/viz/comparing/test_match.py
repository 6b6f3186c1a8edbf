"""Nodes of two graphs matched, also of one model in both IRs: made by hand, changed by hand at
drawn places, random, and real ones."""

import random
from dataclasses import replace

import pytest

from changed_by_hand import changed_by_hand, nameless, without_origins
from drawn_graphs import seeds
from effort import calls_of
from engines import shared
from graphs import graph_of, group
from relascope.core.graph import TensorType
from relascope.core.identity import flat
from relascope.engine.protocol.source import ModelSource
from relascope.viz.compare.align import Alignment
from relascope.viz.compare.match import Rule, match


def layers(count, origins=True, dropped=()):
    """A model of equal layers: a product with a weight of its own, a norm, a sum around both."""
    text, last = "x", "x"
    for i in (i for i in range(count) if i not in dropped):
        at = f"@layer.{i}" if origins else ""
        text += (
            f"; w{i}!layer.{i}.weight :4x4; t{i} transpose w{i} axes=[1,0] {at} <t :4x4;"
            f" m{i} matmul {last} t{i} {at} <linear; r{i} nn.relu m{i} slope=0.1 {at} <relu;"
            f" a{i} add r{i} {last} {at} <add"
        )
        last = f"a{i}"
    return graph_of(text)


def pairs(found):
    return {p.left: p.right for p in found.pairs}


def test_an_equal_graph_under_other_ids_is_the_same_and_all_of_it_is_sure():
    left = layers(4)
    right = changed_by_hand(left, 0, 0)
    found = match(left, right.graph)
    assert found.same
    assert pairs(found) == right.truth
    assert {p.sure for p in found.pairs} == {1.0}


CHANGES = {
    Rule.PLACE: {"attrs": {"slope": 0.2}},
    Rule.REPLACED: {"op": "nn.gelu", "attrs": {}},
    Rule.NEIGHBOURS: {"outputs": (TensorType((2, 4), "float16"),)},
}


@pytest.mark.parametrize("rule", CHANGES)
def test_a_changed_node_is_the_one_change(rule):
    left = layers(3, origins=rule is Rule.PLACE)
    right = left.with_nodes(replace(n, **CHANGES[rule]) if n.id == "r1" else n for n in left)
    found = match(left, right)
    assert pairs(found) == {n.id: n.id for n in left}
    (changed,) = found.changed
    assert (changed.left, changed.sure < 1) == ("r1", True)
    if rule is not Rule.PLACE:
        assert changed.rule is rule
    assert not found.same


def test_an_inserted_node_is_added_and_a_left_out_one_removed():
    left = graph_of("x; a exp x; b nn.relu a; c log b")
    right = graph_of("x; 1 exp x; 2 cast 1; 3 log 2")
    x, a, b, c = left.nodes
    found = match(left, graph_of([x, a, "k cast a", replace(b, inputs=("k",)), c]))
    assert (found.added, found.removed) == (("k",), ())
    assert [p.left for p in found.changed] == ["b"]
    found = match(right, graph_of([*right.nodes[:2], "3 log 1"]))
    assert (found.added, found.removed) == ((), ("2",))


def test_other_results_are_a_difference_and_twins_are_told_apart_by_what_they_serve():
    left = graph_of("x; a exp x; b log x", "a b")
    found = match(left, replace(left, outputs=("b", "a")))
    assert all(p.same for p in found.pairs)
    assert not found.same
    left = graph_of("x; a1 exp x; b1 exp x; a2 log a1; b2 sqrt b1", "a2 b2")
    right = graph_of("x; b1 exp x; a1 exp x; b2 sqrt b1; a2 log a1", "a2 b2")
    assert pairs(match(left, right)) == {n.id: n.id for n in left}


def test_a_fused_group_goes_to_what_holds_most_of_it():
    body, small = graph_of("f.p=p0; f.1 exp f.p; f.2 log f.1"), graph_of("g.p=p0; g.1 exp g.p")
    left = graph_of(["x", group("f", "exp+log", "x", body), "s sqrt f"])
    right = graph_of(["x", group("g", "exp", "x", small), "l log g; s sqrt l"])
    found = match(left, right)
    assert pairs(found) == {"x": "x", "f.1": "g.1", "f.2": "l", "f": "g", "s": "s"}
    pair = found.by_side[0]["f"]
    assert (pair.rule, pair.sure, pair.same) == (Rule.INSIDE, 0.5, False)
    assert {p.left for p in found.changed} == {"f"}


def test_kernels_counted_otherwise_are_the_same_and_an_idle_group_is_nothing_between():
    def one(name):
        return graph_of(f"x; k {name} x call='call_tir'")

    assert match(one("fused_matmul2_add"), one("fused_matmul_add1")).same
    assert not match(one("fused_matmul_add"), one("fused_matmul_multiply")).same
    body = graph_of("g.p=p0")
    left = graph_of(["x", group("g", "exp", "x", body), "s sqrt g"])
    assert match(left, left).same


def test_two_irs_are_matched_by_words_that_both_know():
    at = "@fc <aten::linear"
    left = graph_of(f"x; w!; t transpose w {at} axes=[1,0]; d nn.batch_matmul x t {at}")
    right = graph_of(f"x; w!; p permute_dims w {at}; m matmul x p {at}", ir="relax")
    found = match(left, right)
    assert pairs(found) == {"x": "x", "w": "w", "t": "p", "d": "m"}
    assert all(p.sure < 1 for p in found.pairs)  # without attributes, equal is not the same


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_nearly_all_that_was_not_changed_by_hand_is_matched(seed):
    for make in (lambda g: g, without_origins, nameless):
        left = make(layers(60))
        right = changed_by_hand(left, 20, seed)
        found = match(left, right.graph)
        others = [i for i in right.truth if i not in right.touched]
        matched = pairs(found)
        right_ones = sum(matched.get(i) == right.truth[i] for i in others)
        assert right_ones >= 0.95 * len(others), make
        assert sorted([*matched, *found.removed]) == sorted(n.id for n in flat(left))
        after = [*matched.values(), *found.added]
        assert sorted(after) == sorted(n.id for n in flat(right.graph))
        sure = [p for p in found.pairs if p.sure == 1.0 and p.left in right.truth]
        assert all(right.truth[p.left] == p.right for p in sure) or make is nameless


def test_a_layer_that_is_dropped_is_all_that_is_removed():
    found = match(layers(8), changed_by_hand(layers(8, dropped=[3]), 0, 0).graph)
    assert set(found.removed) == {"w3", "t3", "m3", "r3", "a3"}
    assert not found.added
    assert {p.left for p in found.changed} == {"m4", "a4"}  # they read what was before it


def test_work_grows_with_the_length_and_hardly_faster():
    def effort(left):
        right = changed_by_hand(left, 10, 0).graph
        return calls_of(lambda: match(left, right))

    assert effort(layers(240)) < 4.8 * effort(layers(60))


@pytest.mark.engine
@pytest.mark.parametrize("ir", [pytest.param("relay", marks=pytest.mark.exhaustive), "relax"])
def test_a_bert_layer_changed_by_hand(ir):
    source = ModelSource("bert_layer", batch=1, tokens=14)
    left = shared(ir).call("load", source).graph
    for seed in range(2):
        right = changed_by_hand(left, 10, seed)
        matched = pairs(match(left, right.graph))
        others = [i for i in right.truth if i not in right.touched]
        assert sum(matched.get(i) == right.truth[i] for i in others) >= 0.95 * len(others)


def align(left, right):
    return Alignment(match(left, right))


LEFT = graph_of(
    "x; w; b1 reshape x @net.fc <aten::linear; b2 nn.batch_matmul b1 w @net.fc <aten::linear;"
    " b3 nn.bias_add b2 @net.fc <aten::linear; d nn.dropout b3 @net.drop <aten::dropout;"
    " r nn.relu d @net <aten::relu"
)
RIGHT = graph_of(
    "x; w; p permute_dims w @net.fc <aten::linear; m matmul x p @net.fc <aten::linear;"
    " a add m @net.fc <aten::linear; r2 nn.relu a @net <aten::relu; own zeros -> r2 own",
    ir="relax",
)


def test_an_operator_goes_to_all_that_the_same_one_became_or_to_nothing():
    both = align(LEFT, RIGHT)
    for ours in ("b1", "b2", "b3"):
        assert both.of_one_origin(0, ours) == (("b1", "b2", "b3"), ("p", "m", "a"))
    assert both.of_one_origin(1, "m") == (("b1", "b2", "b3"), ("p", "m", "a"))
    nothing = (), ()
    assert both.of_one_origin(0, "x") == both.of_one_origin(0, "d") == nothing
    assert both.of_one_origin(1, "own") == both.of_one_origin(1, "nowhere") == nothing
    assert both.without_origin(1) == ("own",)


def test_groups_tell_what_each_operator_became():
    groups = {(g.scope, g.source): g for g in align(LEFT, RIGHT).groups}
    linear = groups["net.fc", "aten::linear"]
    operators = "nn.batch_matmul nn.bias_add reshape", "add matmul permute_dims"
    assert list(linear.operators) == [dict.fromkeys(ops.split(), 1) for ops in operators]
    assert (linear.occurrences, linear.paired) == ((1, 1), 1)
    dropout = groups["net.drop", "aten::dropout"]
    assert (dropout.nodes, dropout.paired) == ((("d",), ()), 0)


def views(order):
    text = (
        "; {0}m matmul x @self.{0} <aten::linear; {0}v reshape {0}m @self <aten::view;"
        " {0}t transpose {0}v @self <aten::transpose"
    )
    return graph_of("x" + "".join(map(text.format, order)), " ".join(f"{n}t" for n in order))


def test_equal_operators_are_told_apart_by_what_they_read_not_by_their_order():
    both = align(views("qkv"), views("vqk"))
    for ident in (name + part for name in "qkv" for part in "mvt"):
        assert both.of_one_origin(0, ident) == both.of_one_origin(1, ident) == ((ident,),) * 2


def zeros(ids, ir="relay"):
    return graph_of("; ".join(f"{i} zeros @a <aten::zeros" for i in ids.split()), ids, ir=ir)


def test_without_anything_else_the_order_counts_and_what_cannot_be_told_goes_to_nothing():
    ends = "n0 n1 n2"
    both = align(zeros(ends), zeros(ends, "relax"))
    assert [both.of_one_origin(0, n)[1] for n in ends.split()] == [(n,) for n in ends.split()]
    left, right = zeros("n0 n1 n2"), zeros("n0 n1", "relax")
    assert align(left, right).of_one_origin(0, "n2") == ((), ())


def test_a_fused_function_goes_to_all_that_its_body_came_from():
    body = graph_of("fx; f1 nn.dense fx @net.fc <aten::linear; f2 nn.relu f1 @net <aten::relu")
    fused = replace(group("f", "nn.dense+nn.relu", "x", body), scope="net", source="aten::relu")
    left = graph_of([LEFT.by_id["x"], fused])
    both = align(left, RIGHT)
    assert both.of_one_origin(0, "f") == (("f",), ("p", "m", "a", "r2"))
    for ours in ("m", "r2"):
        assert both.of_one_origin(1, ours)[0] == ("f",)
    assert [g.operators[0] for g in both.groups] == [{"nn.dense": 1}, {"nn.relu": 1}]


def test_tuples_go_with_their_reader_and_items_with_their_maker():
    text = "x; t () x x; c concat t @a <aten::cat; s split c @b <aten::split; i [0] s"
    left = graph_of(text, ir="relax")
    both = align(left, left)
    assert both.of_one_origin(0, "t")[1] == ("t", "c")
    assert both.of_one_origin(0, "i")[1] == ("s", "i")
    assert {g.source: g.operators[0] for g in both.groups} == {
        "aten::cat": {"concat": 1},
        "aten::split": {"split": 1},
    }


def random_graph(seed, size):
    dice = random.Random(seed)
    ids, text = ["x"], "x"
    for i in range(size):
        reads = {ids[dice.randrange(max(0, i - 9), i + 1)] for _ in range(2)}
        origin = f"@m{dice.randrange(9)} <aten::{dice.randrange(4)}"
        text += f"; n{i} op {' '.join(reads)} {origin if dice.random() < 0.8 else ''}"
        ids.append(f"n{i}")
    return graph_of(text)


@pytest.mark.parametrize("seed", seeds(10, 30))
def test_pairs_are_of_one_origin_and_go_both_ways(seed):
    left, right = random_graph(seed, 60), random_graph(seed + 100, 50)
    both = align(left, right)
    for side, one in enumerate((left, right)):
        for node in one:
            found = both.of_one_origin(side, node.id)
            assert bool(found[0]) == bool(found[1]) == (node.id in found[side])
            for other in found[1 - side]:
                theirs = both.graphs[1 - side].by_id[other]
                assert (theirs.scope, theirs.source) == (node.scope, node.source)
                assert node.id in both.of_one_origin(1 - side, other)[side]
    same = align(left, left)
    for node in left:
        if node.source:
            assert node.id in same.of_one_origin(0, node.id)[1]


def long_chain(length):
    origins = [f" @m <aten::{i % 2}" if i % 10 else "" for i in range(length)]
    rest = (f"; n{i} op n{i - 1}{origins[i]}" for i in range(1, length))
    return graph_of("x; n0 op x" + "".join(rest))


def test_a_long_chain_is_aligned_without_recursion():
    chain = long_chain(8000)
    both = align(chain, chain)
    assert both.groups[0].paired == both.groups[0].occurrences[0] > 800
    assert "n7999" in both.of_one_origin(0, "n7999")[1]


def test_work_grows_with_the_length_of_a_chain_and_hardly_faster():
    short, long = long_chain(1000), long_chain(4000)
    assert calls_of(lambda: align(long, long)) < 4.5 * calls_of(lambda: align(short, short))
