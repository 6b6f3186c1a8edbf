"""Simplifying a drawing: small constants go into their readers, nodes into their modules."""

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
    """Write constants with fewer than `fewer_than` elements into their readers, also in fused
    functions, if their text is known (`attrs["value"]`) and they are not results. A graph without
    such constants is returned unchanged. The last few results are cached."""
    return _FOLDED.get((id(graph), fewer_than), lambda: (graph, _folded(graph, fewer_than)))[1]


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
    """A module. Its `id` is its path; in a joint graph, "forward:" and "backward:" contain the two
    halves, and a module's backward part is "backward:" and its path. `groups` and `members` are the
    ids of the groups and nodes directly inside, in graph order; sums include submodules."""

    id: str
    label: str  # the part of the path that is not its parent's
    parent: str  # the id of the group around it, "" at the top
    groups: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    nodes: int = 0
    bytes: int = 0  # known ones of all computed results
    parameter_bytes: int = 0  # of constants, too
    operators: dict[str, int] = field(default_factory=dict)  # calls, the most frequent first
    times: int = 1  # equal modules in a row that it contains ("layer × 12")


@dataclass(frozen=True)
class GroupTree:
    """The modules of a graph."""

    groups: dict[str, Group]  # by id, parents first
    roots: tuple[str, ...]  # ids of the top groups
    group_of: dict[str, str]  # by a node's id, that of its innermost group, or ""

    def path(self, group: str) -> tuple[str, ...]:
        """The group and all groups around it, the outermost first; () for ""."""
        path: list[str] = []
        while group:
            path.append(group)
            group = self.groups[group].parent
        return tuple(reversed(path))

    def open_at_first(self, everything_up_to: int = 250, else_up_to: int = 120) -> tuple[str, ...]:
        """The groups to open for a readable first look: all, in a graph of at most
        `everything_up_to` nodes; else whole levels from the top, up to `else_up_to` boxes; if not
        even the first level fits, groups of it that fit. Equal modules stay rolled up."""
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
    """The tree of modules by the nodes' scopes. A group of fewer than two nodes, or of only one
    other group, is replaced by its content. In a joint graph (one with backward nodes), the two
    halves are the outermost groups, because a module computes in both."""
    halves = _halves(graph) if any(n.role is Role.BACKWARD for n in graph.nodes) else {}
    chain_of = cache(_chain)
    around: dict[str, str] = {}  # each group's parent, the outermost first
    sizes: Counter[str] = Counter()  # all nodes in each
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
    """A module, by its path, or the innermost module around it that has nodes, or ""."""
    scopes = [f"{n.scope}." for n in graph]
    while path and not any(s.startswith(f"{path}.") for s in scopes):
        path = path.rpartition(".")[0]
    return path


def regrouped(graph: Graph, tree: GroupTree, slot: Mapping[str, str]) -> GroupTree:
    """The modules of a larger graph, a `tree`, with the members and sums of a graph in it; `slot`
    maps each node's id to that of the larger graph's node in its place."""
    groups = {g.id: Group(g.id, g.label, g.parent, times=g.times) for g in tree.groups.values()}
    return _filled(graph, groups, {n.id: tree.group_of[slot[n.id]] for n in graph.nodes})


def _filled(graph: Graph, groups: dict[str, Group], group_of: dict[str, str]) -> GroupTree:
    """The tree with each group's members and sums, without empty groups."""
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
    """A node's module; for a parameter with its own name as scope, the module in the name."""
    return node.scope.rpartition(".")[0] if node.scope == node.name else node.scope


def _halves(graph: Graph) -> dict[str, str]:
    """Each node's half; inputs that only the backward reads belong to the backward."""
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
    """The groups to keep, and each node's innermost one."""
    large = {g for g in around if sizes[g] >= 2}
    subgroups = Counter(around[g] for g in large)
    loose = Counter(inner.values())  # nodes directly in a group without the small groups
    loose.update(around[g] for g in around if g not in large)
    kept = {g for g in large if g in (FORWARD, BACKWARD) or loose[g] or subgroups[g] != 1}
    outer: dict[str, str] = {"": ""}  # the nearest kept group, perhaps itself
    groups: dict[str, Group] = {}
    for group_id, parent in around.items():
        above = outer[parent]
        outer[group_id] = group_id if group_id in kept else above
        if group_id in kept:
            groups[group_id] = Group(group_id, _label(group_id, above), above)
    return groups, {node_id: outer[group_id] for node_id, group_id in inner.items()}


MOST_LOOSE, PART = 1500, 100
"""The most nodes directly in one module, and the size of the parts of larger ones."""


def _in_parts(graph: Graph, groups: dict[str, Group], group_of: dict[str, str]) -> None:
    """Split thousands of nodes directly in one module, or in none, into parts in order."""
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
                groups.setdefault(ident, Group(ident, label, group_of[part[0].id]))
                group_of.update((node.id, ident) for node in part)


def _rolled_up(
    graph: Graph, groups: dict[str, Group], group_of: Mapping[str, str]
) -> dict[str, Group]:
    """Put equal, consecutively numbered modules into a group: their parent if it has no others."""
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
    for group in groups.values():  # parents first
        if group.id in made:
            ordered[made[group.id].id] = made[group.id]
        ordered[group.id] = group
    return ordered


LEAST_TIMES = 3  # equal modules that are rolled up


def _numbered(groups: Iterable[Group]) -> list[list[Group]]:
    """Groups of one parent whose names differ only in a final number, if there are enough."""
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
    graph: Graph, groups: dict[str, Group], group_of: Mapping[str, str], wanted: set[str]
) -> dict[str, int]:
    """Hashes of each group's computation, without its nodes' names."""
    inside: dict[str, list[Node]] = {group: [] for group in wanted}
    path = cache(GroupTree(groups, (), {}).path)
    for node in graph.nodes:
        for group in wanted.intersection(path(group_of[node.id])):
            inside[group].append(node)
    found = {}
    for group, nodes in inside.items():
        number, module = {n.id: i for i, n in enumerate(nodes)}, group.removeprefix(BACKWARD)
        about: list[object] = []
        for n in nodes:
            attrs = str(sorted(n.attrs.items())) if n.kind is Kind.CALL else ""
            reads = tuple(number.get(i, -1) if isinstance(i, str) else i.text for i in n.inputs)
            scope = n.scope.removeprefix(module)
            about.append((n.kind, n.op, attrs, n.outputs, scope, n.role, reads))
        found[group] = hash(tuple(about))
    return found


def _label(group_id: str, parent: str) -> str:
    if group_id in (FORWARD, BACKWARD):
        return group_id.rstrip(":")
    above = "" if parent in (FORWARD, BACKWARD) else parent.removeprefix(BACKWARD)
    parts: Sequence[str] = group_id.removeprefix(BACKWARD).split(".")
    start = len(above.split(".")) if above else 0
    if parts[start].isdigit() and start:
        start -= 1  # "layer.3" says more than "3"
    return ".".join(parts[start:])
