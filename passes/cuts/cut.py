"""What the forward saves for the backward: capture strategies on a joint graph, for any compiler.

A joint graph contains forward and backward (`Graph.forward_outputs` is set). A cut names the
captures, values that the forward hands to the backward; the backward recomputes what else it needs
from them, inputs and parameters.

Inputs and parameters are never captures. Both functions contain constants and what depends only on
constants. Both get dropout masks, which live for one step: those that the backward reads are kept
for it, a byte an element, or drawn again, and then the state of PyTorch's generator is captured.
Every total counts them (`Joint.kept`)."""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from relascope.core.graph import Graph, Node, Role
from relascope.passes.cost import is_random
from relascope.passes.cuts.budget import budget_bytes, on_frontier, within_budget
from relascope.passes.cuts.frontier import FrontierPoint
from relascope.passes.cuts.joint import DRAW_PREFIX, STATE, Joint, Rewiring
from relascope.passes.cuts.lifetimes import Lifetimes
from relascope.passes.cuts.min_cut import SHARE, min_cut, recompute_pointwise
from relascope.passes.cuts.offload import marked, movable, offloaded, unmarked
from relascope.passes.cuts.peak import peak_bound, peak_limit, within_peak
from relascope.passes.cuts.per_use import UNASKED, fitted, read_rewiring, rewiring_text
from relascope.passes.cuts.problem import Wish
from relascope.passes.cuts.reasons import Reasons


@dataclass(frozen=True)
class Capture:
    """A tensor that the forward saves for the backward.

    Args:
        bytes: its share of the cut's bytes; None if a dimension is unknown.
        scope, source, line: where it is made, as in `core.graph.NodeOrigin`.
        reason: why it is saved, in a few words.
        readers: ids of the backward's nodes that read it, recomputed ones included; its own id for
            a gradient that is the value itself.
        is_output: it is, or shares the storage of, an output of the forward; its bytes count, but
            take no further memory.
        shares: id of the capture, mask, input, parameter or constant that has its storage, or "".
        path: ids from the capture to the nearest reader that is not recomputed.
        instead: ids of what would be recomputed without it; at most `reasons.MOST`."""

    id: str
    name: str
    op: str
    shape: tuple[int | str, ...]
    dtype: str
    bytes: int | None
    scope: str
    source: str
    line: str
    reason: str
    readers: tuple[str, ...]
    is_output: bool = False
    shares: str = ""
    path: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unsaved:
    """A tensor that the backward reads and that is not saved, with the `reason`, and ids of the
    captures, inputs, parameters and masks that it is computed from."""

    id: str
    name: str
    bytes: int | None
    reason: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Cut:
    """A division of a joint graph into forward and backward.

    Args:
        strategy: its name, or "by_hand".
        ids: of the captures, in graph order; a mask's id stands for the state of the generator
            from which the backward draws it again.
        recomputed: ids of the forward's nodes that the backward recomputes, in graph order, without
            what depends only on constants.
        forward_flops, recomputed_flops: estimates for the whole forward, and for what is
            recomputed.
        forward_seconds, recomputed_seconds: the same on a nominal machine (see `passes.cost`); only
            their ratio is meaningful.
        joint: the graph, from which facts about single tensors are computed on first use.
        budget: in bytes, if the strategy has one; of the whole step for `peak`.
        offloaded: ids of the captures that wait on the host, in graph order.
        rewiring: what the backward reads, where it computes a value more than once."""

    strategy: str
    ids: tuple[str, ...]
    recomputed: tuple[str, ...]
    forward_flops: float
    recomputed_flops: float
    forward_seconds: float
    recomputed_seconds: float
    wish: Wish = field(repr=False)
    joint: Joint = field(repr=False, compare=False)
    budget: int | None = None
    offloaded: tuple[str, ...] = ()
    rewiring: Rewiring = field(default_factory=dict)

    @property
    def marked(self) -> tuple[str, ...]:
        """The cut as a request has it: ids of the captures (see `passes.cuts.offload.HOST`), and
        the rewiring."""
        return (*marked(self.ids, self.offloaded), *rewiring_text(self.rewiring))

    @property
    def rewired(self) -> tuple[str, ...]:
        """Ids of the nodes of `rewiring`, each after what it reads."""
        nodes = self.lifetimes.rewired.graph.nodes if self.rewiring else ()
        return tuple(n.id for n in nodes if n.id in self.rewiring)

    @property
    def handed(self) -> tuple[str, ...]:
        """Ids of the captures that the forward returns."""
        return tuple(i for i in self.ids if i not in self.joint.draws)

    @property
    def drawn_again(self) -> tuple[str, ...]:
        """Ids of the masks that the backward draws again."""
        return tuple(i for i in self.ids if i in self.joint.draws)

    @property
    def share(self) -> float:
        """Estimated time of recomputation, as a share of the forward's."""
        return self.recomputed_seconds / self.forward_seconds if self.forward_seconds else 0.0

    @cached_property
    def net_share(self) -> float:
        """`Joint.net_share` of the captures, those on the host, and what is computed per use."""
        times = self.lifetimes.times if self.rewiring else None
        return self.joint.net_share(self.ids, self.offloaded, times)

    @property
    def copy_seconds(self) -> float:
        """Estimated time of copying to the host and back."""
        return self.joint.copy_seconds(self.offloaded)

    @property
    def host_bytes(self) -> int:
        """Bytes of the captures that wait on the host."""
        return sum(self.joint.work.bytes[i] for i in self.offloaded)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """How long a step holds each tensor."""
        return Lifetimes(self.joint, self.ids, self.offloaded, self.rewiring)

    @property
    def peak_bytes(self) -> int:
        """Estimated bytes of all tensors at the peak of a step."""
        return self.lifetimes.peak

    @property
    def least_peak_bytes(self) -> int | None:
        """A proven lower bound of the peak of any cut with nothing on the host; None if there is
        none, and for strategies other than `peak`."""
        alone = self.strategy == "peak" and not self.offloaded and not self.wish.offload
        return peak_bound(self.joint, self.ids, self.wish.per_use) if alone else None

    @property
    def uncapped_bytes(self) -> int | None:
        """Bytes without the cap on the work of a minimum cut; None for other strategies."""
        return None if self._uncapped is None else self.joint.bytes_of(self._uncapped)

    @cached_property
    def _uncapped(self) -> frozenset[str] | None:
        """Ids of what would be saved without the cap; None for other strategies."""
        if self.strategy != "min_cut":
            return None
        return min_cut(self.joint, self.wish, share=math.inf)

    @property
    def cap(self) -> str:
        """In words, what the cap on the work of a minimum cut decided; "" if nothing."""
        least = self.uncapped_bytes
        if least is None or self.bytes is None or least >= self.bytes:
            return ""
        return (
            f"To keep {self.bytes - least:,} bytes less, a step would take longer by more than "
            f"{SHARE:.0%} of the forward's estimated time."
        )

    @cached_property
    def captures(self) -> tuple[Capture, ...]:
        joint, owner = self.joint, self.joint.work.owner
        holders: dict[str, str] = {}
        found = []
        for node_id in self.ids:
            node, base = joint.graph.by_id[node_id], owner[node_id]
            if node_id in joint.draws:
                state = replace(node, outputs=(STATE,))
                found.append(self._capture(state, "the backward draws the mask again from it"))
                continue
            shares = base if base in joint.free else holders.setdefault(base, node_id)
            shares = "" if shares == node_id else shares
            path, instead = self.reasons.path(node_id), self.reasons.instead(node_id)
            reason = self.reasons.saved(node, shares, path, instead)
            if self.cap and not shares and node_id not in (self._uncapped or ()):
                reason += f", beyond the cap of {SHARE:.0%} of the forward's time"
            found.append(self._capture(node, reason, shares, path, instead.computed))
        return tuple(found)

    @cached_property
    def masks(self) -> tuple[Capture, ...]:
        """Dropout masks that the backward reads: inputs, so the forward does not return them."""
        kept = (self.joint.graph.by_id[i] for i in self._masks)
        what = {True: "random numbers", False: "a dropout mask"}
        drawn = ((n, what[n.name.startswith(DRAW_PREFIX)]) for n in kept)
        return tuple(self._capture(n, f"{it}, drawn before the forward") for n, it in drawn)

    @property
    def _masks(self) -> tuple[str, ...]:
        return tuple(i for i in self.joint.masks if i in self._kept and i not in self.ids)

    @cached_property
    def unsaved(self) -> tuple[Unsaved, ...]:
        """What crosses and is not captured, in graph order."""
        by_id, saved = self.joint.graph.by_id, set(self.ids)
        return tuple(
            Unsaved(i, by_id[i].title, by_id[i].bytes, *self.reasons.unsaved(i))
            for i in self.joint.crossings
            if i not in saved
        )

    @cached_property
    def reasons(self) -> Reasons:
        """Why what is saved is saved, and why the rest is not."""
        return Reasons(self.joint, set(self.ids), self.recomputed, self.wish)

    @cached_property
    def idle(self) -> dict[str, str]:
        """Wishes that change neither bytes nor work: by the node's id, the reason as a sentence.
        Those of equal layers are tried together, because each takes a cut."""
        rule, wish = STRATEGIES.get(self.strategy), self.wish
        groups: dict[tuple[bool, tuple[str, ...]], set[str]] = {}
        for node_id in sorted(wish.save - wish.on_host | wish.recompute) if rule else ():
            alike = self.joint.alike.get(node_id, (node_id,))
            groups.setdefault((node_id in wish.save, alike), set()).add(node_id)
        found: dict[str, str] = {}
        for ids in groups.values():
            others = replace(wish, save=wish.save - ids, recompute=wish.recompute - ids)
            assert rule is not None
            without = frozenset(rule.choose(self.joint, others))
            if self._price(without) == self._price(self.ids):
                found.update((i, self._idle(i, without)) for i in sorted(ids))
        return found

    def _price(self, saved: Collection[str]) -> tuple[int, float]:
        """Bytes kept, and estimated seconds of recomputation."""
        return self.joint.bytes_of(saved), self.joint.again_seconds(saved)

    def _idle(self, node_id: str, without: Collection[str]) -> str:
        joint, owner = self.joint, self.joint.work.owner
        if node_id in joint.draws:
            does = "draws the mask again" if node_id in self.ids else "keeps the mask"
            return f"The strategy {does} anyway."
        views = [i for i in self.ids if i != node_id and owner[i] == owner[node_id]]
        if owner[node_id] in joint.free:
            given = joint.graph.by_id[owner[node_id]].title
            return f"It is a view of {given}, which the backward receives anyway."
        if views and not (node_id in without and node_id in self.ids):
            view = joint.graph.by_id[views[0]].title
            return f"{view} ({views[0]}), a view of the same storage, is saved."
        if node_id in self.ids:
            return "The strategy saves it anyway."
        standing = self.reasons.standing(node_id)
        again = standing.kind == "recomputed"
        return "The strategy computes it again anyway." if again else standing.reason

    @cached_property
    def _kept(self) -> dict[str, int | None]:
        """Bytes of each storage that the device keeps, by its owner's id."""
        by_id, owner = self.joint.graph.by_id, self.joint.work.owner
        kept, away = self.joint.kept(self.ids), {owner[i] for i in self.offloaded}
        unknown = {owner[i] for i in (*self.ids, *kept) if by_id[i].bytes is None}
        return {i: None if i in unknown else n for i, n in kept.items() if i not in away}

    @property
    def bytes(self) -> int | None:
        """Bytes of captures and masks, each storage once, without `host_bytes`; None if unknown."""
        return _sum(self._kept.values())

    @property
    def extra_bytes(self) -> int | None:
        """The same without outputs of the forward."""
        return _sum(held for i, held in self._kept.items() if i not in self._results)

    @property
    def mask_bytes(self) -> int | None:
        return _sum(self._kept[i] for i in self._masks)

    @cached_property
    def _inside(self) -> frozenset[str]:
        """Ids of what the backward computes."""
        own = (n.id for n in self.joint.graph.nodes if n.id not in self.joint.forward)
        return frozenset(own) | frozenset(self.recomputed)

    def _capture(self, node: Node, reason: str, *more: Any) -> Capture:
        joint, owner = self.joint, self.joint.work.owner
        readers = tuple(r for r in joint.graph.readers[node.id] if r in self._inside)
        own = (node.id,) if node.id in joint.gradients else ()
        kind, is_output = node.outputs[0], owner[node.id] in self._results
        held = 0 if any(more[:1]) else self._kept.get(owner[node.id], kind.bytes)
        told = (kind.shape, kind.dtype, held, *node.origin, reason)
        return Capture(node.id, node.title, node.op, *told, readers + own, is_output, *more)

    @cached_property
    def _results(self) -> frozenset[str]:
        """Ids of the storages of the forward's outputs."""
        return frozenset(self.joint.work.owner[o] for o in self.joint.outputs)


def _sum(sizes: Iterable[int | None]) -> int | None:
    known = tuple(sizes)
    return None if None in known else sum(b for b in known if b is not None)


@dataclass(frozen=True)
class Strategy:
    """A rule that picks the captures. `name` is its name on the command line; `choose` maps a joint
    graph and a wish to the ids of the captures; `limit`, for a strategy with a budget, converts the
    wish's budget to bytes; `adapts` says whether it chooses anew around what the wish saves and
    recomputes. With a `share`, values are computed per use unasked, while `Joint.net_share` stays
    within it."""

    name: str
    title: str
    summary: str
    choose: Callable[[Joint, Wish], Collection[str]]
    limit: Callable[[Joint, Wish], int | None] | None = None
    adapts: bool = True
    share: float = 0.0

    @property
    def has_budget(self) -> bool:
        return self.limit is not None

    @property
    def needs_budget(self) -> bool:
        """Whether it has no cut of its own without a budget."""
        return self.limit is budget_bytes


def _drawn(joint: Joint, wish: Wish) -> Collection[str]:
    """Ids of what the forward draws and a second computation would draw differently."""
    nodes = (joint.graph.by_id[i] for i in joint.computed_again(()))
    return [n.id for n in nodes if is_random(n) and n.is_tensor]


STRATEGIES: dict[str, Strategy] = {
    s.name: s
    for s in (
        Strategy(
            "min_cut",
            "Minimum cut",
            "Saves the fewest bytes that a price on what is computed again allows; never computes "
            "a matrix product or a convolution again, and makes a step longer by at most 5 % of "
            "the forward's time, in which it may also lower the peak by *Recompute per use*.",
            min_cut,
            share=SHARE,
        ),
        Strategy(
            "frontier",
            "Along the frontier",
            "Of the cuts that are best at one price of time, the one with the shortest step that "
            "stays within the given bytes; quick, matrix products included.",
            on_frontier,
            limit=budget_bytes,
        ),
        Strategy(
            "budget",
            "Within a budget",
            "Stays within the given bytes and makes a step as short as that allows, matrix "
            "products included; finds cuts between the frontier's.",
            within_budget,
            limit=budget_bytes,
        ),
        Strategy(
            "peak",
            "Within a peak",
            "Of the frontier's cuts, and of those that save what each layer hands to the next, the "
            "one with least time whose whole step stays within the given bytes: captures, "
            "gradients, and all that is written on the way. Without a budget, the quickest "
            "with the lowest peak.",
            within_peak,
            limit=peak_limit,
        ),
        Strategy(
            "recompute_pointwise",
            "Recompute pointwise operators",
            "Saves results of matrix products, convolutions and reductions, as few bytes as will "
            "do; computes pointwise operators and views again.",
            recompute_pointwise,
        ),
        Strategy(
            "keep_all",
            "Keep everything that crosses",
            "Saves every value of the forward that the backward reads; computes nothing again. "
            "The tutorial's rule.",
            lambda joint, wish: joint.crossings,
            adapts=False,
        ),
        Strategy(
            "inputs_only",
            "Keep only the inputs",
            "Saves nothing but what is drawn at random; the backward computes the forward again as "
            "far as it needs it.",
            _drawn,
            adapts=False,
        ),
    )
}
"""By name, the default first."""

DEFAULT = next(iter(STRATEGIES))


def cut(
    graph: Graph | Joint,
    strategy: str = DEFAULT,
    budget: float | int | None = None,
    save: Iterable[str] = (),
    recompute: Iterable[str] = (),
    offload: bool = False,
    per_use: bool = False,
) -> Cut:
    """Cut a joint graph by a strategy. Raises ValueError, with the reason, if it is no joint graph,
    no strategy has that name, the strategy has no budget or leaves no choice, a pattern matches
    nothing, or a wish cannot be met.

    `graph` has `forward_outputs` set, or is its `Joint`, which caches the work of earlier cuts;
    `budget` is as in `Wish`. `save` and `recompute` are tensors that must, and must not, be saved:
    ids, or shell patterns. A pattern such as "layer.*.mlp :: matmul" matches everything that the
    backward needs and that an operator of that name, the framework's or the graph's, computes in
    such a module; one such as "dropout_mask_*" matches masks; a mask that is not saved is drawn
    again. After "host:", what is saved waits on the host; with `offload`, so does what else lowers
    the peak (`passes.cuts.offload`). With `per_use`, the backward may compute a value more than
    once to lower it (`passes.cuts.per_use`)."""
    if strategy not in STRATEGIES:
        raise ValueError(f"no strategy is called {strategy!r}; known: {', '.join(STRATEGIES)}")
    rule = STRATEGIES[strategy]
    if budget is not None and not rule.has_budget:
        raise ValueError(f"the strategy {strategy} has no budget")
    joint = graph if isinstance(graph, Joint) else Joint(graph)
    texts, away = unmarked(save)
    by_hand = ({i for t in given for i in _named(joint, t)} for given in (texts, recompute, away))
    saved, again, on_host = map(frozenset, by_hand)
    wish = Wish(budget, joint.with_sought(saved), again, on_host, offload, per_use)
    if (wish.save or wish.recompute) and not rule.adapts:
        raise ValueError(f"the strategy {strategy} leaves no choice; use another to save by hand")
    if both := wish.save & wish.recompute:
        raise ValueError(f"{min(both)} cannot be both saved and computed again")
    for node_id in sorted(wish.save | wish.recompute):
        check_capture(joint, node_id)
    if idle := wish.save.difference(joint.behind(joint.needed), joint.draws):
        title = joint.graph.by_id[min(idle)].title
        raise ValueError(f"{min(idle)} ({title}) is not saved: nothing in the backward needs it")
    limit = None if rule.limit is None else rule.limit(joint, wish)
    found = rule.choose(joint, wish)
    waiting = offloaded(joint, found, wish, limit if strategy == "peak" else None)
    return _cut(joint, strategy, found, wish, limit, waiting)


def _named(joint: Joint, text: str) -> Iterable[str]:
    """Ids that the text of a wish matches: one node, or several by a pattern."""
    module, pattern, operator = (part.strip() for part in text.partition("::"))
    if not pattern:
        return [m for m in joint.draws if fnmatchcase(joint.graph.by_id[m].name, text)] or (text,)
    nodes = [joint.graph.by_id[i] for i in joint.behind(joint.needed) if joint.may_be_captured(i)]
    there = [n for n in nodes if fnmatchcase(n.scope, module)]
    names = [(n.id, n.op, n.source.rpartition("::")[2]) for n in there]
    if found := [i for i, *known in names if any(fnmatchcase(k, operator) for k in known)]:
        return found
    known, kind = {n.op for n in there}, "operators"
    if not there:
        known, kind = {n.scope or "(none)" for n in nodes}, "modules"
    listed = ", ".join(sorted(known))
    raise ValueError(f"{text!r} matches nothing that the backward needs; its {kind}: {listed}")


def cut_at(graph: Graph, captured: Iterable[str]) -> Cut:
    """Cut a joint graph at nodes picked by hand, with what `rewiring_text` adds to their ids. Views
    of captures are left to the backward: two results of a function share no memory. Raises
    ValueError, with the reason, if it is no joint graph or a node cannot be captured, or cannot
    wait on the host as its mark `passes.cuts.offload.HOST` says."""
    joint = Joint(graph)
    texts, rewiring = read_rewiring(captured)
    chosen, away = map(frozenset, unmarked(texts))
    for node_id in sorted(chosen):
        check_capture(joint, node_id)
    owner = joint.work.owner
    chosen = frozenset(i for i in chosen if owner[i] == i or owner[i] not in chosen)
    drawn = chosen.intersection(joint.draws)
    wish = Wish(save=chosen - drawn, recompute=drawn, on_host=away & chosen)
    return _cut(joint, "by_hand", chosen, wish, away=away, rewiring=rewiring)


def cut_of(joint: Joint, point: FrontierPoint, wish: Wish) -> Cut:
    """The cut at a point of the frontier that was computed for a wish."""
    return _cut(joint, "frontier", point.saved, wish, point.bytes)


def check_capture(joint: Joint, node_id: str) -> None:
    """Refuse a node that cannot be captured. Raises ValueError, with the node and the reason."""
    if node_id not in joint.graph.by_id:
        raise ValueError(f"the graph has no node {node_id}")
    title = f"{node_id} ({joint.graph.by_id[node_id].title})"
    if node_id not in joint.forward:
        raise ValueError(f"node {title} belongs to the backward; only the forward is captured")
    if node_id in joint.draws:
        return
    if node_id in joint.free:
        what = "an input, a parameter or a constant, which the backward receives anyway"
        raise ValueError(f"node {title} is {what}")
    if not joint.may_be_captured(node_id):
        raise ValueError(f"node {title} is a tuple; capture its fields")


def _cut(
    joint: Joint,
    strategy: str,
    chosen: Collection[str],
    wish: Wish,
    budget: int | None = None,
    away: Collection[str] = (),
    rewiring: Rewiring | None = None,
) -> Cut:
    again, work = joint.computed_again(chosen), joint.work
    if joint.graph.ir == "relay" and (wish.on_host or wish.offload):
        why = "Relay's executor holds them until the backward reads them; use Relax"
        raise ValueError(f"no captures can wait on the host: {why}")
    if wish.on_host and (stays := wish.on_host - movable(joint, chosen)):
        title = f"{min(stays)} ({joint.graph.by_id[min(stays)].title})"
        why = "an output, a gradient or a mask, or shares its storage with something"
        raise ValueError(f"{title} cannot wait on the host: it is {why} that the device holds")
    saved = frozenset(chosen).difference(joint.draws).union(joint.drawn_again(chosen))
    for node in (joint.graph.by_id[i] for i in again):
        if is_random(node) and node.is_tensor:
            why = "computed again, it would draw other random numbers than the forward"
            raise ValueError(f"{node.id} ({node.title}) must be saved: {why}")
    for best, of in joint.sought.items():
        if best in saved and of in again:
            why = "the backward compares the two, and a recomputed one may round differently"
            raise ValueError(f"save {of} with {best}: {why}")
    times = None
    rule = STRATEGIES.get(strategy)
    unasked = rule.share if rule and len(joint.graph.nodes) <= UNASKED else 0.0
    if (share := math.inf if wish.per_use else unasked) or rewiring:
        lives = Lifetimes(joint, saved, away, rewiring)
        if share:
            lives = fitted(lives, budget if strategy == "peak" else None, share)
        rewiring, times = lives.rewiring, lives.times
    return Cut(
        strategy=strategy,
        ids=tuple(n.id for n in joint.graph.nodes if n.id in saved),
        recomputed=again,
        forward_flops=sum(work.flops[i] for i in joint.own_forward),
        recomputed_flops=sum(work.flops[i] * (times[i] if times else 1) for i in again),
        forward_seconds=joint.forward_seconds,
        recomputed_seconds=joint.again_seconds(saved, times),
        wish=wish,
        joint=joint,
        budget=budget,
        offloaded=tuple(n.id for n in joint.graph.nodes if n.id in away),
        rewiring=rewiring or {},
    )


def roles(graph: Graph | Joint, captured: Iterable[str] | None = None) -> dict[str, Role]:
    """The role of every node of a joint graph. Raises ValueError if it is no joint graph. `graph`
    has `forward_outputs` set, or is its `Joint`; `captured` are ids of the captures, None for
    everything that crosses."""
    joint = graph if isinstance(graph, Joint) else Joint(graph)
    saved = set(joint.crossings if captured is None else captured)

    def role(node_id: str) -> Role:
        if node_id in saved:
            return Role.CAPTURED
        return Role.FORWARD if node_id in joint.forward else Role.BACKWARD

    return {n.id: role(n.id) for n in joint.graph.nodes}
