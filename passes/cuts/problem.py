"""The choice behind a cut, as numbers: what to save, what to recompute.

Each value of the forward that may be needed is *available* to the backward or not, and *computed
again* or not. A value that is available and not computed again is saved, and costs bytes; computing
it again costs time, and needs all that it reads. Views are free, so values of one storage are saved
as the first of them. A dropout mask that has a reader is saved, or drawn again at the cost of its
state."""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relascope.passes.cuts.joint import STATE, Joint


@dataclass(frozen=True)
class Wish:
    """What a person asks of a strategy. `budget` is the most bytes to keep: an int is bytes, a
    float a share of the bytes of everything that crosses; None if the strategy has no budget.
    `save` and `recompute` are ids of tensors that must, and must not, be saved; `on_host` are those
    of the former that must be on the host. `offload` lets the strategy put more there. With
    `per_use`, the backward may compute a value more than once: see `passes.cuts.per_use`."""

    budget: float | int | None = None
    save: frozenset[str] = frozenset()
    recompute: frozenset[str] = frozenset()
    on_host: frozenset[str] = frozenset()
    offload: bool = False
    per_use: bool = False


@dataclass(frozen=True)
class CutProblem:
    """Values, prices and edges in flat arrays; a value is identified by its position in `ids`.

    Args:
        ids: of the forward's values that are not free, in graph order; then of the masks.
        save: bytes to save each; infinite if it cannot be saved.
        redo: seconds to compute each again; infinite if that is not allowed.
        carry: seconds of the memory traffic that saving each adds: see `Work.carried`.
        state: bytes to keep if each is computed again: the state that a mask is drawn from.
        needed: bool, whether the backward reads it.
        sources, targets: edges between values, each once: the target reads the source.
        forced: positions of the values saved by wish, whose price is 0 in `save`.
        masks: how many of `ids` are masks, the last ones."""

    ids: tuple[str, ...]
    save: NDArray[np.float64]
    redo: NDArray[np.float64]
    carry: NDArray[np.float64]
    state: NDArray[np.float64]
    needed: NDArray[np.bool_]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    forced: tuple[int, ...] = field(default=())
    masks: int = 0


def problem(joint: Joint, banned: Collection[str], wish: Wish) -> CutProblem:
    """State the choice for one joint graph. Nodes of `banned` must not be computed again, nor masks
    drawn again, unless by wish or if the backward reads them and they cannot be saved, because
    their result is a tuple."""
    graph = joint.graph
    values = (*joint.behind(joint.needed), *joint.masks)
    at, count = {node_id: k for k, node_id in enumerate(values)}, len(values)
    save, redo = np.full(count, np.inf), np.zeros(count)
    carry, state = np.zeros(count), np.zeros(count)
    needed, by_hand = np.zeros(count, dtype=np.bool_), wish.save.difference(joint.masks)
    needs, owner = {*joint.needed, *by_hand, *joint.masks_read()}, joint.work.owner
    unsaved = {*_inside_log1p(joint), *joint.sought}
    held = {owner[i] for i in by_hand}  # storages that are kept anyway, by a view or its base
    for k, node_id in enumerate(values):
        needed[k] = node_id in needs
        savable = graph.by_id[node_id].is_tensor and node_id not in unsaved
        stuck = needed[k] and not savable
        if node_id in by_hand:
            save[k], redo[k] = 0.0, np.inf
            continue
        if savable and node_id not in wish.recompute:
            kept = owner[node_id] in held
            save[k] = 0.0 if kept else joint.work.bytes[node_id] or _unknown(joint, node_id)
            carry[k] = 0.0 if kept else joint.carried.get(owner[node_id], 0.0)
        barred = node_id in banned and not stuck and node_id not in wish.recompute
        seconds = joint.work.again[node_id]
        if node_id in joint.masks:
            state[k], seconds = STATE.bytes or 0, joint.draws.get(node_id, np.inf)
            seconds = 0.0 if node_id in wish.recompute else seconds  # it is not to be weighed
            barred |= node_id in wish.save or save[k] <= state[k]
        redo[k] = np.inf if barred else seconds
    pairs = [(at[s], k) for k, i in enumerate(values) for s in joint.graph.edges[i] if s in at]
    sources, targets = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    forced = tuple(at[i] for i in values if i in by_hand)
    prices, masks = (save, redo, carry, state), len(joint.masks)
    return CutProblem(values, *prices, needed, sources, targets, forced, masks)


def _inside_log1p(joint: Joint) -> set[str]:
    """Sums 1 + y inside a logarithm: a saved one has lost the digits of a small y."""
    by_id = joint.graph.by_id
    ones = {n.id for n in joint.graph.nodes if n.attrs.get("value") in ("1", "1.0")}
    read = {i for node in joint.graph.nodes if node.op == "log" for i in node.edges}
    return {i for i in read if by_id[i].op == "add" and not ones.isdisjoint(by_id[i].edges)}


def _unknown(joint: Joint, node_id: str) -> int:
    """Bytes of a tensor with unknown dimensions, each counted as 1."""
    kind = joint.graph.by_id[node_id].outputs[0]
    known = type(kind)(tuple(d if isinstance(d, int) else 1 for d in kind.shape), kind.dtype)
    return known.bytes or 0
