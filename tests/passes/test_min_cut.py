"""The strategies that choose: against all possible choices on small graphs, and by their rules."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from drawn_graphs import seeds
from effort import calls_of
from graphs import graph_of
from joints import choices, messy, small, split_graph, views
from relascope.passes.cost import is_product, is_reduction
from relascope.passes.cuts import budget as budgets
from relascope.passes.cuts import frontier as frontiers
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut, cut_at
from relascope.passes.cuts.flow import cheapest
from relascope.passes.cuts.min_cut import PRICE, SHARE, SLACK, min_cut
from relascope.passes.cuts.problem import Wish, problem

CHOOSING = [s.name for s in STRATEGIES.values() if s.adapts]


@pytest.mark.parametrize("share", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("seed", seeds(4, 12))
def test_the_minimum_cut_is_the_best_of_all_choices_within_the_bound(seed, share):
    graph = messy(seed, 9)
    it = Joint(graph)
    limit = it.extra_seconds(it.crossings) + share * it.forward_seconds
    banned = {n.id for n in graph.nodes if is_product(n)}
    unit = PRICE * it.work.machine.bandwidth
    able = ((it, chosen) for it, chosen, again in choices(graph) if not banned & set(again))
    prices = ((it.bytes_of(chosen), it.extra_seconds(chosen)) for it, chosen in able)
    best, least = min((held + unit * taken, taken) for held, taken in prices if taken <= limit)
    found = min_cut(it, Wish(), share=share)
    assert it.extra_seconds(found) <= limit * (1 + 1e-9)
    spent = max(0.0, it.extra_seconds(found) - least)
    assert spent <= SLACK * it.forward_seconds * (1 + 1e-9)
    assert not banned & set(it.computed_again(found))
    assert it.bytes_of(found) + unit * (it.extra_seconds(found) - spent) <= best * (1 + 1e-6)


def test_what_the_solver_prints_is_not_among_results(monkeypatch, capfd):
    def milp(*about, **options):
        ctypes.CDLL(None).puts(b"tmpSolver.run();")
        return SimpleNamespace(x=None)

    monkeypatch.setattr("scipy.optimize.milp", milp)
    cut(messy(4, 9), "budget", 0.5)
    assert capfd.readouterr() == ("", "tmpSolver.run();\n")


@pytest.mark.parametrize("seed", range(8))
def test_recomputing_pointwise_saves_the_fewest_bytes_it_can(seed):
    graph = messy(seed, 9)
    kept = {n.id for n in graph.nodes if is_product(n) or is_reduction(n)}
    best = min(it.bytes_of(chosen) for it, chosen, again in choices(graph) if not kept & set(again))
    found = cut(graph, "recompute_pointwise")
    assert not kept & set(found.recomputed)
    assert found.bytes == best


def time_of(found):
    return found.joint.extra_seconds(found.ids)


@pytest.mark.parametrize("seed", seeds(3, 6))
@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.9])
def test_a_budget_is_kept_with_time_within_2_percent_of_the_least(seed, fraction):
    graph = messy(100 + seed, 9)
    limit = int(fraction * cut(graph, "keep_all").bytes)
    within = ((it, chosen) for it, chosen, _ in choices(graph) if it.bytes_of(chosen) <= limit)
    best = min(it.extra_seconds(chosen) for it, chosen in within)
    found = cut(graph, "budget", fraction)
    assert found.bytes <= limit == found.budget
    assert best * (1 - 1e-9) <= time_of(found) <= 1.02 * best


def test_a_budget_in_bytes_and_the_default_of_one_half():
    graph = messy(3, 20)
    whole = cut(graph, "keep_all").bytes
    assert cut(graph, "budget", whole).net_share <= 0
    assert cut(graph, "budget", 0).captures == ()
    assert cut(graph, "budget").budget == whole // 2


SHARES = {"0.5": 0.5, "50%": 0.5, "12.5 %": 0.125, "1.0": 1.0}
BYTES = {"0": 0, "400000": 400000, "1.5MiB": 3 << 19, "2 KiB": 2048, "7B": 7, "1GiB": 1 << 30}


@pytest.mark.parametrize("text", [*SHARES, *BYTES])
def test_a_budget_in_text(text):
    found, budget = budgets.parse_budget(text), (SHARES | BYTES)[text]
    assert (found, type(found)) == (budget, type(budget))


@pytest.mark.parametrize("text", ["", "half", "1.5", "150%", "-3", "3 MB", "nan"])
def test_text_that_is_no_budget(text):
    with pytest.raises(ValueError, match="budget"):
        budgets.parse_budget(text)


@pytest.mark.parametrize("seed", range(5))
def test_a_budget_is_kept_without_the_exact_solver_too(seed, monkeypatch):
    monkeypatch.setattr(budgets, "exact", lambda *about: None)
    graph = messy(seed, 40)
    for fraction in (0.0, 0.3, 0.7, 1.0):
        found = cut(graph, "budget", fraction)
        assert found.bytes <= found.budget
        assert time_of(found) <= time_of(cut(graph, "inputs_only"))
    assert found.net_share <= 0  # all that crosses fits


def chain_of(op):
    text = f"x; g; a {op} x; b {op} a; y {op} b; gb multiply g b; ga multiply gb a"
    return graph_of(f"{text}; dx multiply ga x -> y | dx", of="64x64")


def test_a_chain_that_readers_compute_on_the_way_is_saved_where_it_calls_the_c_library():
    for vectors in ("tanh", "cos"):
        found = cut(chain_of(vectors), "min_cut")
        assert (found.ids, found.recomputed) == ((), ("a", "b"))
        assert found.share > SHARE > 0 > found.net_share
    found = cut(chain_of("tan"), "min_cut")
    assert (found.ids, found.recomputed) == (("a", "b"), ())


def test_what_a_step_does_not_show_goes_into_fewer_bytes():
    for wide, saved in ((2048, ("m",)), (4096, ())):  # to read x again takes .8 and .4 %
        text = f"x :64x256; w! :{wide}x256; g; m mean x :64x1; p nn.dense x w; y multiply p m;"
        assert cut(graph_of(f"{text} d multiply g m -> y | d", of=f"64x{wide}")).ids == saved


def layers(count):
    """As many separate layers, of each of which one large value may be kept, or made again by a
    softmax that has to be written to memory for the backward's product; and a dropout."""
    text = "g; w!; m=dropout_mask_0 :100x100/uint8; o! :100x100; d multiply o m :100x100"
    forward = "".join(f"; x{i}; p{i} nn.softmax x{i}; h{i} nn.dense p{i} w" for i in range(count))
    backward = "".join(f"; b{i} nn.dense g p{i}" for i in range(count))
    outputs, gradients = (" ".join(f"{n}{i}" for i in range(count)) for n in "hb")
    text = f"{text}{forward}; b multiply g m :100x100{backward} -> d {outputs} | b {gradients}"
    return graph_of(text, of="64x64")


def test_the_cap_is_filled_where_one_price_for_all_takes_all_or_nothing():
    count = 40
    found = cut(layers(count))
    every = cut(layers(count), "recompute_pointwise", recompute=[f"p{i}" for i in range(count)])
    most = int(SHARE / every.net_share * count)
    assert 0 < len(found.recomputed) == most < count
    assert found.net_share <= SHARE
    by_hand = cut(layers(count), recompute=["m"])  # which takes more, and leaves others their bound
    assert (len(by_hand.recomputed), by_hand.drawn_again) == (most, ("m",))


@pytest.mark.parametrize("strategy", ["recompute_pointwise", "min_cut"])
def test_two_views_are_saved_as_the_tensor_behind_them(strategy):
    found = cut(views(), strategy)
    assert (found.ids, found.bytes) == (("h",), 32)
    reasons = {s.id: s.reason for s in found.unsaved}
    assert "free" in reasons["v"] and "x" in reasons["v"]
    assert "free" in reasons["a"] and "nn.dense" in reasons["a"]


def test_everything_that_crosses_counts_each_storage_once():
    found = cut(views(), "keep_all")
    assert (found.ids, found.bytes) == (("v", "a", "b"), 32)
    assert [c.shares for c in found.captures] == ["x", "", "a"]
    assert cut_at(views(), ["h", "a", "b"]).bytes == 32


@pytest.mark.parametrize("strategy", CHOOSING)
def test_random_operators_are_never_computed_again_and_tuples_read_whole_never_saved(strategy):
    graph = graph_of("x; g; r random.uniform x; y multiply x r; dx multiply g r y -> y | dx")
    found = cut(graph, strategy, *([32] if strategy == "budget" else []))
    assert "r" in found.ids and "r" not in found.recomputed
    found = cut(split_graph("dx concatenate g s"), strategy)
    assert "s" in found.recomputed and found.ids == ()


def test_a_budget_below_what_must_be_saved_is_refused():
    graph = graph_of("x; g; r random.uniform x; y multiply x r; dx multiply g r -> y | dx")
    with pytest.raises(ValueError, match="no cut keeps less than 32"):
        cut(graph, "budget", 31)
    assert cut(graph, "budget", 32).ids == cut(graph, "inputs_only").ids == ("r",)
    for by_hand in (lambda: cut(graph, recompute=["r"]), lambda: cut_at(graph, [])):
        with pytest.raises(ValueError, match=r"r \(random.uniform\) must be saved: .* other"):
            by_hand()


@pytest.mark.parametrize("strategy", CHOOSING)
def test_what_is_saved_or_recomputed_by_hand_is_so_and_the_rest_follows(strategy):
    graph = small()  # h = x @ w, t = tanh(h): the backward reads t
    budget = 64 if strategy in ("frontier", "budget") else None
    by_hand = cut(graph, strategy, budget, save=["h"], recompute=["t"])
    assert (by_hand.ids, by_hand.recomputed) == (("h",), ("t",))
    assert by_hand.captures[0].reason == "chosen by hand"
    assert [(s.id, s.reason[:7]) for s in by_hand.unsaved] == [("t", "by hand")]


def idle_graph():
    """h = x @ w, v a view of it that the backward reads; z is of no matter to it."""
    return graph_of(
        "x; w! :4x4; g; xv reshape x; h nn.dense x w; v reshape h; t mean v :4x1; z negative t;"
        " y add z xv; dy power g t; dz power dy xv -> y | dz"
    )


def test_a_wish_that_changes_nothing_says_why():
    def idle(**wish):
        return cut(idle_graph(), "min_cut", **wish).idle

    assert idle() == idle(recompute=["t"]) == {}
    shared = "reshape (v), a view of the same storage, is saved."
    assert idle(save=["h"], recompute=["t"]) == {"h": shared}
    instead = "Not saved: the backward uses mean, computed from it, instead."
    assert idle(recompute=["h"]) == {"h": instead}
    assert idle(recompute=["z"]) == {"z": "Not needed: nothing in the backward depends on it."}
    assert idle(save=["t"]) == {"t": "The strategy saves it anyway."}
    given = "It is a view of x, which the backward receives anyway."
    assert idle(save=["xv"]) == idle(recompute=["xv"]) == {"xv": given}
    assert idle(recompute=["t", "v"]) == {"v": shared.replace("reshape (v)", "nn.dense (h)")}


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_every_wish_changes_the_cut_or_is_said_to_be_idle(seed):
    graph = messy(seed, 20)
    plain = cut(graph, "min_cut")
    known = plain.bytes, plain.recomputed_seconds
    for way in ("save", "recompute"):
        for node_id in plain.joint.forward:
            try:
                found = cut(graph, "min_cut", **{way: [node_id]})
            except ValueError:
                continue  # refused, with a reason of its own
            done = node_id in (found.ids if way == "save" else found.recomputed)
            assert done or found.idle
            assert bool(found.idle) == ((found.bytes, found.recomputed_seconds) == known)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"strategy": "keep_all", "save": ["h"]}, "leaves no choice"),
        ({"strategy": "inputs_only", "recompute": ["h"]}, "leaves no choice"),
        ({"strategy": "min_cut", "budget": 0.5}, "no budget"),
        ({"strategy": "budget", "budget": -1}, "0 or more"),
        ({"strategy": "peak", "budget": -1}, "0 or more"),
        ({"strategy": "budget", "budget": float("nan")}, "0 or more"),
        ({"strategy": "min_cut", "save": ["t"], "recompute": ["t"]}, "t cannot be both saved and"),
        (
            {"strategy": "budget", "budget": 16, "save": ["t"]},
            r"no cut keeps less than 64 \(32 are dropout masks and 32 are saved by hand",
        ),
    ],
)
def test_wishes_that_cannot_be_met(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        cut(small(), **arguments)


def test_reasons_name_what_would_be_computed_and_the_way_to_the_reader():
    graph = graph_of("x; w! :4x4; g; h nn.dense x w; t tanh h; y negative t; d power g t -> y | d")
    (capture,) = cut(graph, "recompute_pointwise").captures
    assert capture.id in ("h", "t")
    assert "nn.dense would be computed again" in capture.reason
    by_hand = cut(graph, "min_cut", save=["h"], recompute=["t"])
    assert (by_hand.captures[0].path, by_hand.captures[0].instead) == (("h", "t", "d"), ("h",))
    assert by_hand.unsaved[0].sources == ("h",)
    assert "recomputable from nn.dense by tanh" in by_hand.unsaved[0].reason


def test_sizes_far_apart_lose_no_more_than_the_scaling_allows():
    # 4 bytes beside terabytes: the sum is scaled into 30 bits.
    graph = graph_of(
        f"x; w! :4x4; g; a nn.dense x w :{2**38}; b add a :{2**38 - 2**20}; c nn.dense x w :1;"
        " d add c :2; y add b d; dx multiply g b d -> y | dx"
    )
    given = problem(Joint(graph), {"a", "c"}, Wish())
    answer = cheapest(given, 0.0)
    exact = 4 * (2**38 - 2**20) + 4
    assert given.save[answer.saved].sum() <= exact * (1 + 2**-27)
    assert answer.named(given) >= {"b"}
    assert bool(np.any(answer.saved))


def test_a_graph_of_10000_nodes_is_cut_with_work_that_its_size_explains():
    graph, small, found = messy(1, 5000, reach=20), messy(2, 1250, reach=20), []
    calls, few = (calls_of(lambda g=g: found.append(cut(g, "min_cut"))) for g in (graph, small))
    assert calls < 4.5 * few
    assert 0 < found[0].bytes < cut(graph, "keep_all").bytes


def test_what_is_measured_to_be_slow_is_saved_and_what_is_quick_is_not():
    graph = graph_of(
        "x; w; g; d nn.dense x w :50x4; a tanh x :4x4; b exp x :4x4; y add d a b :50x4;"
        " ga multiply g a; gb multiply ga b -> y | gb"
    )
    others = [(("d",), 1.0), (("y",), 0.01)]
    for slow, quick in (("a", "b"), ("b", "a")):
        measured = [*others, ((slow,), 0.5), ((quick,), 1e-6)]
        found = cut(Joint(graph, measured=measured))
        assert (found.ids, found.recomputed) == ((slow,), (quick,))
        assert found.recomputed_seconds == pytest.approx(1e-6)


@pytest.mark.parametrize("compared", ["m", "w"])
def test_a_maximum_is_not_saved_without_what_it_is_sought_in(compared):
    graph = graph_of(
        "x; g :64x1; a tanh x; m max a :64x1; w reshape m :64x1; y exp m :64x1;"
        f" e equal a {compared}; d multiply e g; dx multiply d x -> y | dx",
        of="64x64",
    )
    for point in frontiers.frontier(Joint(graph)):
        assert point.saved.isdisjoint({"m", "w"})
    # It is computed again: of a kernel that rounds otherwise, a saved one equals no element.
    assert {"a", "m"} <= set(cut(graph, "frontier", 0).recomputed)
    assert cut(graph, "min_cut", save=["m"]).ids == ("a", "m")
    text = "x; g :64x1; m max x :64x1; y exp m :64x1; e equal x m; dx multiply e g -> y | dx"
    assert cut(graph_of(text, of="64x64"), save=["m"]).ids == ("m",)  # an input is there as it was
    with pytest.raises(ValueError, match="save a with m: the backward compares the two"):
        cut_at(graph, ["m"])
