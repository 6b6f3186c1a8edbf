"""Bytes over depth: what forward and backward hold for the backward at each step of running."""

from __future__ import annotations

from dataclasses import dataclass

from relascope.core.graph import Kind
from relascope.passes.cost import is_view
from relascope.passes.cuts.joint import Joint


@dataclass(frozen=True)
class Held:
    """One step at which what is held changes.

    Args:
        phase: "forward" or "backward".
        step: which node of its phase this is, from 1 on, in order of execution; 0 of masks, which
            are there before.
        id: of the node, after which so much is held.
        bytes: held after it, each storage once.
    """

    phase: str
    step: int
    id: str
    bytes: int


@dataclass(frozen=True)
class Depth:
    """What is held over one run of forward and backward.

    Args:
        forward, backward: how many nodes each of them executes.
        changes: in order of execution.
    """

    forward: int
    backward: int
    changes: tuple[Held, ...]


def depth(joint: Joint, captured: tuple[str, ...], recomputed: tuple[str, ...]) -> Depth:
    """What is kept for the backward (`Joint.kept`), and what the backward computes again.

    The forward runs in graph order. So does the backward, and what it computes again it computes
    right before it is first read. Masks are there before the first node, captures from when they
    are made, and what is computed again likewise, as if no kernel had two nodes. Each storage is
    held until its last reader in the backward; one that is a result of the program, to the end.
    Dimensions that are not known count as none.
    """
    owner, kept, by_id = joint.work.owner, joint.kept(captured), joint.graph.by_id
    nodes = (n for n in joint.graph.nodes if n.edges and n.id not in joint.free)
    forward = [n.id for n in nodes if n.id in joint.forward]
    backward, again, sizes = _order(joint, recomputed), set(recomputed), dict(kept)
    # Where the backward finds each value: ids of storages, those of its own with a mark.
    home: dict[str, tuple[str, ...]] = {}
    home |= {i: (owner[i],) if owner[i] in kept else () for i in (*captured, *joint.masks)}
    begin = dict.fromkeys((m for m in joint.masks if m in kept), 0)
    for step, node_id in enumerate(forward, 1):
        for base in home.get(node_id, ()):
            begin.setdefault(base, step)
    end = dict.fromkeys(kept, len(forward) + 1)
    for step, node_id in enumerate(backward, len(forward) + 1):
        node = by_id[node_id]
        found = [b for e in joint.edges[node_id] for b in home.get(e, ())]
        if node_id in again:
            if not is_view(node) and node.kind not in (Kind.TUPLE, Kind.ITEM):
                found.append(f"{node_id} again")
                sizes[found[-1]], begin[found[-1]] = joint.work.bytes[node_id], step
                home[node_id] = (found[-1],)
            else:
                home[node_id] = tuple(found)
        end.update(dict.fromkeys(found, step))
    for node_id in joint.graph.outputs:
        for base in (owner[node_id], *home.get(node_id, ())):
            end.pop(base, None)
    change = [0] * (len(forward) + len(backward) + 1)
    for base, size in sizes.items():
        change[begin[base]] += size
        if base in end:
            change[end[base]] -= size
    order = [*joint.masks[-1:], *forward, *backward]
    changes, total = [], 0
    for step, size in enumerate(change):
        total += size
        if size:
            late = step > len(forward)
            where = ("backward", step - len(forward)) if late else ("forward", step)
            changes.append(Held(*where, order[step - (not joint.masks)], total))
    return Depth(len(forward), len(backward), tuple(changes))


def _order(joint: Joint, recomputed: tuple[str, ...]) -> list[str]:
    """The backward's nodes as it executes them, what it computes again among them."""
    again, free = set(recomputed), joint.free
    order: list[str] = []
    seen: set[str] = set()
    for node in joint.graph.nodes:
        if node.id in joint.forward or not node.edges or node.id in free:
            continue
        todo = [(node.id, False)]
        while todo:  # depth first, sources before what reads them
            current, ready = todo.pop()
            if ready:
                order.append(current)
            elif current not in seen:
                seen.add(current)
                todo.append((current, True))
                todo += [(e, False) for e in reversed(joint.edges[current]) if e in again]
    return order
