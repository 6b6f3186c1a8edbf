"""In-place changes of a trace, rewritten as operators that make new tensors.

TVM's IRs are pure. A trace reads the result of `x.add_(1)` under a new name from there on, so the
pure operator means the same unless an earlier view sees the storage. Then the written tensor is put
back into its base, and views are taken anew, as torch.func.functionalize does.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import torch
from networkx.utils import UnionFind

from relascope.core.errors import EngineError
from relascope.engine.pytorch.flat_trace import FlatTrace, TraceOrigin

# Any operator with a new result can stand between an input and its readers.
_COPY = "aten::neg"
_SCATTERS = {
    "aten::narrow": "aten::slice_scatter",
    "aten::slice": "aten::slice_scatter",
    "aten::select": "aten::select_scatter",
    "aten::diagonal": "aten::diagonal_scatter",
}
"""By view of a part of a tensor: the operator that puts the part back, with the same arguments."""
_SAME_ELEMENTS = "alias view view_as unsqueeze squeeze unflatten reshape flatten"
_RESHAPED = tuple(f"aten::{name}" for name in _SAME_ELEMENTS.split())
"""Views of all elements in their order; the last two only where memory allows."""
_TURNED = ("aten::transpose", "aten::t", "aten::numpy_T", "aten::mT", "aten::permute")
_READ = ("aten::expand", "aten::expand_as", "aten::detach")
"""Views through which nothing is written here."""
_VIEWS = (*_SCATTERS, *_RESHAPED, *_TURNED, *_READ)
_DRAWS = "normal uniform bernoulli random exponential geometric log_normal cauchy dropout"
_NO_WRITES = "set resize resize_as t transpose squeeze unsqueeze detach requires_grad swapaxes"
_TURNS = {f"aten::{name}_" for name in ("t", "transpose", "squeeze", "unsqueeze", "swapaxes")}
_IMPURE = {f"aten::{name}_" for name in f"{_DRAWS} {_NO_WRITES}".split()}
_OF_SHAPE = ("aten::size", "aten::dim", "aten::numel", "aten::len")
"""Operators that read only a tensor's shape, which no change of values affects."""
_SAME_VALUE = ("aten::lift_fresh", "aten::lift_fresh_copy", "aten::detach", "aten::clone")
_OF_BOOL = "eq ne lt le gt ge less greater less_equal greater_equal not_equal logical_not"
_OF_BOOL += " logical_and logical_or logical_xor"
"""Operators whose result is bool, and is cast when written in place."""
_HINT = "Write it out of place (x = x + y for x += y, torch.cat, torch.where)."
LEFT = (
    "The model changes {name} in place ({where}). The program computes with the change, but "
    "does not change the tensor itself."
)


def changes_in_place(kind: str) -> bool:
    return kind.startswith("aten::") and kind.endswith("_") and not kind.endswith("__")


def seen_elsewhere(flat: FlatTrace) -> Iterator[tuple[str, str, str, str]]:
    """In-place changes that something sees by another name than the change's result: the result's
    debug name; name and operator of a later read, or "" and "" if only an argument of the trace is
    changed; and that argument's name, or ""."""
    graph, arguments = _with_copied_inputs(flat)
    nodes = [*graph.nodes(), graph.return_node()]
    aliases = graph.alias_db()
    groups = _groups(nodes, aliases)
    order = {v.debugName(): i for i, n in enumerate(nodes) for v in n.outputs()}
    own = {a.debugName(): a.node().inputsAt(0).debugName() for a in arguments.values()}
    given, reads = defaultdict(list), defaultdict(list)
    for name, argument in arguments.items():
        given[groups[argument.debugName()]].append((name, argument))
    for index, node in enumerate(nodes):
        for value in filter(_is_tensor, () if node.kind() in _OF_SHAPE else node.inputs()):
            reads[groups[value.debugName()]].append((index, node.kind(), value))
    for index, node in enumerate(nodes):
        if not changes_in_place(node.kind()):
            continue
        name, target = node.output().debugName(), node.inputsAt(0)
        group = groups[target.debugName()]
        into = (n for n, a in given[group] if aliases.may_contain_alias(a, target))
        if changed := next(into, ""):
            yield name, "", "", changed
        for later, reader, value in reads[group]:
            before = order.get(value.debugName(), -1) < index < later
            if before and aliases.may_contain_alias(value, target):
                yield name, own.get(value.debugName(), value.debugName()), reader, changed


def _groups(nodes: Sequence[Any], aliases: Any) -> UnionFind:
    """Groups of tensors, by debug name, that may share storage, directly or through others. Only an
    operator's results are compared with its arguments."""
    found = UnionFind()
    for node in nodes:
        made_anew = node.kind().startswith("aten::") and _is_new(node.schema())
        for made, read in () if made_anew else product(node.outputs(), node.inputs()):
            if _may_share(made) and _may_share(read) and aliases.may_contain_alias(made, read):
                found.union(made.debugName(), read.debugName())
    return found


@cache
def _is_new(schema: str) -> bool:
    """Whether an operator's results share no storage with its arguments. PyTorch assumes that
    members of a list, such as einsum's or index's, alias each other."""
    return all(r.alias_info is None for r in torch._C.parse_schema(schema).returns)


def _may_share(value: Any) -> bool:
    return value.type().kind() in ("TensorType", "ListType", "TupleType")


def _with_copied_inputs(flat: FlatTrace) -> tuple[Any, dict[str, Any]]:
    """A copy of the graph whose inputs are copied first, and the copies by the inputs' names.

    torch's alias analysis assumes that any two inputs alias, and also the parts of `unsafe_chunk`
    and its like (GRUCell, LSTMCell), which PyTorch promises to be independent.
    """
    graph = flat.graph.copy()
    first = next(iter(graph.nodes()))
    copies = {}
    for name, value in zip((*flat.input_names, *flat.tensors), graph.inputs(), strict=True):
        if not value.uses():
            continue
        clone = graph.create(_COPY, [value], 1)
        clone.insertBefore(first)
        value.replaceAllUsesAfterNodeWith(clone, clone.output())
        copies[name] = clone.output()
    for node in [n for n in graph.nodes() if n.kind() == "prim::ListUnpack"]:
        if node.inputsAt(0).node().kind().startswith("aten::unsafe_"):
            for part in node.outputs():
                clone = graph.create(_COPY, [part], 1)
                clone.insertAfter(node)
                part.replaceAllUsesAfterNodeWith(clone, clone.output())
    _take_lists_apart(graph)
    return graph, copies


def _take_lists_apart(graph: Any) -> None:
    """Copy members of lists that only operators with new results read, such as einsum: torch's
    alias analysis assumes that they alias each other."""
    nodes = list(graph.nodes())
    order = {node: i for i, node in enumerate(nodes)}
    writes = [order[n] for n in nodes if changes_in_place(n.kind())]
    for node in graph.findAllNodes("prim::ListConstruct", recurse=False):
        users, made = [use.user for use in node.output().uses()], order[node]
        until = max((order.get(u, len(nodes)) for u in users), default=made)
        if any(made < w < until for w in writes):
            continue
        if all(u.kind().startswith("aten::") and _is_new(u.schema()) for u in users):
            for index, member in enumerate(list(node.inputs())):
                if _is_tensor(member):
                    clone = graph.create(_COPY, [member], 1)
                    clone.insertBefore(node)
                    node.replaceInput(index, clone.output())


def _is_tensor(value: Any) -> bool:
    return bool(value.type().kind() == "TensorType")


def check_in_place(flat: FlatTrace, buffers: Collection[str], note: Callable[[str], None]) -> None:
    """Refuse (kind "operator") a change in place that something reads through another view. A
    change of anything but a whole buffer is noted: the program computes with it, but leaves the
    tensor unchanged."""
    changing = [n for n in flat.graph.nodes() if changes_in_place(n.kind())]
    if not changing:
        return
    nodes = {n.output().debugName(): n for n in changing}
    known = changed_buffers(flat, buffers)
    for name, read, reader, changed in seen_elsewhere(flat):
        node = nodes[name]
        where = flat.origin(node).where
        if read:
            message = f"{node.kind()} changes a tensor in place, and {reader} later reads it"
            message += " through another view; TVM's IRs cannot express such a change."
            raise EngineError("operator", message, where, _HINT)
        if known.get(name) != changed:
            note(LEFT.format(name=changed, where=where))


def changed_buffers(flat: FlatTrace, buffers: Collection[str]) -> dict[str, str]:
    """The names of buffers that are changed in place as a whole, such as a counter of batches, by
    the debug name of the operator's result, which is the new value."""
    owner = {v.debugName(): name for name, v in flat.arguments.items() if name in buffers}
    found = {}
    for node in flat.graph.nodes():
        if changes_in_place(node.kind()):
            name = owner.get(node.inputsAt(0).debugName())
            if name is not None:
                found[node.output().debugName()] = owner[node.output().debugName()] = name
    return found


def without_writes(flat: FlatTrace, buffers: Collection[str]) -> list[str]:
    """Rewrite a trace's changes in place as pure operators if something else sees the storage. If
    one cannot be rewritten, the trace stays. A partly written buffer changes as a whole, at the
    end. Returns sentences for people about the inputs and parameters that are changed."""
    for node in list(flat.graph.nodes()):
        _turn(flat.graph, node)
    if any(changes_in_place(n.kind()) for n in flat.graph.nodes()):
        return _InPlaceRewriter(flat, buffers).run()
    return []


def _turn(graph: Any, node: Any) -> None:
    """Replace an in-place change of shape by a view, if nothing reads its argument later."""
    if node.kind() not in _TURNS or node.inputsAt(0).node().kind() == "prim::Param":
        return
    if any(use.user.isAfter(node) for use in node.inputsAt(0).uses()):
        return
    view = graph.create(node.kind()[:-1], list(node.inputs()), 1)
    view.insertBefore(node)
    view.output().setType(node.output().type())
    name = node.output().debugName()
    node.output().replaceAllUsesWith(view.output())
    node.destroy()
    view.output().setDebugName(name)


class _InPlaceRewriter:
    """Walks a trace once. By debug name, `steps` has the node of a view and the tensor that it
    views, likewise of a change in place; `now` the current value of a written tensor, valid where
    `at`, the number of writes into the root that it includes, says so; `writes` the number of
    writes into a root so far, and `first` the origin of its first write; `roots` the root of a
    view, once known."""

    def __init__(self, flat: FlatTrace, buffers: Collection[str]) -> None:
        self.flat, self.graph, self.buffers = flat, flat.graph, buffers
        self.arguments = {v.debugName(): n for n, v in flat.arguments.items()}
        self.nodes = list(self.graph.nodes())
        self.values = {v.debugName(): v for n in self.nodes for v in n.outputs()}
        self.values |= {v.debugName(): v for v in self.graph.inputs()}
        self.steps = {n: s for n, v in self.values.items() if (s := _step(v)) is not None}
        self.now: dict[str, Any] = {}
        self.at: dict[str, int] = {}
        self.writes: Counter[str] = Counter()
        self.first: dict[str, TraceOrigin] = {}
        self.roots: dict[str, str | None] = {}

    def run(self) -> list[str]:
        """Rewrite the trace, or leave it; returns sentences for people."""
        wanted = self.wanted()
        into = {n: n.inputsAt(0).debugName() for n in self.nodes if changes_in_place(n.kind())}
        ways = {n: t for n, t in into.items() if self.root(t) in wanted}
        if not all(_pure(n.kind()) and self.is_writable(t) for n, t in ways.items()):
            return []
        for node in (*self.nodes, self.graph.return_node()):
            self.refresh(node)
            if node in ways:
                self.write(node, ways[node])
            for value in node.outputs():
                if (root := self.root(value.debugName())) is not None:
                    self.at.setdefault(value.debugName(), self.writes[root])
        for node in reversed(ways):
            node.destroy()
        said = []
        for root in self.writes:
            owner = self.arguments.get(root)
            if owner in self.buffers:
                end = self.graph.return_node()
                given = [self.values[root], self.now[root], self.constant(False, end)]
                self.add("aten::copy_", given, None, end, self.first[root])
            elif owner is not None:
                said.append(LEFT.format(name=owner, where=self.first[root].where))
        return said

    def wanted(self) -> set[str]:
        """The roots of what is written and seen elsewhere; none if that is not understood."""
        found = set()
        for name, read, _, changed in seen_elsewhere(self.flat):
            target = self.values[name].node().inputsAt(0).debugName()
            root = self.root(target)
            if read and (root is None or self.root(read) != root):
                return set()
            if root is not None and (read or (changed in self.buffers and root != target)):
                found.add(root)
        copies = (n for n in self.nodes if n.kind() == "aten::copy_")
        found |= {r for n in copies if (r := self.root(n.inputsAt(0).debugName())) is not None}
        return found

    def root(self, name: str) -> str | None:
        """The tensor that a tensor is a view of; None if that is not known."""
        path, found = [], name or None
        while found is not None and found in self.steps and found not in self.roots:
            path.append(found)
            found = self.steps[found][1]
        found = found and self.roots.get(found, found)
        self.roots.update(dict.fromkeys(path, found))
        return found

    def is_writable(self, name: str) -> bool:
        while name in self.steps:
            node, parent = self.steps[name]
            if parent is None or node.kind() in _READ:
                return False
            name = parent
        return True

    def refresh(self, node: Any) -> None:
        """Make a node read its arguments' current values."""
        for index, value in enumerate(list(node.inputs())):
            made = value.node()
            if made.kind() == "prim::ListConstruct":
                parts = [(v, self.read(v, node)) for v in made.inputs()]
                if any(new is not old for old, new in parts):
                    listed = self.add(made.kind(), [new for _, new in parts], value, node)
                    node.replaceInput(index, listed)
            elif (new := self.read(value, node)) is not value:
                node.replaceInput(index, new)

    def read(self, value: Any, before: Any) -> Any:
        """The current value of a tensor of the trace."""
        name = value.debugName()
        root = self.root(name) or ""
        if root not in self.writes or self.at.get(name, 0) == self.writes[root]:
            return self.now.get(name, value)
        node, parent = self.steps[name]
        source = self.read(self.values[parent], before)
        if node.kind() in _VIEWS:
            given = [source, *list(node.inputs())[1:]]
            source = self.add(node.kind(), given, value, before, self.flat.origin(node))
        elif node.kind() == "aten::unbind":
            given, origin = self.selected(source, node, value), self.flat.origin(node)
            source = self.add("aten::select", given, value, before, origin)
        self.now[name], self.at[name] = source, self.writes[root]
        return source

    def selected(self, source: Any, unbind: Any, part: Any) -> list[Any]:
        names = [v.debugName() for v in part.node().outputs()]
        self.graph.setInsertPoint(part.node())
        index = self.graph.insertConstant(names.index(part.debugName()))
        return [source, unbind.inputsAt(1), index]

    def write(self, node: Any, target: str) -> None:
        path, name = [], target
        while name in self.steps:
            step, parent = self.steps[name]
            path.append((name, step, self.read(self.values[str(parent)], node)))
            name = str(parent)
        root = name
        self.first.setdefault(root, self.flat.origin(node))
        # The first operator stands for the change; the others are further ones.
        first = f"n{self.flat.ordinal}_0"
        made = self.changed(node)
        self.flat.origins[first] = replace(self.flat.origins[first], further=False)
        self.writes[root] += 1
        path.insert(0, (node.output().debugName(), node, self.values[target]))
        for name, step, whole in path:
            self.now[name], self.at[name] = made, self.writes[root]
            made = self.put_back(step, self.values[name], whole, made, node)
        self.now[root], self.at[root] = made, self.writes[root]
        node.output().replaceAllUsesWith(self.values[target])

    def changed(self, node: Any) -> Any:
        """The result of a change in place, as a new tensor of its first argument's dtype."""
        old, *rest = node.inputs()
        kind, given = node.kind(), rest[0] if rest else self.constant(0, node)
        if kind in ("aten::copy_", "aten::fill_", "aten::zero_"):
            source = given
            while source.node().kind() in _SAME_VALUE:
                source = source.node().inputsAt(0)
            number = source.toIValue()
            if isinstance(number, torch.Tensor) and not number.dim():
                number = number.item()
            if isinstance(number, bool | int | float):
                given = self.constant(int(number) if isinstance(number, bool) else number, node)
                none = self.constant(None, node)
                return self.add("aten::full_like", [old, given, *[none] * 5], old, node)
            made = self.add("aten::expand_as", [given, old], None, node)
            return self.add("aten::type_as", [made, old], old, node)
        dtypes = {v.type().dtype() for v in (old, *rest) if _is_tensor(v)}
        if len(dtypes) == 1 and None not in dtypes and kind[6:-1] not in _OF_BOOL.split():
            return self.add(kind[:-1], [old, *rest], old, node)
        made = self.add(kind[:-1], [old, *rest], None, node)
        return self.add("aten::type_as", [made, old], old, node)

    def put_back(self, step: Any, part: Any, whole: Any, made: Any, before: Any) -> Any:
        """`whole` with `made` in place of its view `part`, which `step` made of it."""
        kind, rest = step.kind(), list(step.inputs())[1:]
        if kind == "aten::narrow":
            begin, length = rest[1].toIValue(), rest[2].toIValue()
            rest = [rest[0], rest[1], *[self.constant(n, before) for n in (begin + length, 1)]]
        if kind in _SCATTERS:
            return self.add(_SCATTERS[kind], [whole, made, *rest], whole, before)
        if kind == "aten::unbind":
            whole_and = self.selected(whole, step, part)
            return self.add("aten::select_scatter", [whole, made, *whole_and[1:]], whole, before)
        if kind in _RESHAPED:
            return self.add("aten::reshape_as", [made, whole], whole, before)
        if kind == "aten::permute":
            given = rest[0].toIValue() or [v.toIValue() for v in rest[0].node().inputs()]
            axes = [int(a) for a in given]
            back = sorted(range(len(axes)), key=lambda i: axes[i] % len(axes))
            listed = [self.constant(axis, before) for axis in back]
            turned = self.add("prim::ListConstruct", listed, rest[0], before)
            return self.add(kind, [made, turned], whole, before)
        return self.add(kind, [made, *rest], whole, before) if kind in _TURNED else made

    def constant(self, value: Any, before: Any) -> Any:
        self.graph.setInsertPoint(before)
        return self.graph.insertConstant(value)

    def add(
        self, kind: str, given: list[Any], like: Any, before: Any, origin: TraceOrigin | None = None
    ) -> Any:
        """A new node's result, of the type of `like` if that is given; without an origin, it gets
        that of `before`."""
        origin = replace(origin or self.flat.origin(before), further=True)
        made = self.flat.insert(kind, given, before, origin)
        if like is not None:
            made.setType(like.type())
        return made


def _step(value: Any) -> tuple[Any, str | None] | None:
    """The node that makes a view, and its base, if known; None if it is no view."""
    node = value.node()
    if node.kind() == "prim::ListUnpack":
        node = node.input().node()
        return (node, node.inputsAt(0).debugName()) if node.kind() == "aten::unbind" else None
    if not (changes_in_place(node.kind()) or node.kind() in _VIEWS):
        return None
    source = node.inputsAt(0)
    if node.kind() in ("aten::reshape", "aten::flatten"):
        size, strides = source.type().sizes(), source.type().strides()
        if size is None or strides is None or value.type().sizes() is None:
            return node, None
        lying = torch.empty_strided(size, strides, device="meta")
        if lying.reshape(value.type().sizes())._base is None:
            return None
    return node, source.debugName()


def _pure(kind: str) -> bool:
    if kind in _IMPURE:
        return False
    return kind in ("aten::copy_", "aten::zero_") or hasattr(torch.ops.aten, kind[6:-1])
