"""What is captured, on joint graphs made by hand."""

import pytest

from effort import calls_of
from joints import F32, joint, node, small, split_graph, tensor
from relascope.core.graph import Graph, Kind, Role, TensorType
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut, cut_at, roles


def test_keep_all_saves_what_crosses_and_nothing_else():
    result = cut(small())
    assert result.ids == ("t",)
    (capture,) = result.captures
    assert (capture.op, capture.shape, capture.dtype, capture.bytes) == ("t", (2, 4), F32, 32)
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
    graph = joint(
        node("x", Kind.INPUT),
        node("m", Kind.INPUT, name="dropout_mask_0"),
        node("g", Kind.INPUT),
        node("d", reads=("x", "m"), op="multiply"),
        node("s", reads=("d",), op="reshape", out=tensor(8)),
        node("t", reads=("s",), op="tanh", out=tensor(8, dtype="float16")),
        node("y", reads=("t",), op="exp"),
        node("dy", reads=("g", "t"), op="multiply"),
        outputs=("y",),
        gradients=("dy",),
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
    graph = joint(
        node("x", Kind.INPUT),
        node("m", Kind.INPUT, name="dropout_mask_0"),
        node("g", Kind.INPUT),
        node("v", reads=("m",), op="reshape"),
        node("y", reads=("x", "v"), op="multiply"),
        node("dx", reads=("g", "v"), op="multiply"),
        outputs=("y",),
        gradients=("dx",),
    )
    for found in (cut(graph), cut(graph, "keep_all"), cut_at(graph, ["v"])):
        assert (found.bytes, found.mask_bytes, [m.id for m in found.masks]) == (32, 32, ["m"])
        assert sum(c.bytes for c in (*found.captures, *found.masks)) == 32


def test_a_mask_that_only_the_forward_reads_is_not_kept():
    graph = joint(
        node("x", Kind.INPUT),
        node("m", Kind.INPUT, name="dropout_mask_0"),
        node("g", Kind.INPUT),
        node("y", reads=("x", "m")),
        node("dx", reads=("g",)),
        outputs=("y",),
        gradients=("dx",),
    )
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
    graph = joint(
        node("x", Kind.INPUT),
        node("g", Kind.INPUT),
        node("y", reads=("x",)),
        node("dx", reads=("g", "y")),
        outputs=("y",),
        gradients=("dx",),
    )
    result = cut(graph, "keep_all")
    assert result.ids == ("y",)
    assert result.captures[0].is_output
    assert result.bytes == 32
    assert result.extra_bytes == 0


def test_a_gradient_that_is_a_forward_value_is_captured():
    graph = joint(
        node("x", Kind.INPUT),
        node("g", Kind.INPUT),
        node("h", reads=("x",)),
        node("y", reads=("h",)),
        node("dx", reads=("g",)),
        outputs=("y",),
        gradients=("h", "dx"),
    )
    result = cut(graph, "keep_all")
    assert result.ids == ("h",)
    assert result.captures[0].readers == ("h",)


def test_a_field_is_captured_and_never_the_tuple():
    graph = split_graph(
        node("s1", Kind.ITEM, ("s",), out=tensor(2, 2), attrs={"index": 1}),
        node("dx", reads=("g", "s1", "s0")),
        gradients=("dx",),
    )
    result = cut(graph, "keep_all")
    assert result.ids == ("s0", "s1")  # s1 stands in the backward, but costs only what s costs
    assert result.bytes == 32
    assert roles(graph)["s1"] is Role.CAPTURED


def test_fields_of_a_tuple_that_the_backward_reads_whole_are_captured():
    graph = joint(
        node("x", Kind.INPUT),
        node("g", Kind.INPUT),
        node("a", reads=("x",)),
        node("b", reads=("x",)),
        node("t", Kind.TUPLE, ("a", "b"), out=(tensor(2, 4), tensor(2, 4))),
        node("y", reads=("t",), op="concatenate"),
        node("dx", reads=("g", "t"), op="concatenate"),
        outputs=("y",),
        gradients=("dx",),
    )
    assert cut(graph, "keep_all").ids == ("a", "b")
    assert cut(graph, "keep_all").recomputed == ("t",)


def test_a_call_with_several_results_read_whole_is_computed_again():
    graph = split_graph(node("dx", reads=("g", "s"), op="concatenate"), gradients=("dx",))
    result = cut(graph, "keep_all")
    assert result.ids == ()
    assert result.recomputed == ("s",)


def test_what_comes_from_constants_alone_is_never_captured():
    graph = joint(
        node("x", Kind.INPUT),
        node("g", Kind.INPUT),
        node("c", Kind.CONSTANT),
        node("z", op="zeros"),
        node("n", reads=("c", "z")),
        node("y", reads=("x", "n")),
        node("dx", reads=("g", "n", "c", "z")),
        outputs=("y",),
        gradients=("dx",),
    )
    result = cut(graph, "keep_all")
    assert result.captures == ()
    assert result.recomputed == ()


def test_an_unknown_size_makes_the_sum_unknown():
    nodes = [
        node(n.id, n.kind, n.inputs, TensorType(("n", 4), F32), name=n.name) if n.id == "t" else n
        for n in small().nodes
    ]
    graph = joint(*nodes, outputs=("y",), gradients=("dx", "dw"))
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
    graph = split_graph(node("dx", reads=("g", "s0")), gradients=("dx",))
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
    nodes = [node("x", Kind.INPUT), node("g", Kind.INPUT)]
    nodes += [node(f"f{i}", reads=(f"f{i - 1}" if i else "x",), op="tanh") for i in range(length)]
    before = "g"
    for i in reversed(range(length)):
        nodes.append(node(f"b{i}", reads=(before, f"f{i}"), op="mul"))
        before = f"b{i}"
    return joint(*nodes, outputs=(f"f{length - 1}",), gradients=(before,))


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
    chain = [node("x", Kind.INPUT), node("g", Kind.INPUT)]
    chain += [node(f"c{i}", reads=(f"c{i - 1}" if i else "x",), op="cos") for i in range(3)]
    chain.append(node("b", reads=("g", "c0", "c1"), op="multiply"))
    graph = joint(*chain, outputs=("c2",), gradients=("b",))
    found = cut(graph)
    assert found.bytes > found.uncapped_bytes == 0
    assert found.cap == (
        f"To keep {found.bytes} bytes less, more than 5% of the forward's estimated time would be "
        "computed again."
    )
    assert all("beyond the cap of 5% of the forward" in c.reason for c in found.captures)
    assert cut(graph, "keep_all").cap == ""


def with_a_view():
    """z = exp(t), where the backward reads t as a view and as it is; a head that nothing reads."""
    return joint(
        node("x", Kind.INPUT),
        node("g", Kind.INPUT),
        node("t", reads=("x",), op="nn.dense"),
        node("v", reads=("t",), op="reshape", out=tensor(4, 2)),
        node("z", reads=("v",), op="exp"),
        node("idle", reads=("z",), op="exp"),
        node("b", reads=("g", "v", "t"), op="multiply"),
        outputs=("idle",),
        gradients=("b",),
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
