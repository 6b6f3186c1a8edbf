"""Captures that wait on the host: copied out when they are made, and back right before the backward
first reads them, so that the device does not hold them in between.

A copy's time grows with the bytes alone, so that what counts is for how long it spares them. As in
paging, the capture goes that is unread for longest (Belady, "A study of replacement algorithms for
a virtual-storage computer", IBM Systems Journal 1966)."""

from collections import Counter
from collections.abc import Collection, Iterable

from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.lifetimes import Lifetime, Lifetimes, peak
from relascope.passes.cuts.problem import Wish

HOST = "host:"
"""What precedes the id, or the pattern, of a capture that is to be on the host."""


def marked(ids: Collection[str], offloaded: Collection[str]) -> tuple[str, ...]:
    """Ids of captures, those on the host with `HOST`."""
    return tuple(f"{HOST}{i}" if i in offloaded else i for i in ids)


def unmarked(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """What texts name without `HOST`, and that of it which had the mark."""
    pairs = [(t.removeprefix(HOST), t.startswith(HOST)) for t in texts]
    return [text for text, _ in pairs], [text for text, away in pairs if away]


def movable(joint: Joint, captured: Collection[str]) -> frozenset[str]:
    """Those of some captures that could wait on the host: each a storage of its own that is no
    output, gradient or mask, of known size."""
    owner = joint.work.owner
    holders = Counter(owner[i] for i in captured)
    stays = joint.storages_of((*joint.outputs, *joint.gradients))
    stays.update(joint.free, joint.computed_again(captured))
    return frozenset(
        i
        for i in captured
        if joint.storages[i] == (owner[i],)
        and owner[i] not in stays
        and holders[owner[i]] == 1
        and joint.graph.by_id[i].bytes
    )


def may_wait(joint: Joint, captured: Collection[str], wish: Wish) -> frozenset[str]:
    """Those of some captures that may wait on the host under a wish."""
    able = movable(joint, captured) if wish.offload or wish.on_host else frozenset[str]()
    return able if wish.offload else able & wish.on_host


def offloaded(
    joint: Joint, captured: Collection[str], wish: Wish, limit: int | None
) -> frozenset[str]:
    """Which of some captures wait on the host: those of the wish, and, where it allows more, as few
    as keep the peak within a limit in bytes, or without one as low as it gets."""
    every = may_wait(joint, captured, wish)
    found = wish.on_host & every
    if found == every:
        return found
    limit = peak(joint, captured, every) if limit is None else limit
    while (lives := Lifetimes(joint, captured, found)).peak > limit:
        left, unread = lives.peak - limit, _unread(joint, lives, every - found)
        if not unread:  # the last bytes depend on the order, which changes with what is held
            return every
        for node_id in unread:
            if left > 0:
                found |= {node_id}
                left -= joint.work.bytes[node_id]
    return found


def _unread(joint: Joint, lives: Lifetimes, able: Collection[str]) -> list[str]:
    """Captures that are held at the peak and not read until later, the latest first."""
    held = lives.bytes()
    at, of = held.index(max(held)), {joint.work.owner[i]: i for i in able}

    def back(one: Lifetime) -> int:
        return one.next_read(lives.forward + 1) or 0

    here = (x for x in lives.at(at) if x.id in of)
    waits = [x for x in here if (x.next_read(at) or 0) == back(x) > at > x.begin]
    return [of[x.id] for x in sorted(waits, key=lambda x: (-back(x), -x.bytes))]
