"""What a show goes through: the cuts of the frontier, with each capture and why."""

from joints import chain, messy
from relascope.passes.cuts.cut import cut
from relascope.passes.cuts.frontier import frontier
from relascope.passes.cuts.joint import Joint
from relascope.viz.drawing.show import show_document


def words(one):
    return f"{one.peak_bytes} estimated"


def made(graph, **wish):
    joint = Joint(graph)
    chosen = cut(joint, **wish)
    return chosen, show_document(frontier(joint, chosen.wish), chosen, words)


def test_each_cut_of_the_frontier_is_told_with_its_captures():
    chosen, document = made(messy(3, 12))
    bytes_ = [c["bytes"] for c in document["cuts"]]
    assert bytes_ == sorted(bytes_) and len(bytes_) > 1
    assert document["cuts"][document["chosen"]]["bytes"] == chosen.bytes
    for told in document["cuts"]:
        if told["title"]:
            continue
        saved = [row["id"] for row in told["saved"]]
        own = cut(chosen.joint, "frontier", told["bytes"])
        assert saved == [*own.ids, *(m.id for m in own.masks)]
        assert set(told["again"]) == set(own.recomputed)
        assert (told["share"], told["net"]) == (own.share, own.net_share)
        assert told["peak"] >= told["bytes"] and told["step"] == words(own)
        for capture, row in zip((*own.captures, *own.masks), told["saved"], strict=True):
            assert (row["reason"], row["instead"]) == (capture.reason, capture.instead)
            assert row["begin"] < (row["end"] or told["forward"] + told["backward"] + 1)


def test_a_wish_is_kept_to_in_every_cut():
    _, document = made(chain(), save=["a"])
    for told in document["cuts"]:
        sorts = {row["id"]: row["sort"] for row in told["saved"]}
        assert sorts.pop("a") == "by hand" and set(sorts.values()) <= {"chosen"}


def test_a_cut_beside_the_frontier_stands_among_its_cuts():
    joint = Joint(chain())
    document = show_document(frontier(joint), cut(joint, save=["a", "b"]), words)
    at, cuts = document["chosen"], document["cuts"]
    assert cuts[at]["title"] == "Minimum cut"
    assert [c["bytes"] for c in cuts] == sorted(c["bytes"] for c in cuts)
    assert sum(bool(c["title"]) for c in cuts) == 1
