"""Compare tensors inside a program with those inside PyTorch's run of the model, for either IR.

A backend names the PyTorch operator that each node came from, and makes a program that returns the
inner tensors. Each shown node is kept, so little is fused. The counterparts of nodes are:

- For the last node of its type that came from an operator, the operator's result.
- For gradients that the program returns, the gradient of the same tensor.
- For other nodes of the backward, a gradient inside PyTorch with the same numbers but for rounding.
  A node without one is not called wrong: the two may compute differently on the way.
- For other nodes of a split program, the same node of the function built whole.
- For a program that came without PyTorch, the same in the import, run operator by operator."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Protocol

import torch

from relascope.core.graph import Graph, Kind, Node, Role, TensorType
from relascope.core.identity import own_key
from relascope.engine.building.executables import Executable, Tensors
from relascope.engine.building.options import Function
from relascope.engine.measure.compare import Built, comparison, gradient_floor
from relascope.engine.measure.difference import scale_of
from relascope.engine.protocol.accuracy import AS_IMPORTED, WHOLE, Comparison, NodeError
from relascope.engine.pytorch.inputs.tensors import tensor_type
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.reference import Reference
from relascope.passes.cuts.split_program import SplitProgram

Counterparts = Mapping[str, tuple[str, torch.Tensor]]
"""By a node's id, its counterpart's name and tensor."""

# Relative to scale: tensors nearer than this are the same but for rounding. A much larger limit
# would confuse gradients that differ by a small term.
_NEAR = {torch.float32: 1e-4, torch.float64: 1e-10}


class InsideBackend(Protocol):
    """What an IR supplies to show the inside of a program."""

    def build(self, program: Any, split: SplitProgram | None, target: str) -> Executable:
        """Build a program whole, or as the two functions it was split into."""

    def with_intermediates(self, program: Any, name: str, exprs: Sequence[Any]) -> Any:
        """The program that returns these expressions of one of its functions."""

    def can_show(self, expr: Any) -> bool:
        """Whether `with_intermediates` can return an expression."""


@dataclass(frozen=True)
class Intermediates:
    """A function to look into, with tensors that it reads beside the model's (`given`), and the
    names of the tensors whose `gradients` its last results are."""

    function: Function
    masks: Tensors
    given: Tensors
    gradients: tuple[str, ...]


def values_inside(
    backend: InsideBackend, model: Model, inside: Intermediates, target: str
) -> Tensors:
    """Every tensor that a function computes, by its node's id."""
    function = inside.function
    exprs = shown_in(backend, function)
    if not exprs:
        return {}
    shown = backend.with_intermediates(function.program, function.name, list(exprs.values()))
    built = Built(model, shown, backend.build(shown, None, target), None, 0.0)
    results, _ = built.forward({**inside.masks, **inside.given})
    return dict(zip(exprs, results, strict=True))


def shown_in(backend: InsideBackend, function: Function) -> dict[str, Any]:
    """The IR's expressions of the nodes whose tensors can be shown, by id."""
    exprs = {n.id: function.exprs[n.id] for n in function.graph if _is_shown(n)}
    return {ident: expr for ident, expr in exprs.items() if backend.can_show(expr)}


def _is_shown(node: Node) -> bool:
    return (
        node.kind in (Kind.CALL, Kind.FUNCTION, Kind.ITEM)
        and len(node.outputs) == 1
        and node.outputs[0].elements is not None
    )


def compare_inside(
    inside: Intermediates,
    values: Tensors,
    results: Counterparts,
    reference: Reference,
    whole: Tensors,
) -> tuple[NodeError, ...]:
    """Compare every node with its counterpart, in graph order. `values` are from `values_inside`,
    `results` from `results_in` of the whole function; `whole` are tensors of the same nodes in the
    function built whole, empty if it is that function."""
    theirs = dict(results)
    known = dict(reference.gradients)
    against: dict[str, float] = {}
    graph, names = inside.function.graph, inside.gradients
    if names:
        floor = gradient_floor(scale_of(known[n]) for n in names if n in known)
        for ident, name in zip(graph.outputs[-len(names) :], names, strict=True):
            gradient = known.get(name)
            if gradient is not None and ident in values:
                theirs[ident] = f"gradient of {name}", gradient
                against[ident] = max(scale_of(gradient), floor)
    gradients = ((f"gradient of {name}", t) for name, t in reference.gradients)
    nearest = _Nearest([*gradients, *reference.others])
    found = []
    for node in graph:
        ours = values.get(node.id)
        if ours is None:
            continue
        counterpart = theirs.get(node.id) or nearest.of(ours)
        if counterpart is None and node.id in whole:
            counterpart = WHOLE, whole[node.id]
        if counterpart is not None:
            (name, tensor), scale = counterpart, scale_of(counterpart[1])
            error = comparison(name, ours, tensor, scale, against.get(node.id, scale))
            found.append(NodeError(node.id, error.max_abs, error.max_rel, name, error.spread))
    return tuple(found)


def compare_captures(captures: Tensors, results: Counterparts) -> tuple[Comparison, ...]:
    """Compare captures with PyTorch's tensors, where PyTorch has them, too."""
    found = []
    for ident in (i for i in captures if i in results):
        theirs, scale = results[ident][1], scale_of(results[ident][1])
        found.append(comparison(f"capture {ident}", captures[ident], theirs, scale, scale))
    return tuple(found)


def results_in(graph: Graph, ordinals: Mapping[str, int], reference: Reference) -> Counterparts:
    """PyTorch's result for each node that is the result of an operator. `graph` is of the whole
    function. `ordinals` give, by node id, the place of its operator in PyTorch's order of
    execution; -1 - n for a node that a pass made of operator n, whose result is then unknown."""
    unsure = {-1 - o for n in graph if (o := ordinals.get(n.id, 0)) < 0}
    last: dict[tuple[int, TensorType, int | None], str] = {}
    for node in graph:
        ordinal = ordinals.get(node.id)
        if not _is_shown(node) or ordinal not in reference.results or ordinal in unsure:
            continue
        assert ordinal is not None
        item = int(node.attrs["index"]) if node.kind is Kind.ITEM else None
        single = len(reference.results[ordinal][1]) == 1
        last[ordinal, node.outputs[0], None if single else item] = node.id
    found: dict[str, tuple[str, torch.Tensor]] = {}
    for (ordinal, kind, item), ident in last.items():
        origin, results = reference.results[ordinal]
        index = 0 if len(results) == 1 else item
        if index is not None and index < len(results) and tensor_type(results[index]) == kind:
            found[ident] = origin.origin.place, results[index]
    return found


@dataclass(frozen=True)
class ImportedRun:
    """The inner tensors of one run of an imported program, or of that with its gradient;
    `gradients` names the tensors whose gradients its last results are."""

    graph: Graph
    values: Tensors
    gradients: tuple[str, ...]

    @property
    def reference(self) -> Reference:
        """The tensors by whose numbers nodes are recognised."""
        graph, names = self.graph, self.gradients
        ends = zip(graph.outputs[len(graph.outputs) - len(names) :], names, strict=True)
        gradients = tuple((n, self.values[i]) for i, n in ends if i in self.values)
        others = tuple((_as_imported(graph.by_id[i]), t) for i, t in self.values.items())
        return Reference({}, gradients, others)

    def counterparts(self, graph: Graph, ends: bool) -> Counterparts:
        """Nodes of a later program that are computed here in the same way from the same arguments;
        and the results, if these are the model's (`ends`), not values on the way to a gradient."""
        found: dict[str, tuple[str, torch.Tensor]] = {}
        if ends:
            pairs = zip(graph.outputs[: graph.forward_outputs], self.graph.outputs, strict=False)
            for index, (ident, own) in enumerate(pairs):
                if own in self.values:
                    found[ident] = f"output {index}{AS_IMPORTED}", self.values[own]
        same: set[str] = set()
        for node in graph:
            own_node = self.graph.by_id.get(node.id)
            if own_node is None or not same.issuperset(node.edges):
                continue
            about = (*own_key(node), node.inputs, node.body)
            if about == (*own_key(own_node), own_node.inputs, own_node.body):
                same.add(node.id)
                if node.id in self.values:
                    found[node.id] = _as_imported(node), self.values[node.id]
        return found


def _as_imported(node: Node) -> str:
    within = f" in {node.scope}" if node.scope else ""
    backward = "gradient of the program, at " if node.role is Role.BACKWARD else ""
    return f"{backward}{node.title}{within}{AS_IMPORTED}"


_Printed = tuple[float, str, torch.Tensor]


class _Nearest:
    """Finds the tensor with the same numbers, whatever their shape."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._weights: dict[int, torch.Tensor] = {}
        self._by_kind: dict[tuple[int, torch.dtype], list[_Printed]] = defaultdict(list)
        for name, tensor in tensors:
            if scale_of(tensor) > 0:
                kind = tensor.numel(), tensor.dtype
                self._by_kind[kind].append((self._print(tensor), name, tensor))

    def _print(self, tensor: torch.Tensor) -> float:
        """A number that distinguishes tensors: a weighted sum with fixed random weights."""
        count = tensor.numel()
        if count not in self._weights:
            generator = torch.Generator().manual_seed(count)
            self._weights[count] = torch.randn(count, generator=generator, dtype=torch.float64)
        return float(tensor.detach().cpu().double().flatten() @ self._weights[count])

    def of(self, ours: torch.Tensor) -> tuple[str, torch.Tensor] | None:
        """The name of the nearest tensor, and the tensor in our shape; None if none is near."""
        known = self._by_kind.get((ours.numel(), ours.dtype))
        if not known:
            return None
        own, found = self._print(ours), []
        for _, name, tensor in nsmallest(2, known, key=lambda one: abs(one[0] - own)):
            tensor, scale = tensor.reshape(ours.shape), scale_of(tensor)
            error = comparison(name, ours, tensor, scale, scale, False).max_rel
            if error <= _NEAR.get(ours.dtype, 0.0):
                found.append((error, name, tensor))
        return min(found, key=lambda one: one[0])[1:] if found else None
