"""Bytes, storages, FLOPs and seconds of operators, against what arithmetic says."""

import pytest

from graphs import graph_of, group, nodes_of
from relascope.passes import cost

CONVOLVING = 2 * 8 * 30 * 30 * 16 * 9
FLOPS = {
    "x :14x768; w :3072x768; r nn.dense x w :14x3072": 2 * 14 * 3072 * 768,
    "x :12x14x64; y :12x64x20; r nn.batch_matmul x y :12x14x20": 2 * 12 * 14 * 20 * 64,
    "x :3x5x2; y :3x5x7; r nn.batch_matmul x y transpose_a=True :3x2x7": 2 * 3 * 2 * 7 * 5,
    "x :8x14x64; y :64x10; r matmul x y :8x14x10": 2 * 8 * 14 * 10 * 64,
    "x :1x16x32x32; w :8x16x3x3; r nn.conv2d x w :1x8x30x30": CONVOLVING,
    "x :1x16x8x8; w :16x1x3x3; r nn.conv2d x w groups=16 :1x16x6x6": 2 * 16 * 36 * 9,
    "g :1x8x30x30; w :8x16x3x3; r nn.conv2d_transpose g w :1x16x32x32": CONVOLVING,
    "g :2x8x30x30; x :2x16x32x32; r nn.conv2d_backward_weight g x :8x16x3x3": 2 * CONVOLVING,
    "x :2x3; y :3; r add x y :2x3": 6,
    "x :2x300; r mean x :2x1": 600,
    "x :2x3x4; y :2x5x4; r einsum x y subscripts='bij,bkj->bik' :2x3x5": 2 * 2 * 3 * 5 * 4,
    "x :2x3x4; y :4x5; r einsum x y subscripts='...j,jk->...k' :2x3x5": 2 * 2 * 3 * 4 * 5,
    "x :2x3; y :2x3; r concat x y :4x3": 0,
    "x :2x3; y :1x3; r slice_scatter x y :2x3": 0,
    "g :7x4; x :9x4; i :7; r grad.take_backward g x i :9x4": 28,
    "g :1x2x4x4; x :1x2x8x8; r grad.max_pool2d_backward g x :1x2x8x8": 32,
    "x :nx8; w :4x8; r nn.dense x w :nx4": 2 * 4 * 8,  # what is unknown counts as one
    "x :2x3; r reshape x :6": 0,
    "x :2x3; r transpose x :3x2": 0,
}


@pytest.mark.parametrize("text", FLOPS)
def test_flops(text):
    assert cost.flops_of(graph_of(text))["r"] == FLOPS[text]


def test_a_transcendental_function_costs_more_than_an_addition():
    found = cost.flops_of(graph_of("x; a add x; e exp x"))
    assert found["e"] > found["a"]


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


@pytest.mark.parametrize("op", sorted({*" ".join([*KINDS.values(), NO_KIND]).split()}))
def test_kinds_of_operators(op):
    node = nodes_of(f"r {op} x y")[0]
    assert [is_it(node) for is_it in KINDS] == [op in ops.split() for ops in KINDS.values()]


def test_a_fused_group_is_the_sum_of_what_is_inside():
    whole = group("f", "", "x", graph_of("x :2x3; w :4x3; d nn.dense x w :2x4"))
    assert cost.flops_of(graph_of(["x", whole]))["f"] == 2 * 2 * 4 * 3
    assert cost.is_product(whole)


def test_views_of_views_share_one_storage_and_a_transpose_has_its_own():
    owner = cost.storages(
        graph_of(
            "x; t tanh x; r reshape t :8; e expand_dims r :8x1; o transpose e :1x8;"
            " v reshape x :4x2 -> o v"
        )
    )
    assert [owner[i] for i in "treov"] == ["t", "t", "t", "o", "x"]


def test_seconds_are_the_longer_of_arithmetic_and_traffic_and_what_is_fused_has_none_between():
    chain = graph_of("x; t tanh x; n negative t; s sum n :1", of="100")
    slow_memory = cost.Work(chain, cost.Machine(flops=1e30, bandwidth=1.0)).seconds
    assert slow_memory == pytest.approx({"x": 0, "t": 400, "n": 0, "s": 4})
    slow_arithmetic = cost.Work(chain, cost.Machine(flops=1.0, bandwidth=1e30)).seconds
    assert [slow_arithmetic[i] for i in "tns"] == [800, 100, 100]
    assert cost.Machine(2.0, 4.0).seconds(6, 4) == 3
    assert cost.Machine(2.0, 4.0).seconds(2, 40) == 10


def test_borders_of_views_and_pointwise_kernels_neither_hide_a_write_nor_cost_one():
    graph = graph_of("x; t tanh x; r reshape t; d nn.dense r x", of="4x4")
    seconds = cost.Work(graph, cost.Machine(flops=1e30, bandwidth=1.0)).seconds
    assert [seconds[i] for i in "trd"] == pytest.approx([64 + 64, 0, 3 * 64])
    graph = of_1000("x; a exp x; b add a")
    assert cost.Work(graph, kernels=[("a",), ("b",)]).seconds == cost.Work(graph).seconds


def of_1000(text):
    return graph_of(text, ir="relax", of="1000")


def test_what_is_fused_into_one_kernel_is_not_moved_within_it():
    graph = of_1000("x; a mean x; b transpose a; c nn.dense b")
    unit = 4000 / cost.NOMINAL.bandwidth
    apart = cost.Work(graph, kernels=[("a",), ("b",), ("c",)]).seconds
    assert (apart["a"], apart["b"]) == pytest.approx((2 * unit, 2 * unit))
    fused = cost.Work(graph, kernels=[("a", "b"), ("c",)]).seconds
    assert (fused["a"], fused["b"]) == pytest.approx((unit, unit))


def line():
    return of_1000("x; w; a exp x; d nn.dense a w; b add d; c reshape b")


def test_a_measured_kernel_is_shared_out_by_the_estimates_and_sets_the_pace_of_others():
    guess = cost.Work(line()).seconds
    work = cost.Work(line(), measured=[(("a",), 0.5), (("d", "b"), 2.0)])
    assert work.seconds["a"] == pytest.approx(0.5)
    assert work.seconds["d"] + work.seconds["b"] == pytest.approx(2.0)
    assert work.seconds["d"] / work.seconds["b"] == pytest.approx(guess["d"] / guess["b"])
    assert work.seconds["c"] == work.seconds["x"] == 0
    work = cost.Work(line(), measured=[(("a",), 1000 * guess["a"])])
    assert work.seconds["d"] == pytest.approx(1000 * guess["d"])
    assert work.machine.bandwidth == pytest.approx(cost.NOMINAL.bandwidth / 1000)
    assert work.machine.flops == pytest.approx(cost.NOMINAL.flops / 1000)
    graph = of_1000("x; v reshape x; u squeeze v")
    assert cost.Work(graph, measured=[(("v", "u"), 1.0)]).seconds == {"x": 0, "v": 0.5, "u": 0.5}
