"""What the forward saves for the backward: capture strategies on a joint graph.

A joint graph holds the forward and the backward in one (`Graph.forward_outputs` is set). A cut
names the values that the forward hands over, its captures. What else the backward needs of the
forward, it computes again from captures, inputs and parameters.

Inputs and parameters are the caller's: they are handed to the backward as they were to the
forward and are never captures. The same holds for dropout masks, but somebody has to keep those
until the backward: they are listed apart. Constants, and what is computed from constants alone,
stand in both functions.

Nothing here knows a compiler. The strategies are in `passes.cuts`, one a file; what they pay for
bytes and work is in `passes.cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from passes.cuts.budget import budget_bytes, within_budget
from passes.cuts.joint import Joint
from passes.cuts.min_cut import min_cut
from passes.cuts.pointwise import recompute_pointwise
from passes.cuts.problem import Wish
from passes.cuts.reasons import Reasons
from viz.graph import Graph, Kind, Node, Role

__all__ = ["STRATEGIES", "Capture", "Cut", "Joint", "Spared", "Strategy", "cut", "cut_at", "roles"]

MASK_PREFIX = "dropout_mask_"
"""How the names of mask inputs begin."""


@dataclass(frozen=True)
class Capture:
    """One tensor that lives from the forward to the backward.

    Args:
        id: of the node.
        name: its title, for people.
        op: its operator; "" for a mask.
        shape, dtype, bytes: of the tensor; `bytes` is None where a dimension is not known.
        scope, source: the module and the framework operator that produce it.
        reason: why it is saved, in a few words.
        readers: ids of the nodes of the backward function that read it, those computed again
            included; a gradient that is the value itself is listed as the value's own id.
        is_output: whether it is an output of the forward as well, or shares one's storage. Its
            bytes count, for it is to be kept, but it takes no memory beyond the output's own.
        shares: id of the capture, input, parameter or constant that holds its storage, so that
            its bytes count there or nowhere; "" where it has its own.
        path: ids from the capture to the nearest reader that is not computed again: the way on
            which the backward needs it.
        instead: ids of what would be computed again without it; at most `reasons.MOST` of them.
    """

    id: str
    name: str
    op: str
    shape: tuple[int | str, ...]
    dtype: str
    bytes: int | None
    scope: str
    source: str
    reason: str
    readers: tuple[str, ...]
    is_output: bool = False
    shares: str = ""
    path: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spared:
    """One tensor that the backward reads and that is not saved.

    Args:
        id, name, bytes: as of a capture.
        reason: why it need not be saved.
        sources: ids of the captures, inputs, parameters and masks that it is computed from.
    """

    id: str
    name: str
    bytes: int | None
    reason: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Cut:
    """Where the joint graph is sawn through.

    Args:
        strategy: name of the strategy, or "by_hand".
        captures: in graph order.
        masks: dropout masks that the backward reads. They are inputs, so the forward does not
            return them, and `bytes` leaves them out.
        recomputed: ids of the forward's nodes that the backward computes again, in graph order;
            what is computed from constants alone is left out.
        spared: what crosses and is not captured, in graph order.
        forward_flops, recomputed_flops: estimated floating point operations of the whole forward,
            and of what is computed again.
        forward_seconds, recomputed_seconds: the same as estimated time on a nominal machine (see
            `passes.cost`): good for their ratio only.
        budget: in bytes, where the strategy has one.
    """

    strategy: str
    captures: tuple[Capture, ...]
    masks: tuple[Capture, ...]
    recomputed: tuple[str, ...]
    spared: tuple[Spared, ...] = ()
    forward_flops: float = 0.0
    recomputed_flops: float = 0.0
    forward_seconds: float = 0.0
    recomputed_seconds: float = 0.0
    budget: int | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the captures."""
        return tuple(c.id for c in self.captures)

    @property
    def bytes(self) -> int | None:
        """Bytes of all captures, each storage once, or None where one is not known."""
        return _total(c for c in self.captures if not c.shares)

    @property
    def extra_bytes(self) -> int | None:
        """Bytes of the captures that are not outputs of the forward anyway."""
        return _total(c for c in self.captures if not c.is_output and not c.shares)

    @property
    def mask_bytes(self) -> int | None:
        """Bytes of the masks."""
        return _total(self.masks)


def _total(captures: Iterable[Capture]) -> int | None:
    sizes = [c.bytes for c in captures]
    return None if None in sizes else sum(s for s in sizes if s is not None)


@dataclass(frozen=True)
class Strategy:
    """A rule that picks the captures.

    Args:
        name: as the command line calls it.
        title, summary: for people.
        choose: from a joint graph and a wish to the ids of the captures.
        has_budget: whether it heeds the wish's budget.
        adapts: whether it heeds what is to be saved and what is not, and chooses the rest anew.
    """

    name: str
    title: str
    summary: str
    choose: Callable[[Joint, Wish], Collection[str]]
    has_budget: bool = False
    adapts: bool = True


def _keep_all(joint: Joint, wish: Wish) -> Collection[str]:
    return joint.crossings


def _inputs_only(joint: Joint, wish: Wish) -> Collection[str]:
    return ()


STRATEGIES: dict[str, Strategy] = {
    s.name: s
    for s in (
        Strategy(
            "keep_all",
            "Keep everything that crosses",
            "Saves every value of the forward that the backward reads; computes nothing again. "
            "The tutorial's rule.",
            _keep_all,
            adapts=False,
        ),
        Strategy(
            "recompute_pointwise",
            "Recompute pointwise operators",
            "Saves results of matrix products, convolutions and reductions, as few bytes as will "
            "do; computes pointwise operators and views again.",
            recompute_pointwise,
        ),
        Strategy(
            "min_cut",
            "Minimum cut",
            "Saves the fewest bytes, with a price on what is computed again; never computes a "
            "matrix product or a convolution again, and spends little of the forward's time.",
            min_cut,
        ),
        Strategy(
            "budget",
            "Within a budget",
            "Stays within the given bytes and recomputes as little time as that allows, matrix "
            "products included.",
            within_budget,
            has_budget=True,
        ),
        Strategy(
            "inputs_only",
            "Keep only the inputs",
            "Saves nothing; the backward computes the forward again as far as it needs it.",
            _inputs_only,
            adapts=False,
        ),
    )
}


def cut(
    graph: Graph,
    strategy: str = "keep_all",
    budget: float | int | None = None,
    save: Iterable[str] = (),
    recompute: Iterable[str] = (),
) -> Cut:
    """Cut a joint graph by a strategy.

    Args:
        graph: with `forward_outputs` set.
        strategy: a name in `STRATEGIES`.
        budget: most bytes to keep, for the strategy that has one: a float is a fraction of what
            everything that crosses takes, an int is bytes.
        save, recompute: ids of tensors that must be saved, and that must not be; the strategy
            chooses the rest around them.

    Raises:
        ValueError: it is no joint graph, no strategy has that name, the strategy has no budget or
            leaves no choice, or a wish cannot be met; says which.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"no strategy is called {strategy!r}; known: {', '.join(STRATEGIES)}")
    rule = STRATEGIES[strategy]
    if budget is not None and not rule.has_budget:
        raise ValueError(f"the strategy {strategy} has no budget")
    wish = Wish(budget, frozenset(save), frozenset(recompute))
    if (wish.save or wish.recompute) and not rule.adapts:
        raise ValueError(f"the strategy {strategy} leaves no choice; take another to save by hand")
    if both := wish.save & wish.recompute:
        raise ValueError(f"{min(both)} is to be saved and to be computed again")
    joint = Joint(graph)
    for node_id in sorted(wish.save | wish.recompute):
        _check(joint, node_id)
    found = _cut(joint, strategy, rule.choose(joint, wish), wish)
    limit = budget_bytes(joint, budget) if rule.has_budget else None
    return replace(found, budget=limit)


def cut_at(graph: Graph, captured: Iterable[str]) -> Cut:
    """Cut a joint graph at nodes picked by hand.

    Raises:
        ValueError: it is no joint graph, or a node cannot be captured; says which, and why.
    """
    joint = Joint(graph)
    chosen = frozenset(captured)
    for node_id in sorted(chosen):
        _check(joint, node_id)
    return _cut(joint, "by_hand", chosen, Wish(save=chosen))


def _check(joint: Joint, node_id: str) -> None:
    """Refuse a node that cannot be captured."""
    if node_id not in joint.graph.by_id:
        raise ValueError(f"the graph has no node {node_id}")
    title = f"{node_id} ({joint.graph.by_id[node_id].title})"
    if node_id not in joint.forward:
        raise ValueError(f"node {title} belongs to the backward; only the forward is captured")
    if node_id in joint.free:
        raise ValueError(
            f"node {title} is an input, a parameter or a constant, which the backward is given"
        )
    if not joint.may_be_captured(node_id):
        raise ValueError(f"node {title} is a tuple; capture its fields")


def _cut(joint: Joint, strategy: str, chosen: Collection[str], wish: Wish) -> Cut:
    graph, owner = joint.graph, joint.work.owner
    saved = frozenset(chosen)
    again = joint.computed_again(saved)
    reasons = Reasons(joint, saved, again, wish)
    inside = {n.id for n in graph.nodes if n.id not in joint.forward} | set(again)
    masks = [n for n in graph.nodes if n.kind is Kind.INPUT and n.name.startswith(MASK_PREFIX)]
    results = {owner[o] for o in joint.outputs}
    holders: dict[str, str] = {}

    def capture(node: Node, **more: Any) -> Capture:
        readers = tuple(r for r in graph.readers[node.id] if r in inside)
        own = (node.id,) if node.id in joint.gradients else ()
        kind = node.outputs[0]
        return Capture(
            id=node.id,
            name=node.title,
            op=node.op,
            shape=kind.shape,
            dtype=kind.dtype,
            bytes=kind.bytes,
            scope=node.scope,
            source=node.source,
            readers=readers + own,
            is_output=owner[node.id] in results,
            **more,
        )

    captures = []
    for node in graph.nodes:
        if node.id in saved:
            base = owner[node.id]
            shares = base if base in joint.free else holders.setdefault(base, node.id)
            shares = "" if shares == node.id else shares
            path, instead = reasons.path(node.id), reasons.instead(node.id)
            reason = reasons.saved(node, shares, path, instead)
            captures.append(
                capture(node, reason=reason, shares=shares, path=path, instead=instead.computed)
            )
    kept = [capture(n, reason="dropout mask, drawn outside") for n in masks]
    work = joint.work
    own_forward = [n.id for n in graph.nodes if n.id in joint.forward and n.id not in joint.free]
    return Cut(
        strategy=strategy,
        captures=tuple(captures),
        masks=tuple(m for m in kept if m.readers),
        recomputed=again,
        spared=tuple(
            Spared(i, graph.by_id[i].title, graph.by_id[i].bytes, *reasons.spared(i))
            for i in joint.crossings
            if i not in saved
        ),
        forward_flops=sum(work.flops[i] for i in own_forward),
        recomputed_flops=sum(work.flops[i] for i in again),
        forward_seconds=sum(work.seconds[i] for i in own_forward),
        recomputed_seconds=sum(work.seconds[i] for i in again),
    )


def roles(graph: Graph, captured: Iterable[str] | None = None) -> dict[str, Role]:
    """Where every node of a joint graph stands.

    Args:
        graph: with `forward_outputs` set.
        captured: ids of the captures; None means everything that crosses.

    Returns:
        By id: CAPTURED for the captures, FORWARD for the rest of what the outputs are computed
        from, BACKWARD for everything else.

    Raises:
        ValueError: it is no joint graph.
    """
    joint = Joint(graph)
    saved = set(joint.crossings if captured is None else captured)

    def role(node_id: str) -> Role:
        if node_id in saved:
            return Role.CAPTURED
        return Role.FORWARD if node_id in joint.forward else Role.BACKWARD

    return {n.id: role(n.id) for n in graph.nodes}
