"""Values that the backward computes per use: again for later readers, not held from the first on.

What is computed again is read by what is computed from it, soon after, and by its own gradient,
often much later. Where a step holds most, what waits there for later readers is computed once more
right before them instead, from what is held anyway or is computed once more with it."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from relascope.core.graph import Kind, reached
from relascope.passes.cost import is_random, is_view
from relascope.passes.cuts.joint import MARK, Joint, Rewiring, original
from relascope.passes.cuts.layers import few_layers
from relascope.passes.cuts.lifetimes import AGAIN, Lifetime, Lifetimes
from relascope.passes.cuts.problem import Wish

TRIES = 128  # how many steps may be simulated for one cut
UNASKED = 10_000  # nodes of all steps that are simulated unasked: about half a second


def fitted(lives: Lifetimes, limit: int | None = None, share: float = math.inf) -> Lifetimes:
    """A step in which values may be computed per use: as few as keep the peak within a limit in
    bytes, or those that lower it furthest, while `Joint.net_share` stays within a share. What equal
    layers compute so is chosen once for all."""
    if limit is not None and lives.peak <= limit:
        return lives
    asked = Wish(save=frozenset(lives.captured), on_host=frozenset(lives.offloaded))
    if (layers := few_layers(lives.joint, asked)) is None:
        return _fitted(lives, limit, share)
    few = layers[0]
    kept = few.wish(asked)
    step = Lifetimes(few.joint, kept.save, kept.on_host)
    below = None if limit is None else limit - (lives.peak - step.peak)
    for low in dict.fromkeys((below, None)):  # as few as will do, or all
        found = lives.rewired_by(few.rewired(_fitted(step, low, share).rewiring, lives.joint))
        if found.peak <= (lives.peak if limit is None else limit) and _share(found) <= share:
            return found
    return lives


def _share(lives: Lifetimes) -> float:
    return lives.joint.net_share(lives.captured, lives.offloaded, lives.times)


def _fitted(lives: Lifetimes, limit: int | None, share: float) -> Lifetimes:
    """The same, value by value: of what waits at the first step that holds most, the one that takes
    the least time for its bytes goes first, if the peak is lower then, or reached at fewer steps.
    In Relay, only several values may lower a kernel's peak, so each node is a kernel meanwhile."""
    in_relay = lives.joint.graph.ir == "relay"
    best, now = lives, lives.rewired_by(lives.rewiring, False) if in_relay else lives
    most = TRIES if share == math.inf else min(TRIES, UNASKED // len(lives.joint.graph.nodes))
    held, refused, tries = now.pooled, set[tuple[str, str]](), 0
    while tries < most and (limit is None or best.peak > limit):
        at = held.index(max(held))
        found = [(one, later, _moved(now, one, at, later)) for one, later in _waiting(now, at)]
        for one, later, more in sorted(found, key=lambda f: _price(lives.joint, f[2]) / f[0].bytes):
            if not more or (one.id, later[0]) in refused:
                continue
            then = now.rewired_by({**now.rewiring, **more})
            lower, tries = then.pooled, tries + 1
            fewer = (max(lower), lower.count(max(lower))) < (max(held), held.count(max(held)))
            if fewer and _share(then) <= share:
                now, held = then, lower
                break
            refused.add((one.id, later[0]))
        else:
            break
        step = lives.rewired_by(now.rewiring) if in_relay else now
        best = step if step.peak < best.peak else best
    return best


def _price(joint: Joint, rewiring: Rewiring) -> float:
    """Seconds of what is computed more than once."""
    return sum(joint.work.again[original(i)] for i in rewiring if MARK in i)


def _waiting(lives: Lifetimes, at: int) -> Iterable[tuple[Lifetime, list[str]]]:
    """What was computed again before a step and is not read there, with its later readers."""
    for one in lives.at(at):
        later = [lives.order[step - 1] for step in one.reads if step > at]
        idle = one.role == AGAIN and one.end is not None and at not in (one.begin, *one.reads)
        if idle and later:
            yield one, later


def _moved(lives: Lifetimes, one: Lifetime, at: int, later: Collection[str]) -> Rewiring:
    """What is read instead where the `later` readers of a value have it computed for them; nothing
    where that cannot be."""
    joint, edges, storages = lives.joint, lives.rewired.graph.edges, lives.rewired.storages
    done = set(lives.order[lives.forward : at])
    held = {x.id for x in lives.at(at)} - {one.id}

    def goes(node_id: str) -> bool:
        here = node_id in done and node_id not in lives.captured
        return here and not held.issuperset(storages[node_id])

    read = [e for reader in later for e in edges[reader] if one.id in storages[e] and goes(e)]
    chain = reached(read, lambda i: filter(goes, edges[i]))
    stays = {*joint.sought, *joint.sought.values()}
    for node in (joint.graph.by_id[original(i)] for i in chain):
        moves = is_view(node) or node.kind in (Kind.TUPLE, Kind.ITEM) or node.id in joint.forward
        if not moves or is_random(node) or node.id in stays:
            return {}
    known = Counter(original(i) for i in lives.rewiring if MARK in i)
    names = {i: f"{original(i)}{MARK}{known[original(i)] + 2}" for i in chain}
    return {names.get(i, i): tuple(names.get(e, e) for e in edges[i]) for i in (*chain, *later)}


def rewiring_text(rewiring: Rewiring) -> tuple[str, ...]:
    """A rewiring as a request has it, beside ids of captures: "n~2(a,b)" reads a and b."""
    return tuple(f"{node_id}({','.join(edges)})" for node_id, edges in rewiring.items())


def read_rewiring(texts: Iterable[str]) -> tuple[frozenset[str], Rewiring]:
    """Ids of captures, and the rewiring that is written beside them."""
    found = [text.removesuffix(")").partition("(") for text in texts]
    rewiring: Mapping[str, tuple[str, ...]] = {i: tuple(e.split(",")) for i, by, e in found if by}
    return frozenset(i for i, by, _ in found if not by), rewiring
