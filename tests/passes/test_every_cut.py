"""What holds of every cut of every joint graph; the peak of a step, and cuts below one."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, joint_graphs
from joints import choices, graph_of, messy
from relascope.core.graph import Role
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut, cut_at, roles
from relascope.passes.cuts.frontier import frontier
from relascope.passes.cuts.layers import few_layers
from relascope.passes.cuts.lifetimes import Lifetimes, peak
from relascope.passes.cuts.peak import LARGE, peak_bound, peak_curve
from relascope.passes.cuts.per_use import fitted
from relascope.passes.cuts.problem import Wish
from relascope.viz.rows.tables import cut_document, frontier_document


def backward_can_run(joint, found):
    """Whether captures, what is given, and what is computed again are enough for the backward."""
    there = {*found.ids, *joint.free}
    for node in joint.graph.nodes:
        again = node.id in found.recomputed
        if (again or node.id not in joint.forward) and all(e in there for e in node.edges):
            there.add(node.id)
    needed = {n.id for n in joint.graph.nodes if n.id not in joint.forward}
    return needed | set(joint.gradients) <= there


@pytest.mark.parametrize("strategy", STRATEGIES)
@few
@given(joint_graphs())
def test_the_backward_has_all_it_needs(strategy, graph):
    found = cut(graph, strategy)
    joint = found.joint
    assert all(joint.may_be_captured(i) for i in found.ids)
    assert not set(found.ids) & set(found.recomputed)
    assert backward_can_run(joint, found)
    assert found.bytes <= cut(graph, "keep_all").bytes
    captured = {i for i, role in roles(graph, found.ids).items() if role is Role.CAPTURED}
    assert captured == set(found.ids)


@few
@given(joint_graphs(), st.floats(0.0, 1.0))
def test_a_budget_is_never_exceeded_and_no_worse_than_the_frontier(graph, share):
    joint = Joint(graph)
    least = frontier(joint)[-1].bytes
    allowed = max(int(share * cut(joint, "keep_all").bytes), least)
    limit, line = cut(joint, "budget", allowed), cut(joint, "frontier", allowed)
    assert max(limit.bytes, line.bytes) <= limit.budget == allowed
    assert joint.extra_seconds(limit.ids) <= joint.extra_seconds(line.ids) * (1 + 1e-9)
    assert backward_can_run(joint, limit)
    if least:
        with pytest.raises(ValueError, match=f"no cut keeps less than {least:,}"):
            cut(joint, "budget", least - 1)


def kept(document):
    return sum(row["bytes"] for row in (*document["captures"], *document["masks"]))


@few
@given(joint_graphs(), st.sampled_from(("relay", "relax")))
def test_every_total_is_the_sum_of_the_sizes_beside_it(graph, ir):
    joint = Joint(replace(graph, ir=ir))
    for strategy in STRATEGIES:
        found = cut(joint, strategy)
        document = cut_document(found)
        assert kept(document) == document["bytes"] == joint.bytes_of(found.ids)
        assert all(c.readers for c in (*found.captures, *found.masks))
        assert sum(m["bytes"] for m in document["masks"]) == document["mask_bytes"]
        own = [c for c in (*found.captures, *found.masks) if not c.is_output]
        assert sum(c.bytes for c in own) == document["extra_bytes"]
        assert {m["id"] for m in document["masks"]} == {
            m
            for m in joint.masks
            for r in graph.readers[m]
            if r in found.recomputed or r not in joint.forward
        }
        lived, held = found.lifetimes, document["held"]
        most = max((s["bytes"] for s in held["changes"]), default=0)
        assert lived.peak == max(lived.bytes()) == most == held["at_peak"]["bytes"]
        end = lived.bytes("captured")[lived.forward]
        assert end == found.bytes + sum(joint.work.bytes[m] - 5056 for m in found.drawn_again)
    table = frontier_document(joint)
    for row in table["strategies"]:
        assert row["bytes"] == kept(cut_document(cut(joint, row["strategy"])))
    for row, point in zip(table["frontier"], reversed(frontier(joint)), strict=True):
        assert row["bytes"] == kept(cut_document(cut_at(graph, point.saved)))


@few
@given(joint_graphs(6))
def test_no_choice_at_all_lies_below_a_frontier_with_masks(graph):
    points = frontier(Joint(graph))
    assert points.proven
    for it, chosen, _ in choices(graph):
        held, taken = it.bytes_of(chosen), it.extra_seconds(chosen)
        assert held >= points[-1].bytes and taken >= points[0].seconds * (1 - 1e-5)
        for left, right in itertools.pairwise(points):
            if right.bytes <= held <= left.bytes:
                share = (left.bytes - held) / (left.bytes - right.bytes)
                line = left.seconds + share * (right.seconds - left.seconds)
                assert taken >= line * (1 - 1e-5) - 1e-15


@few
@given(joint_graphs(6), st.data())
def test_the_cheapest_cut_meets_wishes_and_none_that_meets_them_is_cheaper(graph, data):
    joint = Joint(graph)
    able = [i for i in joint.behind(joint.needed) if joint.may_be_captured(i)]
    if not able:
        return
    out = frozenset(data.draw(st.sets(st.sampled_from(able), max_size=3)))
    into = frozenset(data.draw(st.sets(st.sampled_from(able), max_size=2))) - out
    saved = [(it, chosen) for it, chosen, _ in choices(graph)]
    kept = [it.bytes_of(some) for it, some in saved if into <= some and not out & some]
    points = frontier(joint, Wish(save=into, recompute=out))
    assert all(into <= p.saved and not out & p.saved for p in points)
    assert points[-1].bytes == min(kept)


CHAIN = "x; g; a nn.softmax x; b nn.softmax a; y sin b; db nn.dense g b; da nn.dense db a;"
CHAIN += "dx nn.dense da g"


def test_captures_results_and_what_is_written_count_until_their_last_reader_only():
    graph = graph_of(CHAIN, "y", gradients="dx")
    for ids, tensors in (["a", "b"], 5), (["b"], 5), ([], 5):
        # At most y, dx or the captures; and at most db, da, and a or b if computed again.
        assert cut_at(graph, ids).peak_bytes == 32 * tensors
    late = graph_of("x; g; a nn.softmax x; y sin a; d nn.softmax g; dx multiply d a -> y | dx")
    assert cut_at(late, []).peak_bytes == 4 * 32  # y, d, a, dx
    assert cut_at(late, ["a"]).peak_bytes == 4 * 32


@few
@given(
    joint_graphs(),
    st.lists(st.floats(0.0, 1.2), min_size=2, max_size=4),
    st.sampled_from([("relay", ""), ("relax", ""), ("relax", "offload"), ("relax", "per_use")]),
)
def test_a_lower_limit_never_gives_a_higher_peak(graph, shares, asked):
    joint, how = Joint(replace(graph, ir=asked[0])), dict.fromkeys(filter(None, asked[1:]), True)
    peaks = [peak(joint, p.saved) for p in frontier(joint)]
    lowest, before = cut(joint, "peak", **how).peak_bytes, None
    of_curve = [peak(joint, p.saved) for p in peak_curve(joint)]
    assert of_curve == sorted(of_curve, reverse=True) and lowest <= of_curve[-1]
    assert lowest <= min(peaks)
    for share in sorted(shares, reverse=True):
        limit = int(share * max(peaks))
        if limit < lowest:
            with pytest.raises(ValueError, match=f"the lowest is {lowest:,}"):
                cut(joint, "peak", limit, **how)
            continue
        found = cut(joint, "peak", limit, **how)
        assert found.peak_bytes <= min(limit, before or limit)
        before = found.peak_bytes
        if not how:
            assert before == next(b for b in of_curve if b <= limit)


@few
@given(joint_graphs(6), st.sampled_from(["relay", "relax"]), st.booleans())
def test_no_choice_has_a_lower_peak_than_the_bound(graph, ir, per_use):
    joint = Joint(replace(graph, ir=ir))
    bound = peak_bound(joint, cut(joint, "peak").ids, per_use)
    assert bound
    steps = [Lifetimes(joint, chosen) for _, chosen, _ in choices(graph)]
    assert bound <= min((fitted(s) if per_use else s).peak for s in steps)


@pytest.mark.parametrize("ir", ["relay", "relax"])
def test_the_bound_holds_for_sizes_in_a_mess_and_is_reached_where_no_order_is_free(ir):
    for seed in range(6):
        graph = replace(messy(seed, 7), ir=ir)
        joint = Joint(graph)
        least = min(peak(joint, chosen) for _, chosen, _ in choices(graph))
        assert 0 < peak_bound(joint, (), False) <= least
    joint = Joint(graph_of(CHAIN, "y", gradients="dx"))
    assert peak_bound(joint, cut(joint, "peak").ids) == peak(joint, ["a"])


def stack(layers):
    """As many equal layers, which add something wide to what they are given, and then something
    narrow. The product that is added is in memory anyway, so a minimum cut saves it rather than
    the sum."""
    text = "; ".join(
        f"n{i} tanh h{i}; m{i} nn.dense n{i} w :64x64; s{i} tanh m{i} :64x64; p{i} nn.dense s{i} v;"
        f"j{i} add h{i} p{i}; q{i} tanh j{i}; o{i} nn.dense q{i} t; h{i + 1} add j{i} o{i}"
        for i in range(layers)
    )
    backward = "; ".join(
        f"z{i} nn.dense g{i + 1} t; y{i} multiply z{i} j{i}; r{i} add y{i} g{i + 1};"
        f"a{i} nn.dense r{i} u :64x64; b{i} multiply a{i} s{i} :64x64;"
        f"d{i} nn.dense b{i} n{i} :4x4; k{i} nn.dense b{i} v; l{i} multiply k{i} h{i};"
        f"g{i} add r{i} l{i}"
        for i in reversed(range(layers))
    )
    head = f"x; w! :64x4; v! :4x64; u! :64x4; t! :4x4; g{layers}; h0 tanh x"
    ends = " ".join(f"d{i}" for i in range(layers))
    return graph_of(f"{head}; {text}; {backward}", f"h{layers}", of="64x4", gradients=f"g0 {ends}")


@pytest.mark.parametrize(("layers", "share"), [(8, 0.85), (48, 0.65)])
def test_layers_are_computed_again_one_by_one(layers, share):
    joint = Joint(stack(layers))
    found, before = cut(joint, "peak"), min(peak(joint, p.saved) for p in frontier(joint))
    assert found.ids[: layers - 1] == tuple(f"j{i}" for i in range(layers - 1))
    assert found.peak_bytes < share * before
    assert len(joint.graph) < LARGE or found.least_peak_bytes is None


@pytest.mark.parametrize(("layers", "how"), [(16, {}), (17, {"offload": True}), (18, {})])
def test_equal_layers_are_cut_once_with_the_choices_of_all(layers, how, monkeypatch):
    joint = Joint(replace(stack(layers), ir="relax"))
    if layers == 18:  # measured, with noise
        seconds = enumerate((i, joint.work.seconds[i]) for i in joint.own_forward)
        joint = replace(joint, measured=[((i,), s * (1 + k % 7 / 9)) for k, (i, s) in seconds])
    monkeypatch.setattr("relascope.passes.cuts.layers.LARGE", 0)
    few, more, times = few_layers(joint, Wish(**how))
    assert len(few.joint.graph) < len(more.joint.graph) < 0.7 * len(joint.graph) and times > 3
    assert few_layers(joint, Wish(save=frozenset({"s8"}))) is None  # they are not equal
    once = [cut(joint, "peak", share, **how) for share in (None, 0.9, 0.5)]
    moved = cut(joint, "peak", per_use=True)
    assert moved.peak_bytes < cut(joint, "peak").peak_bytes and moved.rewiring
    monkeypatch.undo()
    for found in once:
        each = cut(joint, "peak", found.budget, **how)
        assert (each.ids, each.offloaded) == (found.ids, found.offloaded)


def test_fewer_bytes_never_make_a_shorter_step_but_may_make_a_higher_peak():
    joint = Joint(stack(4))
    most = cut(joint, "keep_all").bytes
    cuts = [cut(joint, "budget", most * k // 8) for k in range(9)]
    taken = [joint.extra_seconds(found.ids) for found in cuts]
    assert taken == sorted(taken, reverse=True) and len({*taken}) > 5
    peaks = [found.peak_bytes for found in cuts]
    assert peaks != sorted(peaks)


def test_in_relax_an_operator_on_elements_writes_over_what_it_reads_last():
    """The gradient of a softmax: of p, d, m, z and dx, two are there at a time."""
    text = "x; w! :8x8; g; p nn.softmax x; y nn.dense p w; d nn.dense g w; m multiply d p;"
    text += "s sum m :4x1; z subtract d s; dx multiply z p; dy nn.dense dx w"
    graph = graph_of(f"{text} -> y | dy", of="4x8")
    size = graph.by_id["p"].bytes
    assert cut_at(graph, ["p"]).peak_bytes == 4 * size + 16  # y, p or dy, d, dx and s
    assert cut_at(replace(graph, ir="relax"), ["p"]).peak_bytes == 3 * size + 16


OVER = {
    "m multiply d p; s sum m :4x1; dx nn.dense s w :4x1": 3 * 128 + 16,  # y, p, d and s
    # y, p, d or c, s or dx
    "s nn.dense d w; a subtract d s; b exp a; c tanh b; dx nn.dense c w": 4 * 128,
}


@pytest.mark.parametrize("text", OVER)
def test_a_sum_writes_over_nothing_of_its_operand_and_a_chain_over_what_its_first_reads(text):
    before = "x; g; w! :8x8; p exp x; y nn.dense p w; d nn.dense g w"
    graph = graph_of(f"{before}; {text} -> y | dx", of="4x8", ir="relax")
    assert cut_at(graph, ["p"]).peak_bytes == OVER[text]
