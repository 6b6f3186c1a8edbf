"""The order of kernels that holds the least memory."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush

Steps = Mapping[int, Collection[int]]


@dataclass(frozen=True)
class KernelLives:
    """The kernels of a function, by number, and the storages that they use. They run in `order`,
    each after its `sources`. `read` are the storages that each reads, with or without its own, and
    `made` those that it writes first; `sizes` are bytes of each storage, 0 for one to ignore.
    `kept` are held to the end, and `given` exist before all kernels. `over` are storages that a
    kernel may overwrite with its result, element by element, if it is their last reader."""

    order: Sequence[int]
    sources: Steps
    read: Steps
    made: Steps
    sizes: Mapping[int, int]
    kept: Collection[int]
    given: Collection[int] = ()
    over: Steps = field(default_factory=dict)

    @cached_property
    def least_held(self) -> list[int]:
        """An order with a lower peak, or else their own order. A compiler orders kernels depth
        first: a backward begins with everything that it recomputes, and ends with the gradients of
        weights, whose operands are held until then. Here, from the end, each recomputation moves to
        its reader; then, from the start, kernels that free as much as they take come first."""
        sizes, read, made = self.sizes, self.read, self.made
        after: dict[int, set[int]] = {node: set() for node in self.order}
        users: dict[int, list[int]] = {}  # of each storage
        for node in self.order:
            for source in self.sources[node]:
                after[source].add(node)
            for storage in read[node]:
                users.setdefault(storage, []).append(node)
        alive = {*self.kept}

        def grows_before(node: int) -> int:
            more = sum(sizes[s] for s in read[node] if s not in alive)
            return more - sum(sizes[s] for s in made[node])

        def taken_before(node: int) -> Iterable[int]:
            alive.difference_update(made[node])
            new = [s for s in read[node] if s not in alive]
            alive.update(new)
            return (user for s in new for user in users[s])

        backwards = self.order[::-1]
        late = _listed(backwards, after, self.sources, grows_before, taken_before)[::-1]
        left = Counter(storage for node in self.order for storage in read[node])

        def grows(node: int) -> int:
            ended = (s for s in read[node] if left[s] == 1 and s not in self.kept)
            return sum(sizes[s] for s in made[node]) - sum(sizes[s] for s in ended)

        def taken(node: int) -> Iterable[int]:
            left.subtract(read[node])
            return (user for s in read[node] if left[s] == 1 for user in users[s])

        early = _listed(late, self.sources, after, grows, taken)
        return [*min(self.order, late, early, key=self.peak)]

    def peak(self, order: Sequence[int]) -> int:
        """The most bytes held at one time if the kernels run in an order."""
        last = {s: n for n in order for s in (*self.read[n], *self.made[n])}
        ended = Counter[int]()
        for storage in last.keys() - self.kept:
            ended[last[storage]] += self.sizes[storage]
        now = most = sum(self.sizes[s] for s in self.given)
        for node in order:
            now += sum([self.sizes[s] for s in self.made[node]])
            again = self._ending(node, last)
            most = max(most, now - self.sizes[again[0]] if again else now)
            now -= ended[node]
        return most

    def overwritten(self, order: Sequence[int]) -> set[int]:
        """The storages that their last reader overwrites if the kernels run in an order."""
        last = {s: n for n in order for s in self.read[n]}
        return {s for n in self.over for s in self._ending(n, last)[:1]}

    def _ending(self, node: int, last: Mapping[int, int]) -> list[int]:
        """The storages that a kernel may overwrite, because nothing reads them later."""
        able = self.over.get(node, ())
        return [s for s in able if last[s] == node and s not in self.kept] if able else []


def _listed(
    order: Sequence[int],
    before: Mapping[int, Collection[int]],
    after: Mapping[int, Collection[int]],
    grows: Callable[[int], int],
    taken: Callable[[int], Iterable[int]],
) -> list[int]:
    """Nodes in an order, except that nodes that do not grow the held memory come first, those that
    shrink it most before others. `taken` is called with each node, and returns the nodes for which
    `grows` may have changed."""
    place = {node: index for index, node in enumerate(order)}
    missing = {node: len(before[node]) for node in order}
    ready: dict[int, int] = {}  # by how much each grows
    least: list[tuple[int, int]] = []
    first: list[int] = []
    found: list[int] = []

    def enter(node: int) -> None:
        ready[node] = grows(node)
        heappush(least, (ready[node], place[node]))

    def start(nodes: Iterable[int]) -> None:
        for node in nodes:
            enter(node)
            heappush(first, place[node])

    start(node for node in order if not missing[node])
    while ready:
        while ready.get(order[least[0][1]]) != least[0][0]:  # since then taken, or changed
            heappop(least)
        while order[first[0]] not in ready:
            heappop(first)
        chosen = order[least[0][1] if least[0][0] <= 0 else first[0]]
        del ready[chosen]
        found.append(chosen)
        for node in taken(chosen):
            if node in ready:
                enter(node)
        for node in after[chosen]:
            missing[node] -= 1
        start(node for node in after[chosen] if not missing[node])
    return found
