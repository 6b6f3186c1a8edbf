"""PyTorch's own joint graph: forward and backward, as its autograd would run them.

As in AOTAutograd, the trace's FX graph runs on tensors without memory, autograd differentiates its
outputs, and `make_fx` records every ATen operator. The core ATen decompositions expand composed
operators. As with TVM's gradient, dropouts are products with masks, and batch norms in train mode
return their new running statistics, so arguments and results are the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch._decomp import core_aten_decompositions
from torch.fx import Graph, Interpreter, Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from relascope.core.errors import EngineError
from relascope.core.graph import GRADIENT_OF
from relascope.engine.pytorch.flat_trace import TraceOrigin
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.nested import apart
from relascope.engine.pytorch.operators.compositions import Supports, compositions, name_of
from relascope.engine.pytorch.operators.forms import in_form
from relascope.engine.pytorch.trace_to_fx import FxTrace, is_mutable
from relascope.engine.relax.frontend.converters import dtype_name

_aten = torch.ops.aten
# Not decomposed: their parts write zeros and then a part of these; Relax has shorter ways.
_WHOLE = (
    _aten.embedding_dense_backward.default,
    _aten.select_backward.default,
    _aten.slice_backward.default,
)
_IN_FORMS = (
    *(_aten.add.Tensor, _aten.cat.default, _aten.index_put.default, _aten.mul.Tensor),
    *(_aten.permute.default, _aten.pow.Tensor_Scalar, _aten.sub.Tensor),
)
"""Operators of which gradients may use a form that Relax lacks."""
_ORIGIN = "relascope_origin"
_UNKNOWN = TraceOrigin("", "", -1)


class JointTrace:
    """Differentiates a forward with PyTorch's autograd. `run` raises EngineError of kind "operator"
    that names the operator and its module, if one changes a tensor in place, or has no gradient.

    `trace` is the forward in operators as PyTorch wrote them, for which autograd has rules. The
    joint graph's nodes have types and origins like the forward's, with "gradient of" an operator
    for its gradient; its arguments are the forward's, then `masks` and `grad_outs`."""

    def __init__(self, model: Model, trace: FxTrace) -> None:
        self.model, self.trace = model, trace
        nodes = list(trace.graph.nodes)
        self.placeholders = [n for n in nodes if n.op == "placeholder"]
        self.constants = [n for n in nodes if n.op == "get_attr"]
        self.calls = [n for n in nodes if n.op == "call_function"]
        self.outputs = list(trace.graph.output_node().args[0])  # type: ignore[arg-type]
        self.floating = [i for i, n in enumerate(self.outputs) if n.meta["val"].is_floating_point()]
        order = {n: i for i, n in enumerate((*model.input_names, *model.parameters))}
        floating = [n.meta["val"].is_floating_point() for n in self.placeholders]
        given = enumerate(zip(trace.arguments, floating, strict=False))
        self.leaves = [(name, i) for i, (name, is_float) in given if name in order and is_float]
        # Gradients are in the order of the program's arguments, not of the trace's.
        self.leaves.sort(key=lambda leaf: order[leaf[0]])
        self.origins = _Origins()

    def run(self, supports: Supports) -> FxTrace:
        values = [n.meta["val"].detach() for n in self.placeholders]
        for _, index in self.leaves:
            values[index].requires_grad_()
        grad_outs = [self.outputs[i].meta["val"].detach() for i in self.floating]
        held = [n.meta["val"].detach() for n in self.constants]
        table = {o: made for o, made in compositions().items() if not supports(name_of(o))}
        table |= core_aten_decompositions()
        table |= {op: in_form(op) for op in _IN_FORMS}
        for op in _WHOLE:
            table.pop(op, None)
        with values[0].fake_mode, torch.enable_grad():
            given = (*values, *grad_outs, *held)
            made = make_fx(self.recorded, decomposition_table=table)(*given)
            changing = [n for n in made.graph.nodes if is_mutable(n)]
            if changing:
                self.check_changes(changing)
                with torch.no_grad():
                    # Autograd's rules and the decompositions may change their own tensors in place.
                    pure = make_fx(torch.func.functionalize(_Again(made).run), table)
                    made = pure(*(v.detach() for v in given))
        return self.as_trace(made, grad_outs)

    def recorded(self, *given: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Run the forward, then its gradients, to be recorded."""
        rest = iter(given)
        env = {node: next(rest) for node in self.placeholders}
        grad_outs = [next(rest) for _ in self.floating]
        env.update(zip(self.constants, rest, strict=True))
        with self.origins:
            for node in self.calls:
                self.origins.current = node.meta["origin"]
                env[node] = self.call(node, env)
                self.origins.claim(env[node])
            outputs = [env[n] for n in self.outputs]
            gradients = self.gradients(outputs, given, grad_outs)
        return outputs, [env[v] for v in self.trace.updates.values()], gradients

    def call(self, node: Node, env: dict[Node, Any]) -> Any:
        args, kwargs = map_arg((node.args, node.kwargs), env.__getitem__)
        try:
            return node.target(*args, **kwargs)  # type: ignore[operator]
        except RuntimeError as wrong:
            self.refuse(node.meta["origin"], f"PyTorch cannot record {node.target}: {wrong}")

    def gradients(
        self, outputs: list[Any], given: tuple[Any, ...], grad_outs: list[Any]
    ) -> list[Any]:
        leaves = [given[index] for _, index in self.leaves]
        try:
            found = self.model.backward(outputs, leaves, grad_outs)
        except RuntimeError as wrong:
            reason = str(wrong).splitlines()[0]
            self.refuse(self.origins.no_gradient, f"PyTorch has no gradient here: {reason}")
        self.origins.current = _UNKNOWN
        return [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(leaves, found, strict=True)
        ]

    def as_trace(self, traced: Any, grad_outs: list[Any]) -> FxTrace:
        """The recorded graph, with its constant tensors as nodes."""
        graph: Graph = traced.graph
        graph.eliminate_dead_code()
        constants = dict(self.trace.constants)
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        arguments = len(placeholders) - len(self.constants)
        for old, source in zip(placeholders[arguments:], self.constants, strict=True):
            with graph.inserting_before(old):
                new = graph.create_node("get_attr", str(source.target))
            new.meta.update(source.meta)
            old.replace_all_uses_with(new)
            graph.erase_node(old)
        for node in graph.nodes:
            if node.op == "get_attr" and "origin" not in node.meta:  # made by a decomposition
                tensor = getattr(traced, str(node.target))
                constants[str(node.target)] = tensor
                node.meta.update(val=tensor, origin=_UNKNOWN)
        results: Any = graph.output_node().args[0]
        outputs, updates, gradients = results
        graph.output_node().args = (tuple(outputs),)
        names = (f"grad_out_{i}" for i in self.floating)
        named = apart(names, {*self.trace.arguments, *(m.name for m in self.trace.masks)})
        types = ((tuple(g.shape), dtype_name(g.dtype)) for g in grad_outs)
        return replace(
            self.trace,
            graph=graph,
            constants=constants,
            updates=dict(zip(self.trace.updates, updates, strict=True)),
            grad_outs=dict(zip(named, types, strict=True)),
            gradients={n: g for (n, _), g in zip(self.leaves, gradients, strict=True)},
        )

    def check_changes(self, changing: list[Node]) -> None:
        """Refuse to change an argument, because a program must leave it unchanged."""
        for node in changing:
            changed: Any = node
            while is_mutable(changed) or getattr(changed.target, "is_view", False):
                changed = changed.args[0]
            if changed.op == "placeholder":
                message = f"{node.target} changes an input, parameter or buffer in place."
                hint = "Use nn.BatchNorm for running statistics, or TVM's gradient."
                self.refuse(node.meta["origin"], message, hint)

    def refuse(self, origin: TraceOrigin, message: str, hint: str = "") -> NoReturn:
        raise EngineError("operator", message, origin.where, hint)


class _Origins(TorchDispatchMode):
    """Gives every recorded operator its origin. It sees operators between autograd and their
    decomposition: in a forward, under the trace's current node, whose origin is `current`; in a
    backward, under the autograd node made for one of those. `no_gradient` is the origin of the
    first operator without a rule in autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.current = _UNKNOWN
        self.no_gradient = _UNKNOWN

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        origin = self.current
        running: Any = torch._C._current_autograd_node()
        if running is not None:
            forward = running.metadata.get(_ORIGIN, _UNKNOWN)
            origin = replace(forward, operator=GRADIENT_OF + forward.operator, further=False)
        with _marking(origin):
            return func(*args, **(kwargs or {}))

    def claim(self, value: Any) -> None:
        """Assign all that autograd has made since the last call to the current node."""
        todo: list[Any] = [v.grad_fn for v in tree_leaves(value) if isinstance(v, torch.Tensor)]
        while todo:
            made = todo.pop()
            if made is None or _ORIGIN in made.metadata:
                continue
            made.metadata[_ORIGIN] = self.current
            if made.name() == "NotImplemented" and self.no_gradient is _UNKNOWN:
                self.no_gradient = self.current
            todo += [before for before, _ in made.next_functions]


@contextmanager
def _marking(origin: TraceOrigin) -> Iterator[None]:
    """Gives what is recorded meanwhile its origin."""
    mode = get_proxy_mode()
    assert mode is not None, "only recorded operators come here"
    root = mode.tracer.graph._root  # of a ring of nodes
    before = root.prev
    yield
    node = root.prev
    while node is not before:
        node.meta["origin"] = origin
        node = node.prev


class _Again(Interpreter):
    """Runs a recorded graph, to be recorded again with the same origins."""

    def run_node(self, n: Node) -> Any:
        with _marking(n.meta.get("origin", _UNKNOWN)):
            return super().run_node(n)
