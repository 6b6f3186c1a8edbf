"""Identity of nodes across the steps of a pipeline: what was added, removed, changed.

An engine names the nodes of each program anew. `carry_identity` gives the nodes of a later graph
the ids of the same nodes in an earlier one, so that a selection, a highlight or a capture means the
same computation after a pass as before it.

Three ways to be the same node, tried in this order (ours; the idea of hashing what a node computes
is that of common subexpression elimination):

1. *The same value*: it and everything it is computed from are equal; equal nodes match in graph
   order.
2. *The same call*: operator, attributes, types and inputs are equal, inputs compared by identity.
3. *A changed call*: same operator, types and inputs under other attributes; same operator and types
   at the same place in the model (module path and framework operator); or same operator and
   attributes on a shared input. It keeps its id and counts as changed."""

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from relascope.core.graph import Graph, Kind, Node

_CLOSURE = "closure"  # the operator of a function that reads variables outside it


@dataclass(frozen=True)
class Matched:
    """A later graph with the ids of an earlier one, and how the two differ. `graph` is the later
    one, with provenance that a pass lost taken from the earlier one; `renamed` maps its original
    ids to the new ones, fused bodies included; `changed` are ids that both have, with another
    operator, attributes, types or inputs."""

    graph: Graph
    renamed: Mapping[str, str]
    added: frozenset[str]
    removed: frozenset[str]
    changed: frozenset[str]


def carry_identity(before: Graph, after: Graph, pairs: Mapping[str, str] | None = None) -> Matched:
    """Rename the nodes of `after` to the ids of the same nodes in `before`. Linear in the size of
    both graphs. Nodes inside fused functions are matched like all others, so fusing adds the groups
    and removes nothing. `pairs` maps ids of nodes of `after` to those of the nodes of `before` with
    the same value, such as an argument for it; nodes computed from them can then match, too."""
    return _Matcher(before, after, pairs or {}).run()


def carry_pairs(before: Graph, after: Graph, pairs: Mapping[str, str]) -> Matched:
    """The same with known pairs of ids, from `after` to `before`."""
    return _Matcher(before, after, {}).settle(lambda node, inputs: pairs.get(node.id))


class _Matcher:
    def __init__(self, before: Graph, after: Graph, known: Mapping[str, str]) -> None:
        self.before, self.after, self.known = before, after, known
        self.old = {n.id: n for n in flat(before)}
        self.old_values = makers(before)
        self.free = set(self.old)
        self.renamed: dict[str, str] = {}
        self.values = makers(after)
        self.taken = set(self.old)
        self.added: set[str] = set()
        self.changed: set[str] = set()

    def run(self) -> Matched:
        old_hash, old_value = _value_hashes(self.before)
        known = {n: (old_hash[o], old_value[o]) for n, o in self.known.items()}
        new_hash, new_value = _value_hashes(self.after, known)
        by_hash: dict[str, deque[str]] = defaultdict(deque)
        for node_id, value in old_hash.items():
            by_hash[value].append(node_id)
        same_value: dict[str, str] = {}
        for node_id, value in new_hash.items():
            if by_hash[value]:
                same_value[node_id] = by_hash[value].popleft()
        self.free -= set(same_value.values())

        # Only nodes whose value no node of `after` has are left to match by call or by place.
        index: dict[object, deque[str]] = defaultdict(deque)
        still = set(new_value.values())
        for node_id, node in self.old.items():
            if node_id in self.free:
                merged = old_value[node_id] in still  # with its equal, so it is no other node
                for key in _keys(node, read_by(node, self.old_values), old_value[node_id], merged):
                    index[key].append(node_id)

        def find(node: Node, inputs: tuple[str, ...]) -> str | None:
            alike = map(index.__getitem__, _keys(node, inputs, new_value[node.id]))
            return same_value.get(node.id) or next(filter(None, map(self._take, alike)), None)

        return self.settle(find)

    def settle(self, find: Callable[[Node, tuple[str, ...]], str | None]) -> Matched:
        """Name every node of `after`. `find` gives the node of `before` that a node of `after` is,
        from its inputs' ids in `before`; or None."""
        for node in flat(self.after):
            inputs = tuple(self.renamed.get(i, i) for i in read_by(node, self.values))
            found = find(node, inputs)
            self.renamed[node.id] = found or self._fresh(node.id)
            if found is None:
                self.added.add(self.renamed[node.id])
                continue
            old = self.old[found]
            if (*own_key(node), inputs) != (*own_key(old), read_by(old, self.old_values)):
                self.changed.add(found)

        kept = set(self.renamed.values())
        return Matched(
            graph=self._rename(self.after),
            renamed=self.renamed,
            added=frozenset(self.added),
            removed=frozenset(i for i in self.old if i not in kept),
            changed=frozenset(self.changed),
        )

    def _take(self, candidates: deque[str]) -> str | None:
        while candidates:
            node_id = candidates.popleft()
            if node_id in self.free:
                self.free.remove(node_id)
                return node_id
        return None

    def _fresh(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.taken:
            count += 1
            name = f"{wanted}.{count}"
        self.taken.add(name)
        return name

    def _rename(self, graph: Graph) -> Graph:
        def of(node_id: str) -> str:
            return self.renamed.get(node_id, node_id)  # arguments of a body keep their names

        def kept(node: Node) -> dict[str, Any]:
            old = self.old.get(of(node.id), node)
            body = None if node.body is None else self._rename(node.body)
            made = node if node.source else old  # of source and line, which belong together
            about = {"scope": node.scope or old.scope, "source": made.source, "line": made.line}
            return {"body": body, **about}

        return graph.renamed(of, kept)


def flat(graph: Graph) -> Iterator[Node]:
    """All nodes, those inside a fused function before it, without the function's arguments. A
    closure is not opened: its call's arguments are unknown."""
    for node in graph.nodes:
        if node.body is not None and node.op != _CLOSURE:
            arguments = set(node.body.inputs)
            yield from (n for n in flat(node.body) if n.id not in arguments)
        yield node


def makers(graph: Graph) -> dict[str, str]:
    """The node that computes a value: outside for a body's argument, inside for a function result.
    Only ids that differ from that node's are in the map."""
    values: dict[str, str] = {}
    for node in graph.nodes:
        if node.body is None or node.op == _CLOSURE:
            continue
        for argument, source in zip(node.body.inputs, node.inputs, strict=True):
            if isinstance(source, str):
                values[argument] = values.get(source, source)
        values.update(makers(node.body))
        if len(node.body.outputs) == 1:
            made = node.body.outputs[0]
            values[node.id] = values.get(made, made)  # it may return an argument
    return values


def read_by(node: Node, values: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of the values that a node reads, by its graph's `makers`; a literal is `=text`."""
    return tuple(values.get(i, i) if isinstance(i, str) else f"={i.text}" for i in node.inputs)


def _value_hashes(
    graph: Graph, known: Mapping[str, tuple[str, str]] | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Two hashes of what each node computes, all the way up. The first distinguishes duplicates by
    numbers in graph order, and so their readers. The second is the same for all duplicates, as
    after a pass that merges them. `known` hashes are by the node's id."""
    counted: dict[str, str] = {}
    plain: dict[str, str] = {}
    seen: dict[str, int] = defaultdict(int)
    values = makers(graph)
    for node in flat(graph):
        if known and node.id in known:
            counted[node.id], plain[node.id] = known[node.id]
            continue
        own, read = [*map(str, own_key(node))], read_by(node, values)
        both = (_hash((*own, *(of.get(i, i) for i in read))) for of in (counted, plain))
        value, plain[node.id] = both
        seen[value] += 1
        counted[node.id] = value if seen[value] == 1 else f"{value}#{seen[value]}"
    return counted, plain


@lru_cache(1 << 14)  # nodes that a pass leaves alone have the same texts before and after it
def _hash(texts: tuple[str, ...]) -> str:
    return hashlib.blake2b(repr(texts).encode(), digest_size=12).hexdigest()


def parameter_of(node: Node) -> str:
    """The parameter that a node is, as an argument or bound as a constant; "" for others."""
    return node.name if node.kind is Kind.PARAMETER else str(node.attrs.get("parameter", ""))


def own_key(node: Node) -> tuple[object, ...]:
    """What a node itself is, without its inputs and its place."""
    attrs = json.dumps(dict(node.attrs), sort_keys=True, default=str) if node.attrs else ""
    return (node.kind, node.op, node.name, attrs, node.outputs)


def _keys(node: Node, inputs: tuple[str, ...], value: str, merged: bool = False) -> Iterator[Any]:
    """Keys that recognise a node, the surest first; if `merged`, those of its value and call."""
    own, kind = own_key(node), (node.kind, node.op, node.outputs)
    yield "call", own, inputs
    yield "value", value
    if merged:
        return
    if parameter_of(node):
        yield "parameter", parameter_of(node)  # bound or not, it is the same weight
    if node.inputs:
        yield "inputs", kind, inputs
    if node.kind in (Kind.INPUT, Kind.PARAMETER, Kind.FUNCTION):
        return
    if node.scope or node.source:
        yield "place", kind, node.scope, node.source
    for source in inputs:
        yield "input", own, source
