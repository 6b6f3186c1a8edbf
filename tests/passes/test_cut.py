"""What is captured on joint graphs, the frontier, and what becomes of each node and when."""

import itertools
from dataclasses import replace

import pytest

import graphs
from drawn_graphs import seeds
from effort import calls_of
from graphs import graph_of
from joints import chain, messy, small, split_graph, views
from relascope.core.graph import Graph, Role
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut, cut_at, roles
from relascope.passes.cuts.frontier import frontier


def test_keep_all_saves_what_crosses_and_nothing_else():
    result = cut(small())
    (capture,) = result.captures
    assert (capture.op, capture.shape, capture.dtype, capture.bytes) == ("t", (2, 4), "float32", 32)
    assert (capture.scope, capture.source, capture.readers) == ("act", "aten::tanh", ("dh",))
    assert capture.reason and not capture.is_output
    assert result.bytes == result.extra_bytes == 32 + 32  # t and the mask
    assert result.recomputed == ()


def test_a_budget_counts_masks_and_one_below_them_is_refused():
    assert cut(small(), "keep_all").bytes == cut(small(), "budget", 1.0).budget == 64
    assert cut(small(), "min_cut").uncapped_bytes >= 32
    for strategy in ("budget", "frontier"):
        with pytest.raises(ValueError, match=r"less than 32 \(32 are dropout masks"):
            cut(small(), strategy, 31)


def test_a_mask_that_only_work_done_again_reads_is_a_price_of_that_work():
    """x wants no gradient; t = x * m can be kept (8 bytes a row) or drawn from the mask (32)."""
    graph = graph_of(
        "x; m=dropout_mask_0; g; d multiply x m; s reshape d :8; t tanh s :8/float16; y exp t;"
        " dy multiply g t -> y | dy"
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


def test_a_mask_is_kept_or_drawn_again_at_its_price():
    """x and t take 40,000 bytes, the mask 10,000, a generator's state 5,056."""
    graph = graph_of(
        "x; m=dropout_mask_0 :100x100/uint8; g; h sigmoid x; t multiply h m; y sum t :1; e exp g;"
        " dt multiply e m; dx multiply dt x -> y | dx",
        of="100x100",
    )
    joint = Joint(graph)
    for strategy in ("min_cut", "keep_all", "recompute_pointwise"):
        assert cut(joint, strategy).bytes == 10_000
    found = cut(joint, recompute=["dropout_mask_*"])
    assert found.ids == found.drawn_again == ("m",) and not (found.handed or found.masks)
    (state,) = found.captures
    assert (state.bytes, state.shape, state.readers) == (5056, (5056,), ("dt",))
    assert (found.bytes, found.mask_bytes, found.recomputed) == (5056, 0, ())
    assert found.recomputed_seconds == joint.draws["m"] == pytest.approx(10_000 * 5e-9)
    assert found.net_share == pytest.approx(found.share) and found.share > 0
    assert found.lifetimes.all == cut(joint, "keep_all").lifetimes.all  # the mask is there
    for strategy in ("budget", "frontier"):
        assert cut(joint, strategy, 9_999).ids == ("m",)
        assert cut(joint, strategy, 10_000).ids == ()
        with pytest.raises(ValueError, match=r"less than 5,056 \(5,056 are dropout masks"):
            cut(joint, strategy, 5_055)
        with pytest.raises(ValueError, match="less than 10,000"):
            cut(joint, strategy, 9_999, save=["m"])
    assert [p.bytes for p in frontier(joint)] == [10_000, 5_056]
    assert cut(joint, save=["m"]).idle == {"m": "The strategy keeps the mask anyway."}
    assert cut_at(graph, ["m"]).bytes == 5056 and cut_at(graph, []).bytes == 10_000
    # Of the work d = h * m, only the part that nobody asked for is bounded.
    other = graph_of(
        "x; m=dropout_mask_0 :100x100/uint8; g; h . x; d multiply h m; t tanh d; y sum t :1;"
        " dt multiply g t; dh multiply dt m; dx . dt x -> y | dh dx",
        of="100x100",
    )
    assert cut(other).bytes - cut(other, recompute=["m"]).bytes == 10_000 - 5056
    assert cut(small(), "budget", 32).masks  # whose state would take more than it


def test_a_view_of_a_mask_is_the_mask():
    graph = graph_of("x; m=dropout_mask_0; g; v reshape m; y multiply x v; d multiply g v -> y | d")
    for found in (cut(graph), cut(graph, "keep_all"), cut_at(graph, ["v"])):
        assert (found.bytes, found.mask_bytes, [m.id for m in found.masks]) == (32, 32, ["m"])
        assert sum(c.bytes for c in (*found.captures, *found.masks)) == 32


def test_inputs_only_computes_again_what_the_backward_needs_and_no_more():
    result = cut(small(), "inputs_only")
    assert result.captures == ()
    assert result.bytes == result.mask_bytes == 32
    assert result.recomputed == ("h", "t")  # not y, which nothing in the backward reads
    by_hand = cut_at(small(), ["h"])
    assert by_hand.captures[0].readers == by_hand.recomputed == ("t",)


CROSSINGS = {
    "an output": ("x; g; y . x; dx . g y", "dx", "y", ""),
    "a gradient that is of the forward": ("x; g; h . x; y . h; dx . g", "h dx", "h", ""),
    "a tuple of others read whole": (
        "x; g; a . x; b . x; t () a b; y concatenate t; dx concatenate g t",
        *("dx", "a b", "t"),
    ),
    "a call's results read whole": (
        "x; g; s . x :2x2 :2x2; s0 [0] s :2x2; y . s0; dx concatenate g s",
        *("dx", "", "s"),
    ),
    "constants alone": ("x; g; c#; z zeros; n . c z; y . x n; dx . g n c z", "dx", "", ""),
}


@pytest.mark.parametrize("name", CROSSINGS)
def test_keep_all_captures_what_can_be_and_computes_the_rest_again(name):
    text, gradients, captured, again = CROSSINGS[name]
    result = cut(graph_of(text, "y", gradients=gradients), "keep_all")
    assert (result.ids, result.recomputed) == (tuple(captured.split()), tuple(again.split()))
    assert all(c.is_output == (c.id == "y") for c in result.captures)
    if name == "an output":
        assert (result.bytes, result.extra_bytes) == (32, 0)
    if name == "a gradient that is of the forward":
        assert result.captures[0].readers == ("h",)


def test_a_field_is_captured_and_never_the_tuple():
    graph = split_graph("s1 [1] s :2x2; dx . g s1 s0")
    result = cut(graph, "keep_all")
    assert result.ids == ("s0", "s1")  # s1 stands in the backward, but costs only what s costs
    assert result.bytes == 32
    assert roles(graph)["s1"] is Role.CAPTURED


def test_an_unknown_size_makes_the_sum_unknown():
    graph = graph_of("x; g; t tanh x :nx4; y . t; d . g t -> y | d")
    assert cut(graph, "keep_all").ids == ("t",) and cut(graph, "keep_all").bytes is None


@pytest.mark.parametrize(
    ("ident", "reason"),
    [("dh", "belongs to the backward"), ("w", "parameter"), ("nowhere", "no node"), ("s", "tuple")],
)
def test_by_hand_says_why_a_node_cannot_be_captured(ident, reason):
    graph = split_graph("dx . g s0") if ident == "s" else small()
    with pytest.raises(ValueError, match=reason) as raised:
        cut_at(graph, [ident])
    assert ident in str(raised.value)


def test_a_graph_without_gradients_and_an_unknown_strategy_are_refused():
    graph = small()
    with pytest.raises(ValueError, match="is not a joint graph"):
        cut(Graph("main", "relay", graph.nodes, graph.inputs, graph.outputs))
    with pytest.raises(ValueError, match=r"guess.*keep_all"):
        cut(graph, "guess")
    assert next(iter(STRATEGIES)) == "min_cut"


def long_chain(length):
    forward = "".join(f"; f{i + 1} tanh f{i}" for i in range(length))
    backward = "".join(f"; b{i} mul b{i + 1} f{i + 1}" for i in reversed(range(length)))
    return graph_of(f"f0; b{length}{forward}{backward} -> f{length} | b0")


@pytest.mark.parametrize("strategy", ["keep_all", "inputs_only"])
def test_a_chain_of_20000_nodes_is_cut_in_linear_time(strategy):
    result = cut(graph := long_chain(10_000), strategy)
    counts = len(result.captures), len(result.recomputed)
    assert len(Joint(graph).crossings) == 10_000
    assert counts == ((10_000, 0) if strategy == "keep_all" else (0, 10_000))
    short, long = long_chain(250), long_chain(1000)
    assert calls_of(lambda: cut(long, strategy)) < 4.5 * calls_of(lambda: cut(short, strategy))


def test_what_the_cap_on_work_decided_is_said():
    graph = graph_of("x; g; s nn.softmax x; t nn.softmax s; c cos t; b multiply g s t -> c | b")
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
        "x; g; t nn.dense x; v reshape t :4x2; z exp v; idle exp z; b multiply g v t -> idle | b"
    )


@pytest.mark.parametrize(("strategy", "budget"), [("min_cut", None), ("budget", 1.0)])
def test_a_view_saved_by_hand_and_its_base_are_kept_once_and_what_is_idle_not(strategy, budget):
    found = cut(with_a_view(), strategy, budget, save=["v"])
    assert (found.ids, found.bytes, found.recomputed) == (("t", "v"), 32, ())
    with pytest.raises(ValueError, match=r"idle \(exp\) is not saved: nothing in the backward"):
        cut(with_a_view(), strategy, budget, save=["idle"])


def test_a_pattern_picks_the_same_of_equal_layers(monkeypatch):
    layers = "".join(
        f"a{i} nn.dense {x} w @layer.{i}.fc <aten::linear;"
        f" b{i} tanh a{i} @layer.{i}.act <aten::tanh;"
        f" c{i} tanh b{i} @layer.{i}.act <aten::tanh;"
        for i, x in enumerate(("x", "c0", "c1"))
    )
    backward = "d2 multiply g a2 b2; d1 multiply d2 a1 b1; d0 multiply d1 a0 b0"
    graph = graph_of(f"x; w! :4x4; g; {layers} {backward}", "c2", gradients="d0")
    assert Joint(graph).alike["b1"] == ("b0", "b1", "b2")
    assert cut(graph, save=["layer.[01].* :: tanh"]).wish.save == {"b0", "b1", "c0", "c1"}
    by_hand = cut(graph, save=["*.fc::linear", "b1"], recompute=["layer.0.act :: *"])
    assert by_hand.wish.save == {"a0", "a1", "a2", "b1"}
    assert by_hand.wish.recompute == {"b0", "c0"}
    asked, rule = [], STRATEGIES["min_cut"]
    counted = replace(rule, choose=lambda *given: asked.append(given) or rule.choose(*given))
    monkeypatch.setitem(STRATEGIES, "min_cut", counted)
    assert set(cut(graph, save=["*.fc :: linear"]).idle) == {"a0", "a1", "a2"}
    assert len(asked) == 2  # one cut tells of all three
    with pytest.raises(ValueError, match=r"matches nothing .*its operators: nn.dense$"):
        cut(graph, save=["*.fc :: tanh"])
    with pytest.raises(ValueError, match=r"its modules: layer.0.act, layer.0.fc, layer.1"):
        cut(graph, save=["fc :: tanh"])


def test_the_number_of_questions_is_bounded():
    graph = graphs.joint(4)
    found = frontier(Joint(graph), most=3)
    assert len(found) <= 5
    assert not found.proven
    assert frontier(Joint(graph), most=10_000).proven


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_the_strategy_takes_the_least_time_on_it_within_the_budget(seed):
    graph = messy(seed, 40)
    points = frontier(Joint(graph))
    for point, after in itertools.pairwise(points):
        assert cut(graph, "frontier", point.bytes).bytes == point.bytes
        found = cut(graph, "frontier", point.bytes - 1)
        assert (found.bytes, found.joint.extra_seconds(found.ids)) == (after.bytes, after.seconds)
    with pytest.raises(ValueError, match="no cut keeps less than"):
        cut(graph, "frontier", 0, save=[next(iter(points[0].saved))])


STANDINGS = {
    "x": ("given", "receives it", False),
    "a": ("too far", "the backward uses tanh", True),
    "b": ("captured", "Saved: ", True),
    "c": ("recomputed", "recomputable from tanh by tanh", True),
    "u": ("not needed", "nothing in the backward", False),
    "dc": ("backward", "backward computes it", False),
}


def test_every_node_has_its_standing_and_says_why():
    reasons = cut_at(chain(), ["b"]).reasons
    for node_id, (kind, word, can_save) in STANDINGS.items():
        found = reasons.standing(node_id)
        assert (found.kind, found.can_save) == (kind, can_save) and word in found.reason


def test_tensors_are_held_from_their_making_or_making_again_to_their_last_reader():
    kept = cut(chain(), "keep_all").lifetimes
    assert (kept.forward, kept.backward, kept.peak) == (5, 2, 480)
    assert kept.order == ["a", "b", "c", "y", "u", "dc", "db"]
    assert kept.bytes() == [0, 32, 160, 416, 448, 480, 448, 480]  # dc is in the kernel of db
    assert kept.bytes("captured") == [0, 0, 128, 384, 384, 384, 384, 384]
    found = cut_at(chain(), ["a"])
    assert found.recomputed == ("b", "c")
    lived = found.lifetimes
    assert lived.order == ["a", "b", "c", "y", "u", "b", "c", "dc", "db"]
    assert lived.bytes() == [0, 416, 416, 416, 448, 480, 480, 448, 448, 480]
    assert lived.pooled == [0, 0, 128, 384, 256, 0, 128, 384, 384, 384]
    assert lived.bytes("again") == [0] * 6 + [384] * 4  # in Relay one memory, at its most
    again = [(x.id, x.begin, x.end, x.reads) for x in lived.all if x.role == "again"]
    assert again == [("b", 6, 9, (7, 9)), ("c", 7, 9, (8, 9))]
    in_turns = cut_at(replace(chain(), ir="relax"), ["b", "c"]).lifetimes
    # There, the backward's two nodes are one kernel.
    assert in_turns.bytes("captured") == [0, 0, 128, 384, 384, 384, 384, 384]
    at = in_turns.at(6)
    assert [(x.id, x.next_read(6)) for x in at[:2]] == [("c", 6), ("b", 7)]
    assert [x.id for x in at] == ["c", "b", "y", "u"]


def test_a_view_holds_the_storage_of_its_base_once_and_what_is_a_result_stays():
    found = cut(views(), "keep_all")
    assert max(found.lifetimes.bytes("captured")) == found.bytes == 32
    lived = cut_at(small(), ["y", "t"]).lifetimes
    assert lived.bytes("captured") == [32, 32, 64, 96, 96, 64, 32, 32]  # the mask is there before
    assert lived.bytes() == [32, 64, 96, 128, 160, 128, 128, 192]
    found, again = cut_at(views(), ["h"]), cut(views(), "inputs_only")
    assert found.recomputed == ("v", "a", "b")
    for made, role in ((found, "captured"), (again, "again")):
        (view,) = [x for x in made.lifetimes.all if x.role == role]
        assert (view.id, view.bytes) == ("h", 32)
        assert made.lifetimes.order[view.reads[-1] - 1] == "dx"
