"""Which nodes of two graphs of one model belong together: made by hand, random, and real ones."""

import random
from dataclasses import replace

import pytest

from drawn_graphs import seeds
from effort import calls_of
from graphs import graph_of, group
from relascope.viz.compare.align import Alignment
from relascope.viz.compare.match import match


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
    assert linear.operators[0] == {"nn.batch_matmul": 1, "nn.bias_add": 1, "reshape": 1}
    assert linear.operators[1] == {"add": 1, "matmul": 1, "permute_dims": 1}
    assert (linear.occurrences, linear.paired) == ((1, 1), 1)
    dropout = groups["net.drop", "aten::dropout"]
    assert (dropout.nodes, dropout.paired) == ((("d",), ()), 0)


def views(order):
    text = "x"
    for n in order:
        text += (
            f"; {n}m matmul x @self.{n} <aten::linear; {n}v reshape {n}m @self <aten::view;"
            f" {n}t transpose {n}v @self <aten::transpose"
        )
    return graph_of(text, " ".join(f"{n}t" for n in order))


def test_equal_operators_are_told_apart_by_what_they_read_not_by_their_order():
    both = align(views("qkv"), views("vqk"))
    for name in "qkv":
        for part in "mvt":
            for side in (0, 1):
                assert both.of_one_origin(side, name + part) == ((name + part,),) * 2


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
    left = graph_of(
        "x; t () x x; c concat t @a <aten::cat; s split c @b <aten::split; i [0] s", ir="relax"
    )
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
