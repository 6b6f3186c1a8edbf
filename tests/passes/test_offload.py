"""Captures that wait on the host, and values computed per use, where that lowers the peak."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, joint_graphs
from graphs import graph_of
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut, cut_at
from relascope.passes.cuts.lifetimes import Lifetimes, peak
from relascope.passes.cuts.min_cut import SHARE
from relascope.passes.cuts.offload import movable
from relascope.viz.rows import sections
from relascope.viz.rows.tables import cut_document, cut_sections, saved_rows

EACH = 32  # bytes of a value
CHAIN = (
    "x; w; g; a nn.dense x w; b nn.dense a w; c nn.dense b w; y nn.dense c w;"
    "dc nn.dense g c; db nn.dense dc b; da nn.dense db a; dx nn.dense da x"
)


def text(document):
    return sections.text(cut_sections(document))


def chain():
    return graph_of(CHAIN, "y", gradients="dx", ir="relax")


def test_a_capture_is_held_on_the_device_but_between_its_two_copies():
    joint = Joint(chain())
    before = {x.id: x for x in Lifetimes(joint, ["a", "b", "c"]).all}
    assert (before["a"].begin, before["a"].end) == (1, 7)
    lives = Lifetimes(joint, ["a", "b", "c"], ["a"])
    assert lives.order == ["a", "b", "c", "y", "dc", "db", "a", "da", "dx"]
    out, back = (x for x in lives.all if x.id == "a")
    assert (out.begin, out.end, back.begin, back.end) == (1, 2, 7, 8)
    assert out.role == back.role == "captured"
    assert [x.id for x in lives.at(4)] != [x.id for x in Lifetimes(joint, ["a", "b", "c"]).at(4)]
    assert peak(joint, ["a", "b", "c"]) == 5 * EACH  # y, dc, and all three
    assert peak(joint, ["a", "b", "c"], ["a"]) == 4 * EACH


def test_totals_tell_the_device_from_the_host_and_rows_say_where_each_is():
    found = cut(chain(), "keep_all", save=(), offload=True)
    assert set(found.offloaded) < {"a", "b", "c"} and found.offloaded
    assert found.host_bytes == EACH * len(found.offloaded) == 3 * EACH - found.bytes
    assert found.peak_bytes == peak(found.joint, found.ids, movable(found.joint, found.ids))
    document = cut_document(found)
    away = [r for r in saved_rows(document) if r["what"] == "on the host"]
    assert [r["id"] for r in away] == [*found.offloaded]
    assert sum(r["copy_seconds"] for r in away) == pytest.approx(document["copy_seconds"])
    assert document["net_share"] == pytest.approx(document["copy_seconds"] / found.forward_seconds)
    said = text({**document, "rivals": None})
    assert "on the host" in said and "to copy there and back" in said and "copies take" in said
    plain = cut_document(cut(chain(), "keep_all"))
    assert "copies" not in text(plain) and "host" not in text(plain)
    assert document.keys() - plain.keys() == {"host_bytes", "copy_seconds"}
    assert not any("on_host" in r for r in plain["captures"])


def test_a_copy_takes_as_long_as_it_was_measured():
    joint = Joint(chain(), copied=1e3)
    assert joint.copy_seconds(["a", "b"]) == 2 * 2 * EACH / 1e3
    graph = graph_of(CHEAP, "y", gradients="dx", ir="relax")
    low = cut(graph, "peak")
    assert low.recomputed and low.peak_bytes < peak(joint := low.joint, joint.crossings)
    wide = Joint(graph_of(f"{CHEAP} :64x64", "y", gradients="dx", ir="relax"))
    assert peak(wide, []) == cut(wide, "peak").peak_bytes  # of equal peaks the least time
    assert not cut(wide, "peak").recomputed and not cut(wide, "peak", offload=True).recomputed
    for rate in 1e-3, 1e30:
        found = cut(Joint(graph, copied=rate), "peak", low.peak_bytes, offload=True)
        assert found.peak_bytes <= low.peak_bytes
        assert bool(found.offloaded) == (not found.recomputed) == (rate > 1)


def test_what_is_put_on_the_host_by_hand_is_there_and_what_cannot_be_is_refused():
    found = cut(chain(), save=["host:b"])
    assert (found.offloaded, found.wish.save) == (("b",), {"b"})
    assert found.marked == tuple("host:b" if i == "b" else i for i in found.ids)
    again = cut_at(chain(), found.marked)
    assert (again.ids, again.offloaded, again.bytes) == (found.ids, ("b",), found.bytes)
    with pytest.raises(ValueError, match="cannot wait on the host"):
        cut(graph_of(f"{CHAIN.replace('g c', 'y c')} -> y | dx", ir="relax"), save=["host:y"])
    with pytest.raises(ValueError, match="no node z"):
        cut(chain(), save=["host:z"])

    assert not movable(Joint(graph_of(VIEWS, "y", gradients="dx")), ["a", "r"])


CHEAP = (
    "x; w; g; a exp x; b nn.dense a w; c exp b; d nn.dense c w; e exp d; y nn.dense e w;"
    "de nn.dense g e; dd nn.dense de d; dc nn.dense dd c; db nn.dense dc b; da nn.dense db a;"
    "dx nn.dense da x"
)
VIEWS = "x; g; a exp x; r reshape a; y tanh r; d multiply g a; dx multiply d r"


OFFLOAD, PER_USE = {"offload": True}, {"per_use": True}
HOW = ("relax", OFFLOAD), ("relax", PER_USE), ("relay", PER_USE), ("relax", OFFLOAD | PER_USE)


@few
@given(joint_graphs(), st.sampled_from([*STRATEGIES]), st.sampled_from(HOW), st.floats(0.3, 1.0))
def test_nothing_raises_the_peak_and_all_stays_within_the_limit(graph, strategy, how, share):
    ir, switches = how
    joint = Joint(replace(graph, ir=ir))
    plain, low = cut(joint, strategy), cut(joint, strategy, **switches)
    if strategy == "min_cut":  # it computes values per use unasked, within its share
        unasked, plain = plain, cut_at(joint.graph, plain.ids)
        assert unasked.peak_bytes <= plain.peak_bytes
        assert unasked.net_share <= max(SHARE, plain.net_share)
    assert plain.marked == plain.ids and low.peak_bytes <= plain.peak_bytes
    assert all(low.lifetimes.times[i] for i in low.recomputed)
    if strategy == "peak":
        limit = int(share * peak(joint, joint.crossings))
        if limit >= low.peak_bytes:
            found = cut(joint, "peak", limit, **switches)
            assert found.peak_bytes <= limit
            if limit >= plain.peak_bytes:
                assert found.net_share <= cut(joint, "peak", limit).net_share + 1e-9
        else:
            with pytest.raises(ValueError, match="the lowest is"):
                cut(joint, "peak", limit, **switches)


def test_relay_is_refused_by_name():
    joint = Joint(replace(chain(), ir="relay"))
    for wish in {"offload": True}, {"save": ["host:b"]}:
        with pytest.raises(ValueError, match="Relay's executor holds them"):
            cut(joint, **wish)


def skip():
    """A forward whose value `s` the backward reads at its begin and at its end."""
    forward = "x; w! :64x64; v! :4x64; g; s exp x; a nn.dense s w; b tanh a; y nn.dense b v :4x4;"
    back = "q nn.dense s v :4x4; m multiply q g; n nn.dense m b :64x64; k nn.dense n a;"
    return Joint(graph_of(f"{forward} {back} dx multiply k s -> y | dx", of="64x64", ir="relax"))


def test_a_value_read_early_and_late_is_computed_for_both(monkeypatch):
    joint = skip()
    once, often = (cut(joint, "inputs_only", per_use=p) for p in (False, True))
    assert often.peak_bytes < once.peak_bytes and often.ids == once.ids
    assert not once.rewiring and often.lifetimes.times["s"] > 1
    more = sum(joint.work.again[i] * (n - 1) for i, n in often.lifetimes.times.items())
    assert often.recomputed_seconds == pytest.approx(once.recomputed_seconds + more)
    assert often.net_share > once.net_share and often.recomputed_flops > once.recomputed_flops
    same = cut_at(joint.graph, often.marked)
    pairs = [(one.ids, one.rewiring, one.peak_bytes) for one in (same, often)]
    assert pairs[0] == pairs[1]
    document = cut_document(often)
    assert document["recomputed_times"]["s"] > 1
    assert all(t["id"] in joint.graph.by_id for t in document["held"]["at_peak"]["tensors"])
    assert "recomputed_times" not in cut_document(once)
    for share, moved in ((often.net_share, often.rewiring), (once.net_share or 1e-9, {})):
        rule = replace(STRATEGIES["inputs_only"], share=share)
        monkeypatch.setitem(STRATEGIES, rule.name, rule)
        assert cut(joint, rule.name).rewiring == moved
    title = "Read by the backward and not saved, and why"
    for one in (once, often):
        (spared,) = (s for s in cut_sections(cut_document(one)) if s.get("title") == title)
        assert any("times" in row for row in spared["rows"]) == (one is often)


def test_a_rewiring_that_is_no_graph_is_refused():
    wrong = {"z~2(x)": "no node z", "s~2(dx)": "before it", "s~2(x,w)": "longer than"}
    for text, why in wrong.items():
        with pytest.raises(ValueError, match=why):
            cut_at(skip().graph, [text])
