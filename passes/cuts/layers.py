"""Equal layers of a joint graph, so that a choice is made once for all of them.

Nodes with equal surroundings repeat at one distance in the forward, and at one in the backward,
which has the layers in reverse; what repeats is then compared edge by edge. A graph with few of the
layers has the same choices, and what is chosen there is spread to the others."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from relascope.core.memo import Memo
from relascope.passes.cuts.joint import MARK, Joint, Rewiring, original
from relascope.passes.cuts.problem import Wish

FEWEST = 12  # equal layers, of which it is worth while
LARGE = 6_000  # nodes, below which all layers are solved, however many are equal
_AROUND = 3  # edges to look around a node
_ENDS = 2  # layers that are kept at either end; others are left out in pairs

Places = dict[str, tuple[int, tuple[int, ...]]]
"""By node its layer, and its number there, below 0 in the backward; for one that is computed
elsewhere and read only in a layer, that of a reader and the number of the operand."""

_PLACES: Memo[Places] = Memo(4)


@dataclass(frozen=True)
class Few:
    """A joint graph with few of its equal layers, and by node of theirs the nodes for which it
    stands, itself included."""

    joint: Joint
    stands: dict[str, list[str]]

    def wish(self, wish: Wish) -> Wish:
        """What is asked of the layers that are left."""
        names = "save", "recompute", "on_host"
        return replace(wish, **{n: getattr(wish, n) & self.joint.graph.by_id.keys() for n in names})

    def spread(self, ids: Iterable[str]) -> frozenset[str]:
        """Some nodes, and those for which they stand."""
        return frozenset(other for i in ids for other in self.stands.get(i, [i]))

    def rewired(self, rewiring: Rewiring, joint: Joint) -> Rewiring:
        """A rewiring for another joint graph with these layers and more; empty if it would read
        what is not there."""
        found, edges = dict[str, tuple[str, ...]](), joint.graph.edges
        for node_id, read in rewiring.items():
            own, *marks = (i[len(original(i)) :] for i in (node_id, *read))
            for other in edges.keys() & self.stands.get(original(node_id), [original(node_id)]):
                pairs = zip(edges[other], marks, strict=True)
                found[other + own] = tuple(e + mark for e, mark in pairs)
        marked = {e for read in found.values() for e in read if MARK in e}
        return found if marked <= found.keys() else {}


def few_layers(joint: Joint, wish: Wish) -> tuple[Few, Few, float] | None:
    """A joint graph with four or five of its equal layers, one with two more, and how often two
    more make the whole; None for a graph below `LARGE`, or where fewer than `FEWEST` layers are
    equal, wishes included."""
    if len(joint.graph) < LARGE:
        return None
    place = _equal(joint, wish, _PLACES.get(joint, lambda: _places(joint)))
    layers = sorted({layer for layer, _ in place.values()})
    if len(layers) < FEWEST:
        return None
    first = _ENDS + len(layers) % 2
    few, more = (_few(joint, place, layers, n) for n in (first, first + 2))
    return few, more, (len(layers) - first - _ENDS) / 2


def _places(joint: Joint) -> Places:
    """Where nodes are in layers that repeat, as far as operators and prices tell."""
    graph, work, known, own = joint.graph, joint.work, dict[Hashable, int](), dict[str, int]()
    ends = {*graph.outputs, *joint.early}

    def number(*of: Hashable) -> int:
        return known.setdefault(of, len(known))

    for n in graph.nodes:
        price = work.again[n.id], joint.carried.get(n.id), repr(n.attrs)
        own[n.id] = number(n.op, n.outputs, n.id in ends, *(() if n.id in joint.free else price))
    look = own
    for _ in range(_AROUND):
        see = look.__getitem__
        look = {
            i: number(see(i), *map(see, edges), -1, *sorted(map(see, graph.readers[i])))
            for i, edges in graph.edges.items()
        }

    def repeated(ids: list[str]) -> Places:
        gaps, last = Counter[int](), dict[int, int]()
        for k, i in enumerate(ids):
            gaps[k - last.get(look[i], k)] += 1
            last[look[i]] = k
        gap = max((g for g in gaps if g), key=gaps.__getitem__, default=len(ids) + 1)
        run = _longest(own[a] == own[b] for a, b in zip(ids, ids[gap:], strict=False))
        inside = ids[run.start : run.start + (len(run) // gap + 1) * gap] if run else []
        return {i: (k // gap, (k % gap,)) for k, i in enumerate(inside)}

    ahead, back = repeated(joint.own_forward), repeated(joint.own_backward)
    pairs = ((i, e) for i in back for e in graph.edges[i] if e in ahead)
    sums = Counter(back[i][0] + ahead[e][0] for i, e in pairs)
    last = max(sums, key=sums.__getitem__, default=0)
    found = ahead | {i: (last - layer, (~number,)) for i, (layer, (number,)) in back.items()}
    for node in reversed(graph.nodes):
        readers = graph.readers[node.id]
        able = node.id not in found and node.id not in joint.free and {*readers} <= found.keys()
        if able and len({found[r][0] for r in readers}) == 1:
            reader = min(readers, key=found.__getitem__)
            layer, at = found[reader]
            found[node.id] = layer, (*at, graph.edges[reader].index(node.id))
    return found


def _longest(able: Iterable[bool]) -> range:
    """The numbers of the longest run of what is true."""
    longest, begin = range(0), 0
    for true, run in groupby(able):
        end = begin + len([*run])
        longest = max(longest, range(begin, end) if true else longest, key=len)
        begin = end
    return longest


def _equal(joint: Joint, wish: Wish, place: Places) -> Places:
    """The places in the longest run of layers that are equal edge by edge; none where other nodes
    read from the middle of them."""
    graph, by_id, free = joint.graph, joint.graph.by_id, joint.free
    at = {of: i for i, of in place.items()}
    after = {i: at.get((layer + 1, number), "") for i, (layer, number) in place.items()}
    asked = wish.save, wish.recompute, wish.on_host, {*joint.masks}

    def alike(one: str, other: str) -> bool:
        if any((one in some) != (other in some) for some in asked):
            return False
        given = one in free and other in free and by_id[one].outputs == by_id[other].outputs
        return after[one] == other if one in place else one == other or given

    def follows(one: str) -> bool:
        reads, then = graph.edges[one], graph.edges.get(after[one], ())
        near = all(abs(place[e][0] - place[one][0]) < _ENDS for e in reads if e in place)
        same = len(reads) == len(then) and alike(one, after[one]) and all(map(alike, reads, then))
        return near and same and by_id[one].outputs == by_id[after[one]].outputs

    layers = range(min(at)[0], max(at)[0] + 1) if at else range(0)
    right = Counter(layer for i, (layer, _) in place.items() if after[i] and follows(i))
    size = Counter(layer for layer, _ in at)
    run = _longest(right[layer] == size[layer] == size[layer + 1] for layer in layers)
    inside = layers[run.start : run.stop + 1]  # the last is as the one before
    place = {i: of for i, of in place.items() if of[0] in inside}
    far = {e for i, reads in graph.edges.items() if i not in place for e in reads}
    hidden = any(place[e][0] in inside[_ENDS:-_ENDS] for e in far & place.keys())
    return {} if hidden else place


def _few(joint: Joint, place: Places, layers: list[int], first: int) -> Few:
    """The graph with the `first` layers and the last `_ENDS`."""
    graph, kept = joint.graph, [*layers[:first], *layers[-_ENDS:]]
    at, index = {of: i for i, of in place.items()}, {layer: k for k, layer in enumerate(kept)}
    stands, gone = {i: [i] for i, of in place.items() if of[0] in index}, set[str]()
    for i, (layer, number) in place.items():
        if layer not in index:
            stands[at[kept[first - 2 + (layer - layers[first]) % 2], number]].append(i)
            gone.add(i)
    for some in [*stands.values()]:
        same = zip(*(graph.edges[i] for i in some), strict=True)
        stands.update({of[0]: [*dict.fromkeys(of)] for of in same if of[0] in joint.masks})

    def read(one: str, source: str) -> str:
        if one not in place or source not in place:
            return source
        (layer, _), (other, number) = place[one], place[source]
        return at[kept[index[layer] + other - layer], number]

    nodes = []
    for node in (n for n in graph.nodes if n.id not in gone):
        reads = tuple(read(node.id, i) if isinstance(i, str) else i for i in node.inputs)
        nodes.append(replace(node, inputs=reads))
    outputs = [i for i in graph.outputs if i not in gone]
    own = len([i for i in graph.outputs[: graph.forward_outputs] if i not in gone])
    less = replace(graph, nodes=tuple(nodes), outputs=tuple(outputs), forward_outputs=own)
    kernels = joint.kernels and [[i for i in of if i not in gone] for of in joint.kernels]
    seconds = joint.work.seconds
    left = ([i for i in of if i not in gone] for of, _ in joint.measured or ())
    timed = joint.measured and [(of, sum(seconds[i] for i in of)) for of in left if of]
    early = tuple(i for i in joint.early if i not in gone)
    return Few(Joint(less, kernels, timed, joint.copied, early), stands)
