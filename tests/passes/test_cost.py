"""Bytes, storages, FLOPs and seconds of operators, against what arithmetic says."""

import pytest

from graphs import Builder, graph_of
from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.passes import cost


def call(op, read, shape, **attrs):
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
        (
            "nn.conv2d_backward_weight",
            [(2, 8, 30, 30), (2, 16, 32, 32)],
            (8, 16, 3, 3),
            {},
            2 * 2 * 8 * 30 * 30 * 16 * 9,
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
    assert cost.flops(graph)[node.id] == expected


def test_a_transcendental_function_costs_more_than_an_addition():
    one, node = call("add", [(10,)], (10,))
    other, exp = call("exp", [(10,)], (10,))
    assert cost.flops(other)[exp.id] > cost.flops(one)[node.id]


KINDS = {
    cost.is_product: "nn.dense matmul nn.conv2d nn.conv2d_transpose nn.conv1d einsum",
    cost.is_reduction: "nn.softmax nn.max_pool2d sum grad.take_backward grad.max_pool2d_backward"
    " grad.avg_pool2d_backward nn.adaptive_avg_pool2d nn.log_softmax",
    cost.is_view: "reshape expand_dims nn.batch_flatten",
    cost.is_random: "random.uniform nn.dropout multinomial_from_uniform",
    cost.is_fusible: "reshape transpose multiply concat permute_dims index_tensor strided_slice"
    " image.resize2d where expand_dims nn.batch_flatten",
}
NO_KIND = "slice_scatter scatter_elements index_put argsort"


@pytest.mark.parametrize("op", sorted({op for ops in KINDS.values() for op in ops.split()}))
def test_kinds_of_operators(op):
    _, node = call(op, [(4, 4), (4, 4)], (4, 4))
    assert [is_it(node) for is_it in KINDS] == [op in ops.split() for ops in KINDS.values()]


def test_operators_of_no_kind():
    for op in NO_KIND.split():
        _, node = call(op, [(4, 4), (4, 4)], (4, 4))
        assert not any(is_it(node) for is_it in KINDS)


def test_a_fused_group_is_the_sum_of_what_is_inside():
    body, _ = call("nn.dense", [(2, 3), (4, 3)], (2, 4))
    whole = Node("f", Kind.FUNCTION, outputs=(TensorType((2, 4), "float32"),), body=body)
    graph = Graph("main", "relay", (whole,), (), ("f",))
    assert cost.flops(graph)["f"] == 2 * 2 * 4 * 3
    assert cost.is_product(whole)


def test_views_of_views_share_one_storage_and_a_transpose_has_its_own():
    owner = cost.storages(
        graph_of(
            "x; t tanh x; r reshape t :8; e expand_dims r :8x1; o transpose e :1x8;"
            " v reshape x :4x2",
            "o v",
        )
    )
    assert [owner[i] for i in "treov"] == ["t", "t", "t", "o", "x"]


CHAIN = graph_of("x; t tanh x; n negative t; s sum n :1", of="100")


def test_what_is_fused_moves_no_bytes_in_between():
    slow_memory = cost.Work(CHAIN, cost.Machine(flops=1e30, bandwidth=1.0)).seconds
    assert slow_memory == pytest.approx({"x": 0, "t": 400, "n": 0, "s": 4})


def test_seconds_are_the_longer_of_arithmetic_and_traffic():
    slow_arithmetic = cost.Work(CHAIN, cost.Machine(flops=1.0, bandwidth=1e30)).seconds
    assert [slow_arithmetic[i] for i in "tns"] == [800, 100, 100]
    assert cost.Machine(2.0, 4.0).seconds(6, 4) == 3
    assert cost.Machine(2.0, 4.0).seconds(2, 40) == 10


def test_a_view_between_a_pointwise_operator_and_a_product_does_not_hide_the_write():
    graph = graph_of("x; t tanh x; r reshape t; d nn.dense r x", of="4x4")
    seconds = cost.Work(graph, cost.Machine(flops=1e30, bandwidth=1.0)).seconds
    assert [seconds[i] for i in "trd"] == pytest.approx([64 + 64, 0, 3 * 64])


def test_unknown_dimensions_count_as_one():
    assert cost.flops(graph_of("x :nx8; w :4x8; d nn.dense x w :nx4"))["d"] == 2 * 4 * 8


def of_1000(text):
    return graph_of(text, ir="relax", of="1000")


def test_what_is_fused_into_one_kernel_is_not_moved_within_it():
    graph = of_1000("x; a mean x; b transpose a; c nn.dense b")
    unit = 4000 / cost.NOMINAL.bandwidth
    apart = cost.Work(graph, kernels=[("a",), ("b",), ("c",)]).seconds
    assert (apart["a"], apart["b"]) == pytest.approx((2 * unit, 2 * unit))
    fused = cost.Work(graph, kernels=[("a", "b"), ("c",)]).seconds
    assert (fused["a"], fused["b"]) == pytest.approx((unit, unit))


def test_a_border_between_pointwise_kernels_does_not_make_recomputing_dearer():
    graph = of_1000("x; a exp x; b add a")
    assert cost.Work(graph, kernels=[("a",), ("b",)]).seconds == cost.Work(graph).seconds


def line():
    return of_1000("x; w; a exp x; d nn.dense a w; b add d; c reshape b")


def test_a_measured_kernel_is_shared_out_by_the_estimates():
    guess = cost.Work(line()).seconds
    work = cost.Work(line(), measured=[(("a",), 0.5), (("d", "b"), 2.0)])
    assert work.seconds["a"] == pytest.approx(0.5)
    assert work.seconds["d"] + work.seconds["b"] == pytest.approx(2.0)
    assert work.seconds["d"] / work.seconds["b"] == pytest.approx(guess["d"] / guess["b"])
    assert work.seconds["c"] == work.seconds["x"] == 0


def test_what_was_not_measured_is_estimated_at_the_pace_of_what_was():
    guess = cost.Work(line()).seconds
    work = cost.Work(line(), measured=[(("a",), 1000 * guess["a"])])
    assert work.seconds["d"] == pytest.approx(1000 * guess["d"])
    assert work.machine.bandwidth == pytest.approx(cost.NOMINAL.bandwidth / 1000)
    assert work.machine.flops == pytest.approx(cost.NOMINAL.flops / 1000)


def test_a_measured_kernel_of_views_alone_costs_its_views_alike():
    graph = of_1000("x; v reshape x; u squeeze v")
    assert cost.Work(graph, measured=[(("v", "u"), 1.0)]).seconds == {"x": 0, "v": 0.5, "u": 0.5}
