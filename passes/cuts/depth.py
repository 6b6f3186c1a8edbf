"""Bytes over depth: what forward and backward hold for the backward at each step of running."""

from dataclasses import dataclass

from relascope.core.graph import Kind
from relascope.passes.cost import is_view
from relascope.passes.cuts.joint import Joint


@dataclass(frozen=True)
class LiveBytes:
    """One step at which what is held changes. `step` is the number of its node in its phase, in
    order of execution, 0 of masks; `id` is of that node."""

    phase: str
    step: int
    id: str
    bytes: int


@dataclass(frozen=True)
class Depth:
    """What is held over one run of forward and backward."""

    forward: int
    backward: int
    changes: tuple[LiveBytes, ...]


@dataclass(frozen=True)
class Lives:
    """How long each storage is held over forward and backward, whose steps are counted from 1 on
    through both; 0 is before the first. `bytes` are by the owner's id; of a storage that the
    backward makes again, by an id of its own. `begin` is the step after which it is held, `end` the
    step of its last reader; one that is held to the end has none."""

    forward: int
    backward: int
    order: tuple[str, ...]
    bytes: dict[str, int]
    begin: dict[str, int]
    end: dict[str, int]


def depth(joint: Joint, captured: tuple[str, ...], recomputed: tuple[str, ...]) -> Depth:
    """What is kept for the backward (`Joint.kept`), and what the backward computes again."""
    return depth_of(lives(joint, captured, recomputed), joint)


def depth_of(lived: Lives, joint: Joint) -> Depth:
    """What is held at each step, from how long each storage is."""
    change = [0] * (lived.forward + lived.backward + 1)
    for base, size in lived.bytes.items():
        change[lived.begin[base]] += size
        if base in lived.end:
            change[lived.end[base]] -= size
    order = [*joint.masks[-1:], *lived.order]
    changes, total = [], 0
    for step, size in enumerate(change):
        total += size
        if size:
            late = step > lived.forward
            where = ("backward", step - lived.forward) if late else ("forward", step)
            changes.append(LiveBytes(*where, order[step - (not joint.masks)], total))
    return Depth(lived.forward, lived.backward, tuple(changes))


def lives(joint: Joint, captured: tuple[str, ...], recomputed: tuple[str, ...]) -> Lives:
    """When what is kept for the backward, and what it recomputes, is made and freed.

    Forward and backward run in graph order; the backward recomputes a value right before it first
    reads it. Masks are there before the first node, captures once made, as if no kernel had two
    nodes. A storage is held until its last reader, a result's to the end. Unknown dimensions count
    as none.
    """
    owner, kept, by_id = joint.work.owner, joint.kept(captured), joint.graph.by_id
    nodes = (n for n in joint.graph.nodes if n.edges and n.id not in joint.free)
    forward = [n.id for n in nodes if n.id in joint.forward]
    backward, again = backward_order(joint, recomputed), set(recomputed)
    sizes = dict(kept)
    # Where the backward finds each value: ids of storages, those of its own with a mark.
    home: dict[str, tuple[str, ...]] = {}
    home |= {i: (owner[i],) if owner[i] in kept else () for i in (*captured, *joint.masks)}
    begin = dict.fromkeys((m for m in joint.masks if m in kept), 0)
    for step, node_id in enumerate(forward, 1):
        for base in home.get(node_id, ()):
            begin.setdefault(base, step)
    end = dict.fromkeys(kept, len(forward) + 1)
    for mask in joint.drawn_again(captured):
        home[mask] = (f"{mask} again",)
        sizes[home[mask][0]], begin[home[mask][0]] = joint.work.bytes[mask], len(forward) + 1
        end[mask] = len(forward) + 1
    for step, node_id in enumerate(backward, len(forward) + 1):
        node = by_id[node_id]
        found = [b for e in joint.graph.edges[node_id] for b in home.get(e, ())]
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
    return Lives(len(forward), len(backward), (*forward, *backward), sizes, begin, end)


def backward_order(joint: Joint, recomputed: tuple[str, ...]) -> list[str]:
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
                todo += [(e, False) for e in reversed(joint.graph.edges[current]) if e in again]
    return order
