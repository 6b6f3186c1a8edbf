"""What is captured, on joint graphs made by hand."""

from dataclasses import replace

import pytest

from effort import calls_of
from graphs import graph_of
from joints import small, split_graph
from relascope.core.graph import Graph, Role, TensorType
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut, cut_at, roles


def test_keep_all_saves_what_crosses_and_nothing_else():
    result = cut(small())
    assert result.ids == ("t",)
    (capture,) = result.captures
    assert (capture.op, capture.shape, capture.dtype, capture.bytes) == ("t", (2, 4), "float32", 32)
    assert (capture.scope, capture.source, capture.readers) == ("act", "aten::tanh", ("dh",))
    assert not capture.is_output
    assert capture.reason
    assert result.bytes == result.extra_bytes == 32 + 32  # t and the mask
    assert result.recomputed == ()


def test_masks_are_listed_with_their_bytes_which_every_total_counts():
    for strategy in STRATEGIES:
        result = cut(small(), strategy, 32 + 32 if STRATEGIES[strategy].has_budget else None)
        assert [m.id for m in result.masks] == ["m"]
        assert result.masks[0].readers == ("dt",)
        assert result.mask_bytes == 32
        assert result.bytes == result.extra_bytes == 32 + 32 * len(result.captures)
    assert cut(small(), "keep_all").bytes == cut(small(), "budget", 1.0).budget == 64
    assert cut(small(), "min_cut").uncapped_bytes >= 32
    for strategy in ("budget", "frontier"):
        with pytest.raises(ValueError, match="less than 32, of which 32 are dropout masks"):
            cut(small(), strategy, 31)


def test_a_mask_that_only_work_done_again_reads_is_a_price_of_that_work():
    """x wants no gradient; t = x * m can be kept (8 bytes a row) or drawn from the mask (32)."""
    graph = graph_of(
        "x; m=dropout_mask_0; g; d multiply x m; s reshape d :8;"
        " t tanh s :8/float16; y exp t; dy multiply g t",
        "y",
        gradients="dy",
    )
    kept = cut(graph, "keep_all")
    assert (kept.bytes, kept.masks, kept.mask_bytes) == (16, (), 0)
    again = cut(graph, "inputs_only")
    assert (again.bytes, [m.readers for m in again.masks]) == (32, [("d",)])
    for strategy in ("min_cut", "recompute_pointwise", "budget", "frontier"):
        assert cut(graph, strategy).ids == ("t",)
    assert cut(graph, "budget").budget == 16  # the least, for half of it is too little
    assert cut_at(graph, ["s"]).bytes == 32
    by_hand = cut(graph, recompute=["t"])
    assert (by_hand.bytes, by_hand.uncapped_bytes) == (32, 32)


def test_a_view_of_a_mask_is_the_mask():
    graph = graph_of(
        "x; m=dropout_mask_0; g; v reshape m; y multiply x v; dx multiply g v", "y", gradients="dx"
    )
    for found in (cut(graph), cut(graph, "keep_all"), cut_at(graph, ["v"])):
        assert (found.bytes, found.mask_bytes, [m.id for m in found.masks]) == (32, 32, ["m"])
        assert sum(c.bytes for c in (*found.captures, *found.masks)) == 32


def test_a_mask_that_only_the_forward_reads_is_not_kept():
    graph = graph_of("x; m=dropout_mask_0; g; y . x m; dx . g", "y", gradients="dx")
    assert cut(graph, "keep_all").masks == ()


def test_roles_of_every_node():
    given = roles(small())
    assert {i for i, r in given.items() if r is Role.CAPTURED} == {"t"}
    assert {i for i, r in given.items() if r is Role.BACKWARD} == {"g", "dt", "dh", "dx", "dw"}
    assert {i for i, r in given.items() if r is Role.FORWARD} == {"x", "w", "m", "h", "y"}
    assert roles(small(), captured=())["t"] is Role.FORWARD


def test_inputs_only_computes_again_what_the_backward_needs_and_no_more():
    result = cut(small(), "inputs_only")
    assert result.captures == ()
    assert result.bytes == result.mask_bytes == 32
    assert result.recomputed == ("h", "t")  # not y, which nothing in the backward reads


def test_readers_count_what_is_computed_again():
    assert cut_at(small(), ["h"]).captures[0].readers == ("t",)
    assert cut_at(small(), ["h"]).recomputed == ("t",)


def test_an_output_that_the_backward_reads_is_captured_and_marked():
    graph = graph_of("x; g; y . x; dx . g y", "y", gradients="dx")
    result = cut(graph, "keep_all")
    assert result.ids == ("y",)
    assert result.captures[0].is_output
    assert result.bytes == 32
    assert result.extra_bytes == 0


def test_a_gradient_that_is_a_forward_value_is_captured():
    graph = graph_of("x; g; h . x; y . h; dx . g", "y", gradients="h dx")
    result = cut(graph, "keep_all")
    assert result.ids == ("h",)
    assert result.captures[0].readers == ("h",)


def test_a_field_is_captured_and_never_the_tuple():
    graph = split_graph("s1 [1] s :2x2; dx . g s1 s0")
    result = cut(graph, "keep_all")
    assert result.ids == ("s0", "s1")  # s1 stands in the backward, but costs only what s costs
    assert result.bytes == 32
    assert roles(graph)["s1"] is Role.CAPTURED


def test_fields_of_a_tuple_that_the_backward_reads_whole_are_captured():
    graph = graph_of(
        "x; g; a . x; b . x; t () a b; y concatenate t; dx concatenate g t", "y", gradients="dx"
    )
    assert cut(graph, "keep_all").ids == ("a", "b")
    assert cut(graph, "keep_all").recomputed == ("t",)


def test_a_call_with_several_results_read_whole_is_computed_again():
    graph = split_graph("dx concatenate g s")
    result = cut(graph, "keep_all")
    assert result.ids == ()
    assert result.recomputed == ("s",)


def test_what_comes_from_constants_alone_is_never_captured():
    graph = graph_of("x; g; c#; z zeros; n . c z; y . x n; dx . g n c z", "y", gradients="dx")
    result = cut(graph, "keep_all")
    assert result.captures == ()
    assert result.recomputed == ()


def test_an_unknown_size_makes_the_sum_unknown():
    unknown = (TensorType(("n", 4), "float32"),)
    nodes = (replace(n, outputs=unknown) if n.id == "t" else n for n in small())
    graph = small().with_nodes(nodes)
    assert cut(graph, "keep_all").bytes is None


@pytest.mark.parametrize(
    ("ident", "reason"),
    [("dh", "belongs to the backward"), ("w", "parameter"), ("nowhere", "no node")],
)
def test_by_hand_says_why_a_node_cannot_be_captured(ident, reason):
    with pytest.raises(ValueError, match=reason) as raised:
        cut_at(small(), [ident])
    assert ident in str(raised.value)


def test_by_hand_refuses_a_tuple():
    graph = split_graph("dx . g s0")
    with pytest.raises(ValueError, match="tuple"):
        cut_at(graph, ["s"])


def test_a_graph_without_gradients_and_an_unknown_strategy_are_refused():
    graph = small()
    with pytest.raises(ValueError, match="no joint graph"):
        cut(Graph("main", "relay", graph.nodes, graph.inputs, graph.outputs))
    with pytest.raises(ValueError, match=r"guess.*keep_all"):
        cut(graph, "guess")
    assert next(iter(STRATEGIES)) == "min_cut"


def long_chain(length):
    last = length - 1
    forward = "".join(f"; f{i} tanh f{i - 1}" for i in range(1, length))
    backward = "".join(f"; b{i} mul b{i + 1} f{i}" for i in reversed(range(last)))
    text = f"x; g; f0 tanh x{forward}; b{last} mul g f{last}{backward}"
    return graph_of(text, f"f{last}", gradients="b0")


@pytest.mark.parametrize("strategy", ["keep_all", "inputs_only"])
def test_a_chain_of_20000_nodes_is_cut_in_linear_time(strategy):
    graph = long_chain(10_000)
    result = cut(graph, strategy)
    crossing = len(Joint(graph).crossings)
    assert crossing == 10_000
    assert (len(result.captures), len(result.recomputed)) == (
        (10_000, 0) if strategy == "keep_all" else (0, 10_000)
    )
    short, long = long_chain(500), long_chain(2000)
    assert calls_of(lambda: cut(long, strategy)) < 4.5 * calls_of(lambda: cut(short, strategy))


def test_what_the_cap_on_work_decided_is_said():
    graph = graph_of(
        "x; g; c0 nn.softmax x; c1 nn.softmax c0; c2 cos c1; b multiply g c0 c1",
        "c2",
        gradients="b",
    )
    found = cut(graph)
    assert found.bytes > found.uncapped_bytes == 0
    assert found.cap == (
        f"To keep {found.bytes} bytes less, a step would take longer by more than 5% of the "
        "forward's estimated time."
    )
    assert all("beyond the cap of 5% of the forward" in c.reason for c in found.captures)
    assert cut(graph, "keep_all").cap == ""


def with_a_view():
    """z = exp(t), where the backward reads t as a view and as it is; a head that nothing reads."""
    return graph_of(
        "x; g; t nn.dense x; v reshape t :4x2; z exp v; idle exp z; b multiply g v t",
        "idle",
        gradients="b",
    )


@pytest.mark.parametrize(("strategy", "budget"), [("min_cut", None), ("budget", 1.0)])
def test_a_view_saved_by_hand_and_its_base_are_kept_once(strategy, budget):
    found = cut(with_a_view(), strategy, budget, save=["v"])
    assert found.ids == ("t", "v")
    assert found.bytes == 32
    assert found.recomputed == ()


def test_what_nothing_in_the_backward_needs_is_not_saved_by_hand():
    graph = with_a_view()
    with pytest.raises(ValueError, match=r"idle \(exp\) is not saved: nothing in the backward"):
        cut(graph, save=["idle"])
    assert not cut(graph).reasons.standing("idle").can_save
