"""Why each tensor is saved or not, in words, with the nodes responsible."""

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from relascope.core.graph import Node, reached
from relascope.passes.cost import is_product, is_random, is_view
from relascope.passes.cuts.joint import Joint
from relascope.passes.cuts.problem import Wish

MOST = 32  # nodes that a search for one reason may visit, so that all reasons stay linear


@dataclass(frozen=True)
class Recomputation:
    """How a value is recomputed if it is not saved. `sources` are ids of the captures, inputs,
    parameters and masks that the nodes start from; `whole` is False if the search stopped at
    `MOST` nodes."""

    computed: tuple[str, ...]
    sources: tuple[str, ...]
    whole: bool


@dataclass(frozen=True)
class Standing:
    """The state of one node under a cut. `kind` is "captured", "recomputed", "given" (inputs,
    parameters, constants), "too far" (the backward needs it, but has nearer captures), "not
    needed", "tuple" or "backward"; `forced` is "save" or "recompute" if the user chose so, else "";
    `can_save` and `can_recompute` say whether the user may."""

    kind: str
    reason: str
    forced: str = ""
    can_save: bool = False
    can_recompute: bool = False


class Reasons:
    """The reasons of one cut."""

    def __init__(
        self, joint: Joint, saved: Collection[str], again: Collection[str], wish: Wish
    ) -> None:
        self._joint, self._saved = joint, saved
        self._wish, self._again = wish, frozenset(again)
        self._place = {n.id: k for k, n in enumerate(joint.graph.nodes)}
        self._next = self._towards_backward(self._again)

    def _towards_backward(self, again: Collection[str]) -> dict[str, str]:
        """For each node of the backward, the reader nearest to one of the backward's own nodes."""
        joint, far, found = self._joint, dict[str, int](), dict[str, str]()
        for node in reversed(joint.graph.nodes):
            if node.id not in joint.forward:
                far[node.id] = 0
                continue
            readers = (r for r in joint.graph.readers[node.id] if r in far)
            near = [r for r in readers if r in again or r not in joint.forward]
            if near:
                found[node.id] = min(near, key=far.__getitem__)
                far[node.id] = far[found[node.id]] + 1
        return found

    def path(self, node_id: str) -> tuple[str, ...]:
        """Ids from a node through recomputed nodes to the first of the backward's own nodes."""
        path = [node_id]
        while path[-1] in self._next and (path[-1] in self._joint.forward):
            path.append(self._next[path[-1]])
        return tuple(path)

    def instead(self, node_id: str) -> Recomputation:
        """The recomputation if a node were not saved."""
        joint, by_id = self._joint, self._joint.graph.by_id
        todo, seen, sources = deque([node_id]), dict[str, None](), dict[str, None]()
        while todo and len(seen) < MOST:
            current = todo.popleft()
            if current in joint.free or (current in self._saved and current != node_id):
                if by_id[current].edges or by_id[current].name:  # no constants
                    sources[current] = None
            elif current not in seen:
                seen[current] = None
                todo.extend(joint.graph.edges[current])
        order = self._place.__getitem__
        computed, starts = (tuple(sorted(some, key=order)) for some in (seen, sources))
        return Recomputation(computed, starts, not todo)

    def saved(self, node: Node, shares: str, path: tuple[str, ...], instead: Recomputation) -> str:
        by_id = self._joint.graph.by_id
        if node.id in self._wish.save:
            return "chosen by hand"
        if shares in self._joint.free:
            return f"a view of {by_id[shares].title}, which the caller owns, so it takes no memory"
        if shares:
            return f"the same memory as the capture {by_id[shares].title}, with another shape"
        reader = by_id[path[-1]].title if len(path) > 1 else "the caller, as a gradient"
        over = [by_id[i].title for i in path[1:-1] if not is_view(by_id[i])]
        way = f" by way of {_few(over)}" if over else ""
        need = f"{reader} in the backward needs it{way}" if len(path) > 1 else f"{reader} gets it"
        return f"{need}; otherwise {self._cost(instead)}"

    def unsaved(self, node_id: str) -> tuple[str, tuple[str, ...]]:
        """Why a node is not saved, and the ids of its sources."""
        reason, sources = self._instead(node_id)
        return (f"by hand: {reason}" if node_id in self._wish.recompute else reason), sources

    def _instead(self, node_id: str) -> tuple[str, tuple[str, ...]]:
        by_id, made = self._joint.graph.by_id, self.instead(node_id)
        names = [by_id[i].title for i in made.sources]
        working = [i for i in made.computed if not is_view(by_id[i])]
        if not working:
            return f"free: a view of {_few(names)}", made.sources
        return f"recomputable from {_few(names)} by {self._work(working, made)}", made.sources

    def standing(self, node_id: str) -> Standing:
        """The standing of any node of the joint graph."""
        joint, node = self._joint, self._joint.graph.by_id[node_id]
        if node_id not in joint.forward:
            return Standing("backward", "The backward computes it.")
        forced = "save" if node_id in self._wish.save else ""
        forced = "recompute" if node_id in self._wish.recompute else forced
        if node_id in joint.free:
            able = node_id in joint.draws and node_id in joint.masks_read(self._again)
            given = "The backward receives it, like the forward."
            drawn = "The backward draws it again from the generator's state."
            return Standing("given", drawn if node_id in self._saved else given, forced, able, able)
        kind, reason = self._kind(node)
        able = joint.may_be_captured(node_id) and kind != "not needed"
        return Standing(kind, reason, forced, able, able and not is_random(node))

    def _kind(self, node: Node) -> tuple[str, str]:
        if node.id in self._saved:
            path, instead = self.path(node.id), self.instead(node.id)
            return "captured", f"Saved: {self.saved(node, '', path, instead)}."
        if node.id in self._again:
            return "recomputed", f"Not saved: {self._instead(node.id)[0]}."
        if not self._joint.may_be_captured(node.id):
            return "tuple", "A tuple; its fields are saved or recomputed separately."
        nearer = self._captures_after(node.id)
        if nearer:
            names = _few([self._joint.graph.by_id[i].title for i in nearer])
            return "too far", f"Not saved: the backward uses {names}, computed from it, instead."
        return "not needed", "Not needed: nothing in the backward depends on it."

    def _captures_after(self, node_id: str) -> list[str]:
        """Captures between a node and the backward, in graph order."""
        joint, saved = self._joint, {*self._saved} - {node_id}

        def readers(ident: str) -> Iterable[str]:
            return () if ident in saved else set(joint.graph.readers[ident]) & joint.forward

        return sorted(saved & reached([node_id], readers).keys(), key=self._place.__getitem__)

    def _cost(self, made: Recomputation) -> str:
        by_id = self._joint.graph.by_id
        nodes = [by_id[i] for i in made.computed]
        drawn = [n.title for n in nodes if is_random(n)]
        if drawn:
            return f"{drawn[0]} would draw other random numbers"
        heavy = [n.title for n in nodes if is_product(n)]
        if heavy:
            return f"{_few(heavy)} would be computed again"
        working = [n.id for n in nodes if not is_view(n)]
        if not working:
            return "a view would be computed again"
        return f"{self._work(working, made)} would be computed again"

    def _work(self, ids: list[str], made: Recomputation) -> str:
        some = "" if made.whole else " and more"
        return _few([self._joint.graph.by_id[i].title for i in ids]) + some


def _few(names: list[str]) -> str:
    """Names in a row, each once with its count; only the first of many."""
    words = [name if n == 1 else f"{name} ({n} times)" for name, n in Counter(names).items()]
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if words[4:] else "")
