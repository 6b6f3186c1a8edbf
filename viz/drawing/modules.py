"""Less to look at: small constants go into their readers, nodes go into their modules."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from math import inf

from relascope.core.graph import Graph, Kind, Literal, Node, Role
from relascope.core.memo import Memo

FORWARD, BACKWARD = "forward:", "backward:"


_FOLDED: Memo[tuple[Graph, Graph]] = Memo(24)


def fold_constants(graph: Graph, fewer_than: int = 10) -> Graph:
    """Write constants with fewer than `fewer_than` elements into the nodes that read them.

    Only constants whose text is known (`attrs["value"]`) go; one that is itself a result of the
    graph stays. Bodies of fused functions are folded too. A graph without such constants comes
    back as it is. The last few results are remembered with their graphs.
    """
    key = id(graph), fewer_than
    return _FOLDED.get(key, lambda: (graph, _folded(graph, fewer_than)))[1]


def _folded(graph: Graph, fewer_than: int) -> Graph:
    texts = {
        n.id: Literal(str(n.attrs["value"]))
        for n in graph.nodes
        if n.kind is Kind.CONSTANT and "value" in n.attrs and _elements(n) < fewer_than
    }
    for kept in graph.outputs:
        texts.pop(kept, None)
    nodes = []
    changed = bool(texts)
    for node in graph.nodes:
        if node.id in texts:
            continue
        if node.body is not None:
            body = _folded(node.body, fewer_than)
            if body is not node.body:
                node, changed = replace(node, body=body), True
        if not texts.keys().isdisjoint(node.edges):
            inputs = (texts.get(i, i) if isinstance(i, str) else i for i in node.inputs)
            node = replace(node, inputs=tuple(inputs))
        nodes.append(node)
    return graph.with_nodes(nodes) if changed else graph


def _elements(node: Node) -> float:
    counts = [t.elements for t in node.outputs]
    return inf if not counts or None in counts else sum(filter(None, counts))


@dataclass(slots=True)
class Group:
    """A module and what it holds, its submodules' nodes included in the sums.

    Args:
        id: the module's path; in a joint graph "forward:" and "backward:" hold the two halves,
            and a module's backward part is called "backward:" and its path.
        label: the part of the path that its parent group does not say already.
        parent: the id of the group around it, "" at the top.
        groups: ids of the groups right inside, in graph order.
        members: ids of the nodes right inside, in graph order.
        nodes: how many nodes in all.
        bytes: bytes of all results computed inside, where known; parameters are not among them.
        parameter_bytes: bytes of the parameters and constants inside.
        operators: how often each operator is called inside, the most frequent first.
        times: how many modules it holds that are alike, one after the other ("layer × 12"); 1 for
            any other group.
    """

    id: str
    label: str
    parent: str
    groups: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    nodes: int = 0
    bytes: int = 0
    parameter_bytes: int = 0
    operators: dict[str, int] = field(default_factory=dict)
    times: int = 1


@dataclass(frozen=True)
class GroupTree:
    """The modules of a graph: every group by id, parents first, and each node's innermost group.

    `roots` are the ids of the groups at the top; `group_of` maps a node's id to a group's, or "".
    """

    groups: dict[str, Group]
    roots: tuple[str, ...]
    group_of: dict[str, str]

    def path(self, group: str) -> tuple[str, ...]:
        """The group and all groups around it, the outermost first; () for ""."""
        path: list[str] = []
        while group:
            path.append(group)
            group = self.groups[group].parent
        return tuple(reversed(path))

    def open_at_first(self, everything_up_to: int = 250, else_up_to: int = 120) -> tuple[str, ...]:
        """Which groups to open for a readable first look.

        Modules that are alike stay rolled up. All others where that draws at most
        `everything_up_to` nodes; else whole levels from the
        top as long as at most `else_up_to` boxes are drawn. Where not even the first level fits,
        those of its groups that fit one by one.
        """
        if len(self.group_of) <= everything_up_to:
            return tuple(g.id for g in self.groups.values() if g.times == 1)
        opened: list[str] = []
        count, level = sum(not g for g in self.group_of.values()) + len(self.roots), [*self.roots]
        while level:
            level = [g for g in level if self.groups[g].times == 1]
            more = {g: len(self.groups[g].members) + len(self.groups[g].groups) - 1 for g in level}
            whole = count + sum(more.values()) <= else_up_to
            fits = []
            for group in level if whole or len(opened) < 2 else ():
                if count + more[group] <= else_up_to:
                    fits.append(group)
                    count += more[group]
            opened += fits
            level = [child for g in fits for child in self.groups[g].groups]
        return tuple(opened)


def module_groups(graph: Graph) -> GroupTree:
    """The tree of modules that the nodes' scopes spell out.

    A group that would hold fewer than two nodes, or nothing but one other group, is left out: its
    content stands in the group around it. In a joint graph (one with backward nodes) the two
    halves are the outermost groups, because a module computes in both.
    """
    joint = any(n.role is Role.BACKWARD for n in graph.nodes)
    halves = _halves(graph) if joint else {}
    chain_of = cache(_chain)
    around: dict[str, str] = {}  # by a group the one around it, the outermost first
    sizes: Counter[str] = Counter()  # nodes in each, those of groups in it among them
    inner: dict[str, str] = {}
    for node in graph.nodes:
        chain = chain_of(halves.get(node.id, ""), _module(node))
        around |= dict(zip(chain, ("", *chain), strict=False))
        sizes.update(chain)
        inner[node.id] = chain[-1] if chain else ""
    groups, group_of = _tidy(around, sizes, inner)
    _in_parts(graph, groups, group_of)
    return _filled(graph, _rolled_up(graph, groups, group_of), group_of)


def module_in(graph: Graph, path: str) -> str:
    """A module, by its path, or the innermost around it that nodes are in; "" where none is."""
    scopes = [f"{n.scope}." for n in graph]
    while path and not any(s.startswith(f"{path}.") for s in scopes):
        path = path.rpartition(".")[0]
    return path


def regrouped(graph: Graph, tree: GroupTree, slot: Mapping[str, str]) -> GroupTree:
    """The modules of a larger graph, a `tree`, holding and counting what a graph has of it; `slot`
    is by the id of each node that of the larger graph's node in whose place it stands."""
    group_of = {n.id: tree.group_of[slot[n.id]] for n in graph.nodes}
    groups = {g.id: Group(g.id, g.label, g.parent, times=g.times) for g in tree.groups.values()}
    return _filled(graph, groups, group_of)


def _filled(graph: Graph, groups: dict[str, Group], group_of: dict[str, str]) -> GroupTree:
    """The tree with what each group holds and its sums; without groups that hold nothing."""
    path = cache(GroupTree(groups, (), group_of).path)
    for node in graph.nodes:
        for group_id in path(group_of[node.id]):
            _count(groups[group_id], node)
        if group_of[node.id]:
            groups[group_of[node.id]].members.append(node.id)
    groups = {g.id: g for g in groups.values() if g.nodes}
    for group in groups.values():
        group.operators = dict(sorted(group.operators.items(), key=lambda kv: (-kv[1], kv[0])))
        if group.parent:
            groups[group.parent].groups.append(group.id)
    return GroupTree(groups, tuple(g.id for g in groups.values() if not g.parent), group_of)


def _module(node: Node) -> str:
    """A node's module; a parameter that is filed under its own name belongs to the module."""
    if node.scope and node.scope == node.name:
        return node.scope.rpartition(".")[0]
    return node.scope


def _halves(graph: Graph) -> dict[str, str]:
    """Which half each node stands in: the backward's, and what only the backward reads."""
    halves: dict[str, str] = {}
    for node in reversed(graph.nodes):
        theirs = {halves[r] for r in graph.readers[node.id]}
        alone = not node.edges and theirs == {BACKWARD} and node.role is Role.NONE
        halves[node.id] = BACKWARD if alone or node.role is Role.BACKWARD else FORWARD
    return halves


def _chain(half: str, scope: str) -> tuple[str, ...]:
    prefix = BACKWARD if half == BACKWARD else ""
    parts = scope.split(".") if scope else []
    chain = (prefix + ".".join(parts[: i + 1]) for i in range(len(parts)))
    return (half, *chain) if half else tuple(chain)


def _count(group: Group, node: Node) -> None:
    group.nodes += 1
    if node.kind in (Kind.PARAMETER, Kind.CONSTANT):
        group.parameter_bytes += node.bytes or 0
    elif node.kind in (Kind.CALL, Kind.FUNCTION):
        group.bytes += node.bytes or 0
    inside = node.body.operators if node.body is not None else {}
    for op, count in ({node.op: 1} if node.kind is Kind.CALL else inside).items():
        group.operators[op] = group.operators.get(op, 0) + count


def _tidy(
    around: Mapping[str, str], sizes: Mapping[str, int], inner: Mapping[str, str]
) -> tuple[dict[str, Group], dict[str, str]]:
    """The groups that say something, and in which of them each node stands."""
    large = {g for g in around if sizes[g] >= 2}
    subgroups = Counter(around[g] for g in large)
    loose = Counter(inner.values())  # nodes that stand right in a group once small ones go
    loose.update(around[g] for g in around if g not in large)
    kept = {g for g in large if g in (FORWARD, BACKWARD) or loose[g] or subgroups[g] != 1}
    outer: dict[str, str] = {"": ""}  # nearest group that is kept, itself included
    groups: dict[str, Group] = {}
    for group_id, parent in around.items():
        above = outer[parent]
        outer[group_id] = group_id if group_id in kept else above
        if group_id in kept:
            groups[group_id] = Group(group_id, _label(group_id, above), above)
    return groups, {node_id: outer[group_id] for node_id, group_id in inner.items()}


MOST_LOOSE, PART = 1500, 100
"""How many nodes may stand side by side in one module, and how many are in a part of more."""


def _in_parts(graph: Graph, groups: dict[str, Group], group_of: dict[str, str]) -> None:
    """Where thousands of nodes stand in one module, or in none, group them in their order."""
    loose: dict[str, list[Node]] = {}
    for node in graph.nodes:
        loose.setdefault(group_of[node.id], []).append(node)
    for around, nodes in loose.items():
        if len(nodes) <= MOST_LOOSE:
            continue
        for size in (PART * PART, PART) if len(nodes) > PART * PART else (PART,):
            for start in range(0, len(nodes), size):
                part = nodes[start : start + size]
                label = f"nodes {start + 1:,} to {start + len(part):,}"
                ident = f"{around}/{start + 1}…{start + len(part)}"
                parent = group_of[part[0].id]  # itself, of a part of a part that is one
                groups.setdefault(ident, Group(ident, label, parent))
                group_of.update((node.id, ident) for node in part)


def _rolled_up(
    graph: Graph, groups: dict[str, Group], group_of: Mapping[str, str]
) -> dict[str, Group]:
    """Put modules that are alike and numbered, one after the other, into one group, which takes the
    place of a group that holds nothing else."""
    numbered = _numbered(groups.values())
    if not numbered:
        return groups
    alike = {g.id for several in numbered for g in several}
    signatures = _signatures(graph, groups, group_of, alike)
    held = Counter([*group_of.values(), *(g.parent for g in groups.values())])
    made: dict[str, Group] = {}
    for several in numbered:
        for signature, alike_ones in groupby(several, key=lambda g: signatures.get(g.id)):
            run = [*alike_ones]
            if len(run) < LEAST_TIMES or signature is None:
                continue
            parent = groups.get(run[0].parent)
            if parent and held[parent.id] == len(run) and parent.id not in (FORWARD, BACKWARD):
                parent.times = len(run)
                parent.label += f" × {len(run)}"
            else:
                made[run[0].id] = _around(run)
    ordered: dict[str, Group] = {}
    for group in groups.values():  # a group stands before those in it
        if group.id in made:
            ordered[made[group.id].id] = made[group.id]
        ordered[group.id] = group
    return ordered


LEAST_TIMES = 3  # how many modules that are alike are rolled up


def _numbered(groups: Iterable[Group]) -> list[list[Group]]:
    """Those of one parent and one name but for a number at its end, where they are enough."""
    found: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        stem, _, last = group.id.rpartition(".")
        if last.isdigit():
            found[f"{group.parent}|{stem}"].append(group)
    return [several for several in found.values() if len(several) >= LEAST_TIMES]


def _around(run: Sequence[Group]) -> Group:
    first, numbers = run[0], [g.id.rpartition(".")[2] for g in (run[0], run[-1])]
    stem = first.label.rpartition(".")[0] or "modules"
    ident = f"{first.id.rpartition('.')[0]}.{'…'.join(numbers)}"
    group = Group(ident, f"{stem} × {len(run)}", first.parent, times=len(run))
    for one in run:
        one.parent = group.id
    return group


def _signatures(
    graph: Graph, groups: Mapping[str, Group], group_of: Mapping[str, str], wanted: set[str]
) -> dict[str, int]:
    """What each of these groups computes, without what its nodes are called."""
    inside: dict[str, list[Node]] = {group: [] for group in wanted}
    for node in graph.nodes:
        group = group_of[node.id]
        while group:
            if group in wanted:
                inside[group].append(node)
            group = groups[group].parent
    found = {}
    for group, nodes in inside.items():
        number, path = {n.id: i for i, n in enumerate(nodes)}, group.removeprefix(BACKWARD)
        about: list[object] = []
        for n in nodes:
            attrs = str(sorted(n.attrs.items())) if n.kind is Kind.CALL else ""
            reads = tuple(number.get(i, -1) if isinstance(i, str) else i.text for i in n.inputs)
            scope = n.scope.removeprefix(path)
            about.append((n.kind, n.op, attrs, n.outputs, scope, n.role, reads))
        found[group] = hash(tuple(about))
    return found


def _label(group_id: str, parent: str) -> str:
    if group_id in (FORWARD, BACKWARD):
        return group_id.rstrip(":")
    path = group_id.removeprefix(BACKWARD)
    above = "" if parent in (FORWARD, BACKWARD) else parent.removeprefix(BACKWARD)
    parts: Sequence[str] = path.split(".")
    start = len(above.split(".")) if above else 0
    if parts[start].isdigit() and start:
        start -= 1  # "layer.3" says more than "3"
    return ".".join(parts[start:])
