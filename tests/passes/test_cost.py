"""Bytes, storages, FLOPs and seconds of operators, against what arithmetic says."""

import pytest

from graphs import Builder
from joints import node, tensor
from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.passes.cost import (
    NOMINAL,
    Machine,
    Work,
    flops,
    is_fusible,
    is_product,
    is_random,
    is_reduction,
    is_view,
    storages,
)


def call(op, read, shape, **attrs):
    """A graph with one call on inputs of the given shapes; returns it and the call."""
    b = Builder()
    inputs = [b.add(Kind.INPUT, s, name=f"x{i}") for i, s in enumerate(read)]
    result = b.call(op, *inputs, shape=shape, **attrs)
    graph = b.graph(result)
    return graph, graph.by_id[result]


@pytest.mark.parametrize(
    ("op", "read", "shape", "attrs", "expected"),
    [
        ("nn.dense", [(14, 768), (3072, 768)], (14, 3072), {}, 2 * 14 * 3072 * 768),
        ("nn.batch_matmul", [(12, 14, 64), (12, 64, 20)], (12, 14, 20), {}, 2 * 12 * 14 * 20 * 64),
        (
            "nn.batch_matmul",
            [(3, 5, 2), (3, 5, 7)],
            (3, 2, 7),
            {"transpose_a": True},
            2 * 3 * 2 * 7 * 5,
        ),
        ("matmul", [(8, 14, 64), (64, 10)], (8, 14, 10), {}, 2 * 8 * 14 * 10 * 64),
        (
            "nn.conv2d",
            [(1, 16, 32, 32), (8, 16, 3, 3)],
            (1, 8, 30, 30),
            {},
            2 * 8 * 30 * 30 * 16 * 9,
        ),
        (
            "nn.conv2d",
            [(1, 16, 8, 8), (16, 1, 3, 3)],
            (1, 16, 6, 6),
            {"groups": 16},
            2 * 16 * 36 * 9,
        ),
        (
            "nn.conv2d_transpose",
            [(1, 8, 30, 30), (8, 16, 3, 3)],
            (1, 16, 32, 32),
            {},
            2 * 8 * 30 * 30 * 16 * 9,
        ),
        ("add", [(2, 3), (3,)], (2, 3), {}, 6),
        ("mean", [(2, 300)], (2, 1), {}, 600),
        (
            "einsum",
            [(2, 3, 4), (2, 5, 4)],
            (2, 3, 5),
            {"subscripts": "bij,bkj->bik"},
            2 * 2 * 3 * 5 * 4,
        ),
        (
            "einsum",
            [(2, 3, 4), (4, 5)],
            (2, 3, 5),
            {"subscripts": "...j,jk->...k"},
            2 * 2 * 3 * 4 * 5,
        ),
        ("concat", [(2, 3), (2, 3)], (4, 3), {}, 0),
        ("slice_scatter", [(2, 3), (1, 3)], (2, 3), {}, 0),
        ("grad.take_backward", [(7, 4), (9, 4), (7,)], (9, 4), {}, 28),
        ("grad.max_pool2d_backward", [(1, 2, 4, 4), (1, 2, 8, 8)], (1, 2, 8, 8), {}, 32),
        ("reshape", [(2, 3)], (6,), {}, 0),
        ("transpose", [(2, 3)], (3, 2), {}, 0),
    ],
)
def test_flops(op, read, shape, attrs, expected):
    graph, node = call(op, read, shape, **attrs)
    assert flops(graph)[node.id] == expected


def test_a_transcendental_function_costs_more_than_an_addition():
    one, node = call("add", [(10,)], (10,))
    other, exp = call("exp", [(10,)], (10,))
    assert flops(other)[exp.id] > flops(one)[node.id]


@pytest.mark.parametrize(
    ("op", "product", "reduction", "view", "random", "fusible"),
    [
        ("nn.dense", True, False, False, False, False),
        ("matmul", True, False, False, False, False),
        ("nn.conv2d", True, False, False, False, False),
        ("nn.conv2d_transpose", True, False, False, False, False),
        ("nn.softmax", False, True, False, False, False),
        ("nn.max_pool2d", False, True, False, False, False),
        ("sum", False, True, False, False, False),
        ("reshape", False, False, True, False, True),
        ("transpose", False, False, False, False, True),
        ("multiply", False, False, False, False, True),
        ("random.uniform", False, False, False, True, False),
        ("nn.dropout", False, False, False, True, False),
        # Relax's names
        ("concat", False, False, False, False, True),
        ("permute_dims", False, False, False, False, True),
        ("index_tensor", False, False, False, False, True),
        ("strided_slice", False, False, False, False, True),
        ("image.resize2d", False, False, False, False, True),
        ("where", False, False, False, False, True),
        ("expand_dims", False, False, True, False, True),
        ("nn.batch_flatten", False, False, True, False, True),
        ("slice_scatter", False, False, False, False, False),
        ("scatter_elements", False, False, False, False, False),
        ("index_put", False, False, False, False, False),
        ("argsort", False, False, False, False, False),
        ("grad.take_backward", False, True, False, False, False),
        ("grad.max_pool2d_backward", False, True, False, False, False),
        ("grad.avg_pool2d_backward", False, True, False, False, False),
        ("nn.adaptive_avg_pool2d", False, True, False, False, False),
        ("nn.log_softmax", False, True, False, False, False),
        ("nn.conv1d", True, False, False, False, False),
        ("einsum", True, False, False, False, False),
        ("multinomial_from_uniform", False, False, False, True, False),
    ],
)
def test_kinds_of_operators(op, product, reduction, view, random, fusible):
    _, node = call(op, [(4, 4), (4, 4)], (4, 4))
    found = (is_product(node), is_reduction(node), is_view(node), is_random(node), is_fusible(node))
    assert found == (product, reduction, view, random, fusible)


def test_a_fused_group_is_the_sum_of_what_is_inside():
    body, _ = call("nn.dense", [(2, 3), (4, 3)], (2, 4))
    whole = Node("f", Kind.FUNCTION, outputs=(TensorType((2, 4), "float32"),), body=body)
    graph = Graph("main", "relay", (whole,), (), ("f",))
    assert flops(graph)["f"] == 2 * 2 * 4 * 3
    assert is_product(whole)


def test_views_of_views_share_one_storage_and_a_transpose_has_its_own():
    b = Builder()
    x = b.add(Kind.INPUT, (2, 3), name="x")
    t = b.call("tanh", x, shape=(2, 3))
    r = b.call("reshape", t, shape=(6,))
    e = b.call("expand_dims", r, shape=(6, 1))
    o = b.call("transpose", e, shape=(1, 6))
    v = b.call("reshape", x, shape=(3, 2))
    owner = storages(b.graph(o, v))
    assert (owner[t], owner[r], owner[e], owner[o], owner[v]) == (t, t, t, o, x)


def chain():
    b = Builder()
    x = b.add(Kind.INPUT, (100,), name="x")
    t = b.call("tanh", x, shape=(100,))
    n = b.call("negative", t, shape=(100,))
    s = b.call("sum", n, shape=(1,))
    return b.graph(s), (x, t, n, s)


def test_what_is_fused_moves_no_bytes_in_between():
    graph, (x, t, n, s) = chain()
    slow_memory = Work(graph, Machine(flops=1e30, bandwidth=1.0)).seconds
    assert slow_memory == pytest.approx({x: 0, t: 400, n: 0, s: 4})


def test_seconds_are_the_longer_of_arithmetic_and_traffic():
    graph, (_, t, n, s) = chain()
    slow_arithmetic = Work(graph, Machine(flops=1.0, bandwidth=1e30)).seconds
    assert (slow_arithmetic[t], slow_arithmetic[n], slow_arithmetic[s]) == (800, 100, 100)
    assert Machine(2.0, 4.0).seconds(6, 4) == 3
    assert Machine(2.0, 4.0).seconds(2, 40) == 10


def test_a_view_between_a_pointwise_operator_and_a_product_does_not_hide_the_write():
    b = Builder()
    x = b.add(Kind.INPUT, (4, 4), name="x")
    t = b.call("tanh", x, shape=(4, 4))
    r = b.call("reshape", t, shape=(4, 4))
    d = b.call("nn.dense", r, x, shape=(4, 4))
    seconds = Work(b.graph(d), Machine(flops=1e30, bandwidth=1.0)).seconds
    assert [seconds[i] for i in (t, r, d)] == pytest.approx([64 + 64, 0, 3 * 64])


def test_unknown_dimensions_count_as_one():
    b = Builder()
    x = b.add(Kind.INPUT, ("n", 8), name="x")
    w = b.add(Kind.INPUT, (4, 8), name="w")
    d = b.call("nn.dense", x, w, shape=("n", 4))
    assert flops(b.graph(d))[d] == 2 * 4 * 8


def test_what_is_fused_into_one_kernel_is_not_moved_within_it():
    nodes = [
        node("x", Kind.INPUT, out=tensor(1000)),
        node("a", reads=("x",), op="mean", out=tensor(1000)),
        node("b", reads=("a",), op="transpose", out=tensor(1000)),
        node("c", reads=("b",), op="nn.dense", out=tensor(1000)),
    ]
    graph = Graph("main", "relax", tuple(nodes), ("x",), ("c",))
    unit = 4000 / NOMINAL.bandwidth
    apart = Work(graph, kernels=[("a",), ("b",), ("c",)]).seconds
    assert (apart["a"], apart["b"]) == pytest.approx((2 * unit, 2 * unit))
    fused = Work(graph, kernels=[("a", "b"), ("c",)]).seconds
    assert (fused["a"], fused["b"]) == pytest.approx((unit, unit))


def test_a_border_between_pointwise_kernels_does_not_make_recomputing_dearer():
    nodes = [
        node("x", Kind.INPUT, out=tensor(1000)),
        node("a", reads=("x",), op="exp", out=tensor(1000)),
        node("b", reads=("a",), op="add", out=tensor(1000)),
    ]
    graph = Graph("main", "relax", tuple(nodes), ("x",), ("b",))
    assert Work(graph, kernels=[("a",), ("b",)]).seconds == Work(graph).seconds


def line():
    nodes = [
        node("x", Kind.INPUT, out=tensor(1000)),
        node("w", Kind.INPUT, out=tensor(1000)),
        node("a", reads=("x",), op="exp", out=tensor(1000)),
        node("d", reads=("a", "w"), op="nn.dense", out=tensor(1000)),
        node("b", reads=("d",), op="add", out=tensor(1000)),
        node("c", reads=("b",), op="reshape", out=tensor(1000)),
    ]
    return Graph("main", "relax", tuple(nodes), ("x", "w"), ("c",))


def test_a_measured_kernel_is_shared_out_by_the_estimates():
    guess = Work(line()).seconds
    work = Work(line(), measured=[(("a",), 0.5), (("d", "b"), 2.0)])
    assert work.seconds["a"] == pytest.approx(0.5)
    assert work.seconds["d"] + work.seconds["b"] == pytest.approx(2.0)
    assert work.seconds["d"] / work.seconds["b"] == pytest.approx(guess["d"] / guess["b"])
    assert work.seconds["c"] == work.seconds["x"] == 0


def test_what_was_not_measured_is_estimated_at_the_pace_of_what_was():
    guess = Work(line()).seconds
    work = Work(line(), measured=[(("a",), 1000 * guess["a"])])
    assert work.seconds["d"] == pytest.approx(1000 * guess["d"])
    assert work.machine.bandwidth == pytest.approx(NOMINAL.bandwidth / 1000)
    assert work.machine.flops == pytest.approx(NOMINAL.flops / 1000)


def test_a_measured_kernel_of_views_alone_costs_its_views_alike():
    nodes = [
        node("x", Kind.INPUT, out=tensor(8)),
        node("v", reads=("x",), op="reshape", out=tensor(8)),
        node("u", reads=("v",), op="squeeze", out=tensor(8)),
    ]
    graph = Graph("main", "relax", tuple(nodes), ("x",), ("u",))
    assert Work(graph, measured=[(("v", "u"), 1.0)]).seconds == {"x": 0, "v": 0.5, "u": 0.5}
