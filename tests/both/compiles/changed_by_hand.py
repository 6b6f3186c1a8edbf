"""Graphs changed by hand at places drawn at random, with what each node of one is in the other."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from relascope.core.graph import Graph, Kind, Node
from relascope.core.identity import flat

KINDS = ("attribute", "cast", "removed", "swapped", "operator", "constant")


@dataclass(frozen=True)
class Changed:
    """A graph after changes, under new ids; by the old ids `truth` has the new one of what stayed,
    and `touched` how others were changed or removed, or what they read."""

    graph: Graph
    truth: dict[str, str]
    touched: dict[str, str]


def changed_by_hand(graph: Graph, count: int, seed: int) -> Changed:
    """Change so many nodes of a graph, each in a way drawn of those that fit it."""
    draw = random.Random(seed)
    nodes = [n for n in flat(graph) if n.kind in (Kind.CALL, Kind.CONSTANT) and n.body is None]
    draw.shuffle(nodes)
    plan: dict[str, str] = {}
    for place, node in enumerate(nodes):
        ways = [k for k in KINDS if _FITS[k](node)]
        wanted = KINDS[(len(plan) + place) % len(KINDS)]
        if ways and len(plan) < count:
            plan[node.id] = wanted if wanted in ways else draw.choice(ways)
    names = {n.id: f"n{i}" for i, n in enumerate(_shuffled([*_all(graph)], draw))}
    made = _edited(graph, plan, names)
    made.validate()
    there = {n.id for n in flat(made)}
    truth = {n.id: names[n.id] for n in flat(graph) if names[n.id] in there}
    return Changed(made, truth, plan)


def without_origins(graph: Graph) -> Graph:
    return _each(graph, lambda n: replace(n, scope="", source=""))


def nameless(graph: Graph) -> Graph:
    """The same without origins, parameters counted through, constants without their content."""
    count: Iterator[int] = iter(range(10**9))

    def bare(node: Node) -> Node:
        kept = {k: v for k, v in node.attrs.items() if k not in ("digest", "value", "parameter")}
        name = f"p{next(count)}" if node.kind is Kind.PARAMETER else node.name
        return replace(node, scope="", source="", attrs=kept, name=name)

    return _each(graph, bare)


def _each(graph: Graph, edit: Callable[[Node], Node]) -> Graph:
    nodes = []
    for node in graph:
        body = None if node.body is None else _each(node.body, edit)
        nodes.append(replace(edit(node), body=body))
    return graph.with_nodes(nodes)


def _all(graph: Graph) -> Iterator[Node]:
    for node in graph:
        yield node
        if node.body is not None:
            yield from _all(node.body)


def _shuffled(nodes: list[Node], draw: random.Random) -> list[Node]:
    draw.shuffle(nodes)
    return nodes


def _may_change(value: object) -> bool:
    return type(value) in (bool, int, float, list)


_FITS: dict[str, Callable[[Node], bool]] = {
    "attribute": lambda n: n.kind is Kind.CALL and any(map(_may_change, n.attrs.values())),
    "cast": lambda n: n.kind is Kind.CALL and bool(n.edges),
    "removed": lambda n: n.kind is Kind.CALL and len(n.inputs) == len(n.edges) == 1,
    "swapped": lambda n: len(n.edges) == len(n.inputs) == 2 and n.inputs[0] != n.inputs[1],
    "operator": lambda n: n.kind is Kind.CALL and len(n.outputs) == 1,
    "constant": lambda n: n.kind is Kind.CONSTANT and "digest" in n.attrs,
}


def _edited(graph: Graph, plan: dict[str, str], names: dict[str, str]) -> Graph:
    gone: dict[str, str] = {}
    nodes: list[Node] = []

    def of(ident: str) -> str:
        return names[gone.get(ident, ident)]

    for node in graph:
        way = plan.get(node.id)
        if way == "removed":
            gone[node.id] = gone.get(node.edges[0], node.edges[0])
            continue
        inputs = [of(i) if isinstance(i, str) else i for i in node.inputs]
        if way == "cast":
            at = next(i for i, x in enumerate(inputs) if isinstance(x, str))
            new = f"{names[node.id]}.cast"
            nodes.append(Node(new, Kind.CALL, "cast", "", {"dtype": "float16"}, (inputs[at],)))
            inputs[at] = new
        if way == "swapped":
            inputs.reverse()
        attrs, op = dict(node.attrs), node.op
        if way == "attribute":
            key = next(k for k, v in attrs.items() if _may_change(v))
            attrs[key] = [*attrs[key], 1] if type(attrs[key]) is list else -1 - attrs[key]
        if way == "constant":
            attrs["digest"] = f"other {attrs['digest']}"
        if way == "operator":
            op = f"other.{op}"
        body = None if node.body is None else _edited(node.body, plan, names)
        made = replace(node, id=names[node.id], op=op, attrs=attrs, inputs=tuple(inputs), body=body)
        nodes.append(made)
    ends = {"inputs": tuple(map(of, graph.inputs)), "outputs": tuple(map(of, graph.outputs))}
    return replace(graph, nodes=tuple(nodes), **ends)
