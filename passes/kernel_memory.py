"""The order of kernels that holds the least memory."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)
Steps = Mapping[Name, Collection[Name]]


@dataclass(frozen=True)
class KernelLives(Generic[Name]):
    """The kernels of a function, by name, and the storages that they use. They run in `order`, each
    after those of its `sources` that are in it. `read` are the storages that each reads, with or
    without its own, and `writes` those that it writes first; `sizes` are their bytes, 0 for one to
    ignore. `kept` are held to the end, and `given` exist before all kernels. `over` are storages
    that a kernel may overwrite with its result, element by element, if it is their last reader and
    they are not given. Those not `apart` share one memory, as large as they need at the most."""

    order: Sequence[Name]
    sources: Steps[Name]
    read: Steps[Name]
    writes: Steps[Name]
    sizes: Mapping[Name, int]
    kept: Collection[Name]
    given: Collection[Name] = ()
    over: Steps[Name] = field(default_factory=dict)
    apart: Collection[Name] = ()

    @property
    def best_order(self) -> list[Name]:
        """An order with a lower peak, or else their own order."""
        return self._best[1]

    @property
    def lowest_peak(self) -> int:
        """The most bytes held at one time in the best order."""
        return self._best[0]

    @cached_property
    def _best(self) -> tuple[int, list[Name]]:
        """The lowest peak, and its order. A compiler orders kernels depth first: a backward begins
        with everything that it recomputes, and ends with the gradients of weights, whose operands
        are held until then. Here, from the end, each recomputation moves to its reader; then, from
        the start, kernels that free as much as they take come first."""
        if self.apart:
            ways = [each.best_order for each in (self._parts[0], replace(self, apart=()))]
            return min(((self.peak(order), order) for order in ways), key=lambda way: way[0])
        sizes, read, made = self.sizes, self.read, self._made
        after: dict[Name, list[Name]] = {node: [] for node in self.order}
        users: dict[Name, list[Name]] = {}  # of each storage
        missing = dict[Name, int]()
        for node in self.order:
            inside = [s for s in self.sources[node] if s in after]
            missing[node] = len(inside)
            for source in inside:
                after[source].append(node)
            for storage in read[node]:
                if storage in users:
                    users[storage].append(node)
                else:
                    users[storage] = [node]
        alive = {*self.kept}

        def begun(node: Name) -> Iterable[Name]:
            alive.difference_update(self.writes[node])
            new = [s for s in read[node] if s not in alive]
            alive.update(new)
            return new

        grows = {n: sum([sizes[s] for s in read[n] if s not in alive]) - made[n] for n in made}
        backwards, waiting = self.order[::-1], {node: len(after[node]) for node in self.order}
        late = self._listed(backwards, waiting, self.sources, grows, users, begun)[::-1]
        left = {s: len(nodes) for s, nodes in users.items() if s not in self.kept}

        def one_left(node: Name) -> Iterator[Name]:
            for storage in read[node]:
                if storage in left:
                    left[storage] -= 1
                    if left[storage] == 1:
                        yield storage

        grows = {n: made[n] - sum([sizes[s] for s in read[n] if left.get(s) == 1]) for n in made}
        orders = self.order, late, self._listed(late, missing, after, grows, users, one_left)
        peaks = [*map(self.peak, orders)]
        return min(peaks), [*orders[peaks.index(min(peaks))]]

    def _listed(
        self,
        order: Sequence[Name],
        missing: dict[Name, int],
        after: Steps[Name],
        grows: dict[Name, int],
        users: Steps[Name],
        taken: Callable[[Name], Iterable[Name]],
    ) -> list[Name]:
        """Nodes in an order, except that nodes that do not grow the held memory come first, those
        that shrink it most before others. `missing` counts what each node waits for, and `grows`
        the bytes that it adds. `taken`, called with each node, gives the storages that their
        `users` count no longer."""
        place = {node: index for index, node in enumerate(order)}
        ready: set[Name] = set()
        first: list[int] = []
        least: list[tuple[int, int]] = []

        def start(nodes: Iterable[Name]) -> None:
            for node in nodes:
                if not missing[node]:
                    ready.add(node)
                    heappush(first, place[node])
                    if grows[node] <= 0:
                        heappush(least, (grows[node], place[node]))

        start(order)
        found: list[Name] = []
        while ready:
            while least and (order[least[0][1]] not in ready):  # since then taken
                heappop(least)
            while order[first[0]] not in ready:
                heappop(first)
            chosen = order[least[0][1] if least else first[0]]
            ready.remove(chosen)
            found.append(chosen)
            for storage in taken(chosen):
                for node in users[storage] if self.sizes[storage] else ():
                    grows[node] -= self.sizes[storage]
                    if node in ready and grows[node] <= 0:
                        heappush(least, (grows[node], place[node]))
            inside = [node for node in after[chosen] if node in missing]
            for node in inside:
                missing[node] -= 1
            start(inside)
        return found

    def peak(self, order: Sequence[Name]) -> int:
        """The most bytes held at one time if the kernels run in an order."""
        if self.apart:
            return sum(each.peak(order) for each in self._parts)
        sizes, last, able, made = self.sizes, self._last(order), self._able, self._made
        ended = dict.fromkeys(order, 0)
        for storage, node in last.items():
            if storage not in self.kept:
                ended[node] += sizes[storage]
        held = most = sum([sizes[s] for s in self.given])
        for node in order:
            held += made[node]
            if held > most:
                over = [sizes[s] for s in able.get(node, ()) if last[s] == node]
                # Of one, where it could be several.
                most = max(most, held - (over[-1] if over else 0))
            held -= ended[node]
        return most

    @cached_property
    def _parts(self) -> list["KernelLives[Name]"]:
        """What shares one memory, and what is apart, each with the other ignored."""
        sizes = ({s: n * ((s in self.apart) == a) for s, n in self.sizes.items()} for a in (0, 1))
        return [replace(self, sizes=each, apart=()) for each in sizes]

    def overwritten(self, order: Sequence[Name]) -> set[Name]:
        """The storages that their last reader overwrites if the kernels run in an order."""
        last = self._last(order)
        able = ([s for s in of if last[s] == n] for n, of in self._able.items())
        return {s for storages in able for s in storages[:1]}

    def _last(self, order: Sequence[Name]) -> dict[Name, Name]:
        """By storage the last kernel that reads it, or else writes it."""
        return {s: n for n in order for of in (self.writes, self.read) for s in of[n]}

    @cached_property
    def _made(self) -> dict[Name, int]:
        """By kernel the bytes of what it writes first."""
        return {n: sum([self.sizes[s] for s in self.writes[n]]) for n in self.order}

    @cached_property
    def _able(self) -> dict[Name, list[Name]]:
        """By kernel the storages that it may overwrite if nothing reads them later."""
        out, sizes, inside = {*self.kept, *self.given}, self.sizes, self.over.keys() & self.order
        over = {n: {s for s in self.over[n] if sizes.get(s) and s not in out} for n in inside}
        return {n: [s for s in self.read[n] if s in able] for n, able in over.items() if able}
