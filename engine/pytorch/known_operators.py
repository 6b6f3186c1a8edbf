"""A flat trace in which operators that a frontend does not know are written with others."""

import operator
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from relascope.core.errors import EngineError
from relascope.engine.files.operators import DYNAMIC_INT8
from relascope.engine.pytorch.flat_trace import FlatTrace, TraceOrigin
from relascope.engine.pytorch.in_place import changed_buffers
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.operators.chosen_rows import ChosenRows
from relascope.engine.pytorch.operators.complex_pairs import ComplexPair
from relascope.engine.pytorch.operators.forms import OPTIONS, form_of, may_have_form
from relascope.engine.pytorch.operators.number_formats import dtypes_of, widens
from relascope.engine.pytorch.trace_to_fx import FxTrace, trace_to_fx
from relascope.engine.pytorch.unlike import unknown

_PLACES = ("device", "layout", "memory_format", "pin_memory")  # programs choose them themselves


def in_known_operators(model: Model, known: Callable[[str], bool], frontend: str) -> FlatTrace:
    """The trace of a model, its unknown operators replaced by what PyTorch composes them of.

    What replaces an operator has its origin. Known operators stay as they are, and so does the
    model's own trace.

    Args:
        known, frontend: as `trace_to_fx` takes them.

    Raises:
        EngineError: kind "operator"; an operator that PyTorch does not compose of known ones.
    """
    flat = model.flat
    others = {
        flat.origin(n).ordinal
        for n in flat.graph.nodes()
        if not known(_name(n))
        or n.kind() in DYNAMIC_INT8
        or _widens(n)
        or _has_form(n, model.differentiable)
    }
    if not others:
        return flat
    for name in changed_buffers(model.flat, model.buffers):
        if (origin := flat.origins[name]).ordinal in others:
            message, hint = unknown(frontend, origin.operator)
            raise EngineError("operator", message, origin.where, hint)
    trace = trace_to_fx(model, known, frontend)
    others |= _on_no_tensors(flat, trace)
    writer = _TraceWriter(replace(flat, graph=flat.graph.copy(), origins=dict(flat.origins)), trace)
    parts = _parts(trace)
    for value in writer.graph.inputs():
        writer.note(value)
    for node in list(writer.graph.nodes()):
        origin = flat.origin(node)
        if origin.ordinal in others:
            writer.replace(node, origin, parts[origin.ordinal])
        else:
            for value in node.outputs():
                writer.note(value)
    torch._C._jit_pass_dce(writer.graph)
    return writer.flat


def _on_no_tensors(flat: FlatTrace, trace: FxTrace) -> set[int]:
    """Ordinals of the operators that read or make complex tensors, or what a mask chooses."""
    pairs = {n for n, v in trace.values.items() if isinstance(v, ComplexPair | ChosenRows)}
    return {
        flat.origin(n).ordinal
        for n in flat.graph.nodes()
        if any(v.debugName() in pairs for v in (*n.inputs(), *n.outputs()))
    }


def _parts(trace: FxTrace) -> dict[int, list[Node]]:
    parts: dict[int, list[Node]] = defaultdict(list)
    for part in trace.graph.nodes:
        if part.op in ("call_function", "get_attr"):
            parts[part.meta["origin"].ordinal].append(part)
    return parts


class _TraceWriter:
    """Writes parts of an FX graph, of `trace`, into a flat trace, which is changed."""

    def __init__(self, flat: FlatTrace, trace: FxTrace) -> None:
        self.flat, self.trace, self.graph = flat, trace, flat.graph
        self.values: dict[Any, Any] = {}
        self.origin = TraceOrigin("", "", -1)
        self.count = 0

    def note(self, value: Any) -> None:
        """Keep what a value of the flat graph is in the FX graph."""
        if isinstance(became := self.trace.values.get(value.debugName()), Node):
            self.values.setdefault(became, value)

    def replace(self, node: Any, origin: TraceOrigin, parts: list[Node]) -> None:
        self.origin = origin
        self.graph.setInsertPoint(node)
        for part in parts:
            if part.op == "get_attr":
                self.values[part] = self.value(self.trace.constants[str(part.target)])
            elif part.target is not operator.getitem:
                self.call(part)
        for output in node.outputs():
            made = self.trace.values[output.debugName()]
            if isinstance(made, ComplexPair | ChosenRows):  # what reads it is replaced, too
                made = made[0] if isinstance(made, ComplexPair) else made.tensor
            output.replaceAllUsesWith(self.value(made))
        node.destroy()

    def call(self, part: Node) -> None:
        schema: Any = part.target._schema  # type: ignore[union-attr]
        given = dict(part.kwargs)
        given.update(zip([a.name for a in schema.arguments], part.args, strict=False))
        result = part.meta["val"]
        if not part.all_input_nodes and isinstance(result, torch.Tensor):
            given["dtype"] = result.dtype  # frontends have other dtypes where none is given
        kinds = dtypes_of([n.meta["val"] for n in part.all_input_nodes])
        like = next((d for d in kinds if d.is_floating_point), None)
        arguments = [
            self.value(
                None if a.name in _PLACES else given.get(a.name, a.default_value), a.type, like
            )
            for a in schema.arguments
        ]
        kind = schema.name
        if isinstance(result, torch.Tensor):
            self.values[part] = self.add(kind, arguments, [result])[0]
            return
        if len(schema.returns) == 1:
            kind, arguments = "prim::ListUnpack", self.add(kind, arguments, [None])
            arguments[0].setType(torch._C.ListType.ofTensors())
        results = self.add(kind, arguments, result)
        items = [n for n in part.users if n.target is operator.getitem]
        self.values.update({n: results[int(n.args[1])] for n in items})  # type: ignore[arg-type]

    def add(self, kind: str, arguments: list[Any], results: Any) -> list[Any]:
        node = self.graph.insertNode(self.graph.create(kind, arguments, len(results)))
        for value, like in zip(node.outputs(), results, strict=True):
            if like is not None:
                value.inferTypeFrom(like)
            self.name(value)
        return list(node.outputs())

    def value(self, given: Any, kind: Any = None, like: torch.dtype | None = None) -> Any:
        """The value of the flat graph that stands for an argument; a list has its type `kind`, and
        a number among floating tensors the dtype of `like`."""
        if isinstance(given, Node):
            return self.values[given]
        if isinstance(given, list | tuple):
            made = self.add("prim::ListConstruct", [self.value(v) for v in given], [None])[0]
            kind = kind or torch._C.ListType.ofTensors()
            made.setType(kind.getElementType() if kind.kind() == "OptionalType" else kind)
            return made
        if isinstance(given, bool | int | float) and str(kind) == "Tensor":
            # PyTorch wraps numbers itself
            given = torch.tensor(given, dtype=like if isinstance(given, float) else None)
        value = self.graph.insertConstant(given)
        self.name(value)
        return value

    def name(self, value: Any) -> None:
        value.setDebugName(f"n{self.origin.ordinal}_part{self.count}")
        self.flat.origins[value.debugName()] = self.origin
        self.count += 1


def _has_form(node: Any, training: bool) -> bool:
    """Whether an operator is written with others for its arguments, in place or not."""
    base, _, overload = _name(node).partition(".")
    if not may_have_form(base.removesuffix("_")):
        return False
    given = {}
    for argument, value in zip(_schema(node.schema()).arguments, node.inputs(), strict=True):
        given[argument.name] = plain = _plain(value)
        unknown_type = plain is None and value.type().kind() != "NoneType"
        if unknown_type and "Tensor" in str(argument.type):
            return base.removesuffix("_") in OPTIONS  # which trace_to_fx follows, or refuses
    return form_of(f"{base.removesuffix('_')}.{overload}", given, training) is not None


def _plain(value: Any) -> Any:
    """What a trace knows of a value: a constant, a list of such, a tensor without memory; else
    None."""
    node, kind = value.node(), value.type()
    if node.kind() == "prim::ListConstruct":
        return [_plain(v) for v in node.inputs()]
    if node.kind() == "prim::Constant" or kind.kind() != "TensorType":
        return value.toIValue()
    if kind.sizes() is None or kind.dtype() is None:
        return None
    return torch.empty(kind.sizes(), dtype=kind.dtype(), device="meta")


def _widens(node: Any) -> bool:
    """Whether an operator is in 16 bits, as far as the trace knows its types."""
    kinds = [v.type() for v in (*node.inputs(), *node.outputs())]
    dtypes = [k.dtype() for k in kinds if k.kind() == "TensorType"]
    return node.kind().startswith("aten::") and widens(_name(node), [d for d in dtypes if d])


_schema = cache(torch._C.parse_schema)


def _name(node: Any) -> str:
    """Such as "add.Tensor"; of what is no ATen operator its kind."""
    kind = node.kind().removeprefix("aten::")
    schema = node.schema()
    overload = "" if schema == "(no schema)" else _schema(schema).overload_name
    return f"{kind}.{overload or 'default'}"
