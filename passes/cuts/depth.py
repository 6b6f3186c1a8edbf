"""Bytes over depth: what is held between forward and backward at each step of running them."""

from __future__ import annotations

from dataclasses import dataclass

from relascope.passes.cuts.joint import Joint


@dataclass(frozen=True)
class Held:
    """One step at which what is held changes.

    Args:
        phase: "forward" or "backward".
        step: which node of its phase this is, from 1 on, in order of execution.
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
    """What the captures take as the forward makes them and the backward is done with them.

    The forward runs in graph order. So does the backward, and what it computes again it computes
    right before it is first read. A storage is held from its first capture on until its last
    reader; one that is a result of the program, to the end. Dimensions that are not known count
    as none; inputs, parameters and masks are the caller's.
    """
    owner, free = joint.work.owner, joint.free
    sizes: dict[str, int] = {}
    for node_id in captured:
        base = owner[node_id]
        if base not in free:
            sizes[base] = max(sizes.get(base, 0), joint.work.bytes[node_id])
    nodes = (n for n in joint.graph.nodes if n.edges and n.id not in free)
    forward = [n.id for n in nodes if n.id in joint.forward]
    backward = _order(joint, recomputed)
    found: list[Held] = []
    total, started, saved = 0, set[str](), set(captured)
    for step, node_id in enumerate(forward, 1):
        base = owner[node_id]
        if node_id in saved and base in sizes and base not in started:
            started.add(base)
            total += sizes[base]
            found.append(Held("forward", step, node_id, total))
    last: dict[str, int] = {}
    kept = {owner[o] for o in joint.graph.outputs}
    for step, node_id in enumerate(backward, 1):
        for edge in joint.edges[node_id]:
            last[owner[edge]] = step
    done: dict[int, int] = {}
    for base, size in sizes.items():
        if base not in kept:
            done[last.get(base, 1)] = done.get(last.get(base, 1), 0) + size
    for step in sorted(done):
        total -= done[step]
        found.append(Held("backward", step, backward[step - 1], total))
    return Depth(len(forward), len(backward), tuple(found))


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
