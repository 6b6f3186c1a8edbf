"""From a typed Relay program to the neutral `Graph`.

The walk keeps its own stack, as expressions may be deeper than recursion allows. Looking into a
Relay object costs microseconds, so types, attributes, spans and operators are remembered.
"""

import ctypes
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relay

from relascope.core import builder
from relascope.core.graph import Graph, JsonValue, Kind, NodeOrigin, TensorType
from relascope.engine.relay.draw.to_text import device_name
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.rewrite import op_name

_NOISE = ("auto_scheduler_rewritten_layout", "meta_schedule_original_shape")


def to_graph(program: RelayProgram, name: str = "main") -> tuple[Graph, dict[str, Any]]:
    """Draw one function of a program.

    A node's id is a hash of its operator, attributes and inputs' ids (for a variable, of its name;
    for a constant, of its bytes). Equal nodes get "#2", "#3" and so on, producers first. A let's
    variable is another name of the bound value's node.

    Missing types are inferred. Returns the graph and each node's Relay expression by its id."""
    shared = _Shared(program)
    function = program.mod[name]
    try:
        walk = _Walk(shared, function)
    except _Untyped:
        walk = _Walk(shared, relay.transform.InferType()(program.mod)[name])
    return walk.graph(name, program.outputs if program.gradients else None), walk.expressions


class _Untyped(Exception):
    """An expression without a type was met."""


class _Shared:
    """What the functions of one program share: the meaning of names, and caches."""

    def __init__(self, program: RelayProgram) -> None:
        self.parameters = set(program.params)
        self.functions = {str(v.name_hint): f for v, f in program.mod.functions.items()}
        self.entered: list[str] = []  # functions of the module, from the outside in
        self.provenance = program.provenance
        self.constants = builder.Constants(program.params, program.digests, _digest)
        self.attributes: dict[int, tuple[Mapping[str, JsonValue], str]] = {}
        self.types: dict[int, tuple[TensorType, ...]] = {}
        self.origins: dict[int, NodeOrigin] = {}
        self.spans: list[Any] = []  # an address identifies an object only while it lives

    def can_enter(self, op: Any) -> bool:
        """Whether this is a function of the module that is not being drawn already."""
        name = str(op.name_hint) if isinstance(op, tvm.ir.GlobalVar) else ""
        return name not in self.entered and isinstance(self.functions.get(name), relay.Function)

    def attrs(self, attrs: Any) -> tuple[Mapping[str, JsonValue], str]:
        """Attributes as JSON values, and as the text that ids are made of."""
        if attrs is None:
            return {}, ""
        if (key := tvm.ir.structural_hash(attrs)) not in self.attributes:
            values = _attributes(attrs)
            self.attributes[key] = values, json.dumps(values)
        return self.attributes[key]

    def outputs(self, expr: Any) -> tuple[TensorType, ...]:
        try:
            kind = expr.checked_type
        except ValueError as untyped:
            raise _Untyped from untyped
        if (key := tvm.ir.structural_hash(kind)) not in self.types:
            self.types[key] = tensor_types(kind)
        return self.types[key]

    def origin(self, expr: Any) -> NodeOrigin:
        span = expr.span
        if span is None:
            return NodeOrigin()
        if (handle := span.handle.value) not in self.origins:
            self.spans.append(span)
            self.origins[handle] = self.provenance.get(span.source_name.name, NodeOrigin())
        return self.origins[handle]


class _Walk(builder.GraphBuilder):
    """Turns one function into nodes; each function inside it has its own walk."""

    def __init__(self, shared: _Shared, function: Any) -> None:
        super().__init__()
        self.shared = shared
        self.ids: dict[int, str] = {}  # by the expression's address
        self.alive: list[Any] = []  # as `_Shared.spans`
        self.inputs = tuple(self.variable(p) for p in function.params)
        self.body = function.body
        self.walk(self.body)

    def graph(self, name: str, forward_outputs: int | None = None) -> Graph:
        result = self.ids[self.body.handle.value]
        return self.finish(name, "relay", self.inputs, result, forward_outputs)

    def add(
        self, expr: Any, what: str, kind: Kind, reads: list[Any] | None = None, **about: Any
    ) -> str:
        """Add a node for an expression; `about` as in `add_node`. `what` is the text for its id: of
        a variable or constant in full, of others without the ids of the inputs, which are those of
        the expressions in `reads`."""
        if reads is not None:
            about["inputs"] = tuple(self.ids[e.handle.value] for e in reads)
            what = f"{what} {' '.join(about['inputs'])}"
        about.setdefault("origin", self.shared.origin(expr))
        ident = self.add_node(expr, what, kind, self.shared.outputs(expr), **about)
        self.ids[expr.handle.value] = ident
        return ident

    def walk(self, root: Any) -> None:
        ids, leaves = self.ids, {relay.Var: self.variable, relay.Constant: self.constant}
        todo: list[tuple[Callable[[Any, list[Any]], None] | None, Any, list[Any]]]
        todo = [(None, root, [])]
        while todo:
            finish, expr, children = todo.pop()
            if finish is not None:
                finish(expr, children)
                continue
            if expr.handle.value in ids:
                continue
            self.alive.append(expr)
            if isinstance(expr, relay.Call):
                children, op = expr.args[:], expr.op  # a slice asks TVM for the length once
                reads = [op, *children]
                if isinstance(op, tvm.ir.Op):
                    todo.append((self.call, expr, reads))
                elif isinstance(op, relay.Function):
                    todo.append((self.call_function, expr, reads))
                elif self.shared.can_enter(op):
                    todo.append((self.call_global, expr, reads))
                else:
                    children = reads
                    todo.append((self.other, expr, children))
            elif type(expr) in leaves:
                leaves[type(expr)](expr)
            elif isinstance(expr, relay.Let):
                body = expr.body
                todo.append((self.same, expr, [body]))
                todo.append((None, body, []))
                todo.append((self.same, expr.var, [expr.value]))
                children = [expr.value]
            elif isinstance(expr, relay.Function):
                children = list(relay.analysis.free_vars(expr))
                todo.append((self.function, expr, children))
            else:
                children = [c for f in _READS.get(type(expr), ()) for c in _all(getattr(expr, f))]
                todo.append((self.other, expr, children))
            todo.extend((None, c, []) for c in reversed(children) if c.handle.value not in ids)

    def same(self, expr: Any, children: list[Any]) -> None:
        self.alive.append(expr)
        self.ids[expr.handle.value] = self.ids[children[0].handle.value]

    def variable(self, expr: Any) -> str:
        name = str(expr.name_hint)
        self.alive.append(expr)
        kind, scope = Kind.INPUT, ""
        if name in self.shared.parameters:
            kind, scope = Kind.PARAMETER, name.rpartition(".")[0]
        return self.add(expr, f"variable {name}", kind, name=name, origin=(scope, ""))

    def constant(self, expr: Any) -> None:
        identity, attrs, origin = self.shared.constants.about(expr.data)
        if "parameter" not in attrs:
            origin = self.shared.origin(expr)
        self.add(expr, identity, Kind.CONSTANT, attrs=attrs, origin=origin)

    def call(self, expr: Any, parts: list[Any]) -> None:
        op = op_name(expr)
        attrs, text = self.shared.attrs(expr.attrs)
        self.add(expr, f"{op} {text}", Kind.CALL, parts[1:], op=op, attrs=attrs)

    def call_function(self, expr: Any, parts: list[Any]) -> None:
        body = self.inside(parts[0], "fused")
        origin = self.shared.origin(expr)
        if not any(origin):
            origin = builder.body_origin(body)
        about = {"op": builder.fused_name(body), "origin": origin, "body": body}
        self.add(expr, f"function {' '.join(body.outputs)}", Kind.FUNCTION, parts[1:], **about)

    def call_global(self, expr: Any, parts: list[Any]) -> None:
        """A call of a function of the module, with its body."""
        name = str(parts[0].name_hint)
        self.shared.entered.append(name)
        body = self.inside(self.shared.functions[name], name)
        self.shared.entered.pop()
        what, op = f"@{name} {' '.join(body.outputs)}", f"@{name}"
        self.add(expr, what, Kind.FUNCTION, parts[1:], op=op, body=body)

    def function(self, expr: Any, free: list[Any]) -> None:
        body = self.inside(expr, "closure")
        what = f"closure {' '.join(body.outputs)}"
        self.add(expr, what, Kind.FUNCTION, free, op="closure", body=body)

    def inside(self, function: Any, name: str) -> Graph:
        inner = _Walk(self.shared, function)
        self.alive.append(inner)
        return inner.graph(name)

    def other(self, expr: Any, parts: list[Any]) -> None:
        """Tuples, their items, and anything else by the name of its kind: "if", "ref_read",
        "match", or "call" for that of a computed function, or of one that calls itself."""
        if isinstance(expr, relay.TupleGetItem):
            index = int(expr.index)
            self.add(expr, f"item {index}", Kind.ITEM, parts, attrs={"index": index})
        elif isinstance(expr, relay.Tuple):
            self.add(expr, "tuple", Kind.TUPLE, parts)
        else:
            op = str(expr.name) if isinstance(expr, tvm.ir.Op) else builder.other_name(expr)
            self.add(expr, op, Kind.CALL, parts, op=op)


def _all(value: Any) -> list[Any]:
    return value[:] if isinstance(value, tvm.ir.Array) else [value]


_READS: dict[type, tuple[str, ...]] = {
    relay.If: ("cond", "true_branch", "false_branch"),
    relay.Match: ("data",),
    relay.RefCreate: ("value",),
    relay.RefRead: ("ref",),
    relay.RefWrite: ("ref", "value"),
    relay.Tuple: ("fields",),
    relay.TupleGetItem: ("tuple_value",),
}
"""The fields that other kinds of expressions read."""


def tensor_types(kind: Any) -> tuple[TensorType, ...]:
    """The tensors of a type, with tuples flattened; functions and references have none."""
    result = []
    todo = [kind]
    while todo:
        part = todo.pop()
        if isinstance(part, tvm.ir.TensorType):
            shape = tuple(int(d) if isinstance(d, tvm.tir.IntImm) else "?" for d in part.shape)
            result.append(TensorType(shape, str(part.dtype)))
        elif isinstance(part, tvm.ir.TupleType):
            todo.extend(reversed(list(part.fields)))
    return tuple(result)


def _attributes(attrs: Any) -> dict[str, JsonValue]:
    """An operator's attributes in its own order, without those that are not set."""
    if not hasattr(attrs, "list_field_info"):
        return {str(k): _json(v) for k, v in attrs.items()} if hasattr(attrs, "items") else {}
    result = {}
    for field in attrs.list_field_info():
        value = _json(getattr(attrs, field.name))
        if value is None or value == "" or field.name in _NOISE:
            continue
        if str(field.type_info).startswith("bool"):
            value = bool(value)
        result[str(field.name)] = value
    return result


def _json(value: Any) -> JsonValue:
    if isinstance(value, bool | int | float):
        return builder.number(value)
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)  # TVM's own str class does not leave this process
    if isinstance(value, tvm.tir.IntImm | tvm.tir.FloatImm | tvm.tir.StringImm):
        return _json(value.value)
    if isinstance(value, tvm.target.VirtualDevice):
        return device_name(int(value.device_type))
    if isinstance(value, tvm.ir.Array | list | tuple):
        return [_json(v) for v in value]
    if isinstance(value, tvm.ir.Map | dict):
        return {str(k): _json(v) for k, v in value.items()}
    return str(str(value))  # str() of a TVM object gives TVM's own str class


def _digest(array: Any) -> str:
    """A hash of an array's bytes, read in place where they lie on the CPU."""
    content = array.handle.contents
    if array.device.device_type == 1 and not content.strides and content.data:
        size = tvm.DataType(array.dtype).bits * tvm.DataType(array.dtype).lanes // 8
        for dimension in array.shape:
            size *= dimension
        data: Any = (ctypes.c_char * size).from_address(content.data + content.byte_offset)
    else:
        data = array.numpy().tobytes()
    return hashlib.blake2b(data, digest_size=6).hexdigest()
