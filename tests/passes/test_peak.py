"""The peak of a whole step, and cuts that stay below one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_graphs import few, joint_graphs
from joints import graph_of
from relascope.passes.cuts.cut import Joint, cut, cut_at
from relascope.passes.cuts.frontier import frontier
from relascope.passes.cuts.peak import peak

CHAIN = "x; g; a tanh x; b exp a; y sin b; db multiply g b; da multiply db a; dx multiply da g"


def test_captures_results_and_what_is_written_count_until_their_last_reader_only():
    graph = graph_of(CHAIN, "y", gradients="dx")
    for ids, tensors in (["a", "b"], 5), (["b"], 5), ([], 4):
        # y and the captures throughout; then: db, da, dx in turns, and a, b if computed again.
        assert cut_at(graph, ids).peak_bytes == 32 * tensors
    late = graph_of("x; g; a tanh x; y sin a; d exp g; dx multiply d a", "y", gradients="dx")
    assert cut_at(late, []).peak_bytes == 4 * 32  # y, d, a, dx
    assert cut_at(late, ["a"]).peak_bytes == 4 * 32


@few
@given(joint_graphs(), st.lists(st.floats(0.0, 1.2), min_size=2, max_size=4))
def test_a_lower_limit_never_gives_a_higher_peak(graph, shares):
    joint = Joint(graph)
    peaks = [peak(joint, p.saved) for p in frontier(joint)]
    lowest, before = cut(joint, "peak").peak_bytes, None
    assert lowest == min(peaks)
    for share in sorted(shares, reverse=True):
        limit = int(share * max(peaks))
        if limit < lowest:
            with pytest.raises(ValueError, match=f"the lowest is {lowest:,}"):
                cut(joint, "peak", limit)
            continue
        found = cut(joint, "peak", limit)
        assert found.peak_bytes <= min(limit, before or limit)
        before = found.peak_bytes


def test_a_limit_is_no_negative_number():
    with pytest.raises(ValueError, match="below nothing"):
        cut(graph_of(CHAIN, "y", gradients="dx"), "peak", -1)
