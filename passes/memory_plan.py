"""The storages of a Relax function whose memory is planned, and the tensors in them, step by step.

A step, counted from 0, is a call that reads or writes a tensor in a storage. Views, tuples and
results of an `if` name tensors. A tensor is held from its first write to its last use by any name,
or to the end if it is a result. A runtime function's result may view its arguments."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from relascope.core.graph import Graph, Kind, Node, TensorType

_STORAGES = ("memory.alloc_storage", "vm.alloc_storage")
_OWN = "builtin.alloc_tensor"  # a tensor with a storage of its own
_TENSORS = ("memory.alloc_tensor", "vm.alloc_tensor", _OWN)
_ENDS = ("memory.kill_storage", "memory.kill_tensor", "vm.kill_object")
_Path = tuple[tuple[int, int], ...]  # the branches around a node: an `if`, and which of its two
_Shown = frozenset[tuple[int, _Path]]  # tensors that a node shows, each if a run takes branches
_Value = Any  # a `_Shown`; for a tuple, a list of values
_NOTHING: _Shown = frozenset()


@dataclass
class PlannedTensor:
    """A tensor in a storage. `offset` is that of its first byte, None if unknown; `begin` is the
    step before which it is allocated, and `path` the branches around the allocation. `uses` are
    (step, whether it writes, branches), in order."""

    storage: int
    type: TensorType
    offset: int | None
    begin: int
    path: _Path
    uses: list[tuple[int, bool, _Path]] = field(default_factory=list)
    results: list[_Path] = field(default_factory=list)

    @property
    def write(self) -> int:
        """The first step that writes it, else uses it: runtime functions declare no writes."""
        first = self.uses[0][0] if self.uses else self.begin
        return next((step for step, writes, _ in self.uses if writes), first)

    @property
    def end(self) -> int:
        return self.uses[-1][0] if self.uses else self.begin

    def shares(self, other: "PlannedTensor") -> bool:
        """Whether both are known to contain the same byte of a storage."""
        if self.offset is None or other.offset is None:
            return False
        gap, low = other.offset - self.offset, self if self.offset < other.offset else other
        return gap == 0 or abs(gap) < (low.type.bytes or 0)


@dataclass
class MemoryPlan:
    """The plan of one function. `storages` are the bytes of each, None if unknown, and the branches
    around it; `elsewhere` counts steps that call a function that allocates, too."""

    steps: list[str] = field(default_factory=list)
    storages: list[tuple[int | None, _Path]] = field(default_factory=list)
    tensors: list[PlannedTensor] = field(default_factory=list)
    elsewhere: int = 0

    def peak(self) -> tuple[int, int]:
        """The most known bytes held at once, counting both branches of an `if`; the first step."""
        changes = [0] * (len(self.steps) + 1)
        for one in self.tensors:
            if one.uses:
                changes[one.write] += one.type.bytes or 0
                changes[-1 if one.results else one.end + 1] -= one.type.bytes or 0
        held = [*accumulate(changes)]
        return max(held), held.index(max(held))

    @cached_property
    def astray(self) -> list[int]:
        """Places of tensors that are outside the branch that allocates their storage."""
        around = ((t.path, self.storages[t.storage][1]) for t in self.tensors)
        return [k for k, (own, path) in enumerate(around) if path != own[: len(path)]]

    @cached_property
    def overlaps(self) -> list[tuple[int, int, int | None]]:
        """Places of two tensors that share bytes, where the second is written before the last use
        of the first; and the step of that use, None for a result."""
        found, live = [], defaultdict[int, list[tuple[int, PlannedTensor]]](list)
        for at in sorted(range(len(self.tensors)), key=lambda k: self.tensors[k].write):
            second = self.tensors[at]
            held = [(k, t) for k, t in live[second.storage] if t.results or t.end >= second.write]
            for first, one in held:
                uses = [s for s, _, p in one.uses if _together(p, second.path)]
                result = any(_together(path, second.path) for path in one.results)
                late = result or max(uses, default=-1) >= second.write
                if late and one.shares(second) and _together(one.path, second.path):
                    found.append((first, at, None if result else uses[-1]))
            live[second.storage] = [*held, (at, second)]
        return found


def memory_plan(graph: Graph) -> MemoryPlan | None:
    """The memory plan in a graph; None if nothing in it allocates a tensor."""
    plan, paths, places = MemoryPlan(), _paths(graph), dict[str, int]()
    values: dict[str, _Value] = {}
    for at, node in enumerate(graph.nodes):
        path = paths.get(node.id, ())
        read: list[_Value] = [values.get(str(i), _NOTHING) for i in node.inputs]
        if node.op in (*_STORAGES, _OWN):
            places[node.id] = len(plan.storages)
            plan.storages.append((_size(node), path))
        if node.op in _TENSORS:
            held = node.id if node.op == _OWN else (*node.edges, node.id)[0]
            if held not in places:  # for example, a called function allocated it
                places[held] = len(plan.storages)
                plan.storages.append((None, ()))
            offset, kind = node.attrs.get("offset", 0), (*node.outputs, TensorType(("?",), ""))[0]
            known = offset if type(offset) is int else None
            values[node.id] = frozenset([(len(plan.tensors), ())])
            plan.tensors.append(PlannedTensor(places[held], kind, known, len(plan.steps), path))
        elif node.op not in (*_STORAGES, *_ENDS):
            if node.op == "if":
                read[1:] = [_taken(value, (at, k)) for k, value in enumerate(read[1:])]
            values[node.id] = _shown(plan, node, path, read)
    for tensor, taken in _flat([values.get(o, _NOTHING) for o in graph.outputs]):
        plan.tensors[tensor].results.append(taken)
    return plan if plan.tensors else None


def _field(whole: _Value, index: object) -> _Value:
    """A field of a tuple; all of its tensors if the index is unknown."""
    inside = isinstance(whole, list) and type(index) is int and 0 <= index < len(whole)
    return whole[index] if inside else _flat(whole)


def plan_findings(plan: MemoryPlan, graph: Graph) -> list[str]:
    """A sentence for each fault of a plan; steps and storages are counted from 1."""

    def named(step: int) -> str:
        return f"{graph.by_id[plan.steps[step]].title} (step {step + 1})"

    def tensor(at: int) -> str:
        one = plan.tensors[at]
        return f"the {one.type} that {named(one.write) if one.uses else 'nothing'} writes"

    found = []
    for first, second, use in plan.overlaps:
        one = plan.tensors[second]
        where = f"Storage {one.storage + 1} holds two tensors at step {one.write + 1}"
        why = "is a result" if use is None else f"{named(use)} uses last"
        found.append(f"{where}: {tensor(second)} overwrites {tensor(first)}, which {why}.")
    for at in plan.astray:
        where = f"Storage {plan.tensors[at].storage + 1} is allocated in another branch of an `if`"
        found.append(f"{where} than {tensor(at)}, which uses it.")
    return found


def _shown(plan: MemoryPlan, node: Node, path: _Path, read: list[_Value]) -> _Value:
    """Record a node's uses of tensors in storages; return the tensors that its result shows."""
    if node.kind is Kind.TUPLE:
        return read
    if node.kind is Kind.ITEM:
        return _field((*read, _NOTHING)[0], node.attrs.get("index"))
    written = [read[i] for i in _numbers(node, "writes", len(read))]
    uses = {**dict.fromkeys(_flat(read), False), **dict.fromkeys(_flat(written), True)}
    for (tensor, taken), writes in uses.items():
        plan.tensors[tensor].uses.append((len(plan.steps), writes, (*path, *taken)))
    if uses:
        plan.steps.append(node.id)
    if node.body is not None:
        plan.elsewhere += any(n.op in _TENSORS for n in node.body)
    if "writes" in node.attrs:
        return written[0] if len(written) == 1 else written
    if node.op == "if":  # not its condition
        return _either(read[1:])
    return frozenset(uses) if node.outputs else _NOTHING


def _either(branches: list[_Value]) -> _Value:
    """The tensors that a result shows if either of two branches may have run."""
    if all(isinstance(b, list) and len(b) == len(branches[-1]) for b in branches):
        return [_flat([*pair]) for pair in zip(*branches, strict=True)]
    return _flat(branches)


def _paths(graph: Graph) -> dict[str, _Path]:
    """The branches around nodes, the outermost first; an `if` follows the nodes of its branches."""
    paths: dict[str, _Path] = {}
    for at in reversed(range(len(graph.nodes))):
        counts = _numbers(graph.nodes[at], "branches", at + 1)
        for back in range(min(sum(counts), at), 0, -1):
            ident = graph.nodes[at - back].id
            paths[ident] = (*paths.get(ident, ()), (at, int(back <= counts[-1])))
    return paths


def _together(one: _Path, other: _Path) -> bool:
    """Whether one run may reach both."""
    taken = dict(other)
    return all(taken.get(branch, which) == which for branch, which in one)


def _size(node: Node) -> int | None:
    """How many bytes a node allocates; None if unknown, or if it is not plain memory."""
    size = node.attrs.get("total_space", node.attrs.get("size"))
    known = isinstance(size, list) and len(size) == 1 and type(size[0]) is int
    return node.bytes if node.op == _OWN else size[0] if known else None


def _numbers(node: Node, name: str, below: int) -> list[int]:
    """The numbers from 0 to less than `below` in an attribute that lists numbers."""
    given = node.attrs.get(name)
    given = given if isinstance(given, list) else []
    return [n for n in given if type(n) is int and 0 <= n < below]


def _taken(value: _Value, branch: tuple[int, int]) -> _Value:
    """A value that exists only if a branch runs."""
    if isinstance(value, list):
        return [_taken(_flat(v), branch) for v in value]
    return frozenset((tensor, (*path, branch)) for tensor, path in value)


def _flat(value: _Value) -> _Shown:
    """All tensors of a value, those in tuples, too."""
    found, todo, seen = set[tuple[int, _Path]](), [value], set[int]()
    while todo:
        one = todo.pop()
        if isinstance(one, frozenset):
            found |= one
        elif id(one) not in seen:
            seen.add(id(one))
            todo += one
    return frozenset(found)
