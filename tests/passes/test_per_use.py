"""Values that the backward computes more than once, where that lowers the peak."""

from dataclasses import replace

import pytest

from joints import graph_of
from relascope.passes.cuts.cut import Joint, cut, cut_at
from relascope.viz.rows import tables

SKIP = (
    "x; w! :64x64; v! :4x64; g; s exp x; a nn.dense s w; b tanh a; y nn.dense b v :4x4;"
    "q nn.dense s v :4x4; m multiply q g; n nn.dense m b :64x64; k nn.dense n a; dx multiply k s"
)


def skip():
    """A forward whose value `s` the backward reads at its begin and at its end."""
    graph = graph_of(f"{SKIP} -> y | dx", of="64x64")
    return Joint(replace(graph, ir="relax"))


def spared(one):
    """The table of what a cut does not save."""
    title = "Read by the backward and not saved, and why"
    sections = tables.cut_sections(tables.cut_document(one))
    return next(s for s in sections if s.get("title") == title)


def test_a_value_read_early_and_late_is_computed_for_both():
    joint = skip()
    once, often = (cut(joint, "inputs_only", per_use=p) for p in (False, True))
    assert often.peak_bytes < once.peak_bytes and often.ids == once.ids
    assert not once.rewiring and often.lifetimes.times["s"] > 1
    more = sum(joint.work.again[i] * (n - 1) for i, n in often.lifetimes.times.items())
    assert often.recomputed_seconds == pytest.approx(once.recomputed_seconds + more)
    assert often.net_share > once.net_share and often.recomputed_flops > once.recomputed_flops
    same = cut_at(joint.graph, often.marked)
    assert (same.ids, same.rewiring, same.peak_bytes) == (
        often.ids,
        often.rewiring,
        often.peak_bytes,
    )
    document = tables.cut_document(often)
    assert document["recomputed_times"]["s"] > 1
    assert all(t["id"] in joint.graph.by_id for t in document["held"]["at_peak"]["tensors"])
    assert "recomputed_times" not in tables.cut_document(once)
    columns = [{k for r in s["rows"] for k in r} for s in map(spared, (once, often))]
    assert [("times" in c) for c in columns] == [False, True]


def test_a_rewiring_that_is_no_graph_is_refused():
    wrong = {"z~2(x)": "no node z", "s~2(dx)": "before it", "s~2(x,w)": "longer than"}
    for text, why in wrong.items():
        with pytest.raises(ValueError, match=why):
            cut_at(skip().graph, [text])
