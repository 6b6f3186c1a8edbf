"""From a typed Relax program to the neutral `Graph`.

A function is a list of bindings, read in order without recursion. A binding is not a node; its
variable is another name of the value. Arguments other than tensors (shapes, numbers, dtypes) are
attributes."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.s_tir.analysis import estimate_tir_flops

from relascope.core import builder
from relascope.core.graph import Graph, JsonValue, Kind, NodeOrigin, TensorType
from relascope.core.memo import Memo
from relascope.engine.relax.draw import spelling
from relascope.engine.relax.draw.to_text import own_text
from relascope.passes.relax.ir.program import RelaxProgram

_KERNEL_CALLS = {f"relax.call_{n}" for n in ("tir", "dps_packed", "pure_packed", "tir_inplace")}


_TEXTS: Memo[tuple[Any, str]] = Memo(2000)
"""Texts of kernels by address, each with its kernel; few passes change one."""


def to_graph(
    program: RelaxProgram, name: str = "main", texts: bool = True
) -> tuple[Graph, dict[str, Any]]:
    """Draw one function of a program.

    A node's id is a hash of its operator, attributes and inputs' ids (for a variable, of its name;
    for a constant, of its bytes). Equal nodes get "#2", "#3" and so on, producers first. Nodes of
    an `if`'s branches precede it; its attribute "branches" has their counts. The attribute "writes"
    of a kernel's call has the places of inputs that it writes into. The program must be normalised
    and typed, as every pass leaves it; `texts` adds those of the kernels that it calls.

    Returns the graph and, by a node's id, the Relax variable of its value, or the constant."""
    shared = _Shared(program)
    walk = _Walk(shared, program.mod[name])
    graph = walk.graph(name, program.outputs if program.gradients else None)
    kernels = {n: _text(k, n) for n, k in shared.kernels.items()} if texts else {}
    return replace(graph, kernels=kernels), walk.expressions


class _Shared:
    """What the functions of one program share: the meaning of names, and caches."""

    def __init__(self, program: RelaxProgram) -> None:
        self.mod = program.mod
        self.parameters = set(program.params)
        self.provenance = program.provenance
        self.constants = builder.Constants(program.params, program.digests)
        self.op_names: dict[int, tuple[str, list[str]]] = {}
        self.fields: dict[type, tuple[str, ...]] = {}
        self.calls = _calls(program.mod)
        self.kernels: dict[str, Any] = {}  # the module's kernels that are called
        self.around: list[str] = []  # functions whose inside is being drawn

    @cached_property
    def without_origins(self) -> "_Shared":
        """The same, for a function whose variables' names do not tell their origin."""
        other = copy(self)
        other.provenance = {}
        return other

    def op(self, op: Any) -> tuple[str, list[str]]:
        """An operator's name without the dialect, and the names of its arguments."""
        handle = op.__chandle__()
        if handle not in self.op_names:
            name = str(op.name).removeprefix("relax.")
            self.op_names[handle] = name, [str(a.name) for a in op.arguments]
        return self.op_names[handle]

    def attrs(self, attrs: Any) -> dict[str, JsonValue]:
        """The attributes that are set, in the operator's own order."""
        if attrs is None:
            return {}
        if isinstance(attrs, tvm.ir.DictAttrs):
            return {str(k): as_json(attrs[k]) for k in attrs.keys()}  # noqa: SIM118
        kind = type(attrs)
        if kind not in self.fields:
            info = getattr(kind, "__tvm_ffi_type_info__", None)
            self.fields[kind] = tuple(f.name for f in info.fields) if info is not None else ()
        values = {name: as_json(getattr(attrs, name)) for name in self.fields[kind]}
        return {k: v for k, v in values.items() if v is not None and v != "" and k != "span"}


@dataclass(frozen=True)
class _At:
    """An expression, the variable that it is bound to (or itself), and where it comes from."""

    expr: Any
    bound: Any
    origin: NodeOrigin = NodeOrigin()  # noqa: RUF009 [immutable]


_Attrs = Mapping[str, JsonValue]


class _Walk(builder.GraphBuilder):
    """Turns one function into nodes; each function that it calls has its own walk."""

    def __init__(self, shared: _Shared, function: Any) -> None:
        super().__init__()
        self.shared = shared
        self.ids: dict[int, str] = {}  # by a variable's address
        self.alive: list[Any] = []  # an address identifies an object only while it lives
        self.inputs = tuple(self.argument(p) for p in function.params)
        self.result = self.sequence(function.body)

    def graph(self, name: str, forward_outputs: int | None = None) -> Graph:
        return self.finish(name, "relax", self.inputs, self.result, forward_outputs)

    def add(
        self, at: _At, what: str, kind: Kind, inputs: tuple[str, ...] | None = None, **about: Any
    ) -> str:
        """A node for an expression; `about` as in `add_node`. `what` is the text of its id, to
        which the ids of its body's results and of its inputs are added."""
        if "body" in about:
            what = f"{what} {' '.join(about['body'].outputs)}"
        if inputs is not None:
            what = f"{what} {' '.join(inputs)}"
        about |= {"inputs": inputs or (), "origin": at.origin}
        return self.add_node(at.bound, what, kind, tensor_types(spelling.type_of(at.expr)), **about)

    def sequence(self, body: Any) -> str:
        """Walk the bindings of a body in order; returns the id of its result."""
        if not isinstance(body, relax.SeqExpr):
            return self.value(body, "")
        for block in body.blocks:
            for binding in block.bindings[:]:  # in one call, not one for each item
                variable = binding.var
                self.alive.append(variable)
                name = str(spelling.name_of(variable))
                self.ids[variable.__chandle__()] = self.value(binding.value, name, variable)
        return self.value(body.body, "")

    def argument(self, variable: Any) -> str:
        name, kind, scope = str(spelling.name_of(variable)), Kind.INPUT, ""
        if name in self.shared.parameters:
            kind, scope = Kind.PARAMETER, name.rpartition(".")[0]
        at = _At(variable, variable, NodeOrigin(scope))
        ident = self.add(at, f"variable {name}", kind, name=name)
        self.alive.append(variable)
        self.ids[variable.__chandle__()] = ident
        return ident

    def value(self, expr: Any, name: str, variable: Any = None) -> str:
        """The id of an expression's node, made on first use; the `name` of the variable that it is
        bound to tells its origin."""
        if isinstance(expr, spelling.Var):
            known = self.ids.get(expr.__chandle__())
            return self.argument(expr) if known is None else known
        origin = self.shared.provenance.get(name, NodeOrigin())
        at = _At(expr, expr if variable is None else variable, origin)
        if isinstance(expr, spelling.Constant):
            return self.constant(expr)
        if isinstance(expr, spelling.Call):
            return self.call(at)
        if isinstance(expr, relax.TupleGetItem):
            source, index = self.value(expr.tuple_value, ""), int(expr.index)
            return self.add(at, f"item {index}", Kind.ITEM, (source,), attrs={"index": index})
        if isinstance(expr, relax.Tuple):
            parts = tuple(self.value(f, "") for f in expr.fields[:])
            return self.add(at, "tuple", Kind.TUPLE, parts)
        if isinstance(expr, relax.If):
            inputs, counts = [self.value(expr.cond, "")], [len(self.nodes)]
            for branch in (expr.true_branch, expr.false_branch):
                inputs.append(self.sequence(branch))
                counts.append(len(self.nodes))
            branches = [b - a for a, b in itertools.pairwise(counts)]
            return self.add_call(at, "if", {"branches": branches}, tuple(inputs))
        if isinstance(expr, relax.Function):  # a closure over the outer variables that it reads
            free = tuple(self.value(v, "") for v in relax.analysis.free_vars(expr))
            body = self.inside(expr, "closure", self.shared)
            return self.add(at, "closure", Kind.FUNCTION, free, op="closure", body=body)
        op = builder.other_name(expr)
        return self.add_call(at, op, {"value": as_json(expr)}, (), f"{op} {expr}")

    def constant(self, expr: Any) -> str:
        data, at = spelling.value_of(expr), _At(expr, expr)
        if not hasattr(data, "numpy"):
            return self.add(at, f"constant {data}", Kind.CONSTANT, attrs={"value": str(data)})
        identity, attrs, origin = self.shared.constants.about(data)
        return self.add(_At(expr, expr, origin), identity, Kind.CONSTANT, attrs=attrs)

    def call(self, at: _At) -> str:
        op, given = at.expr.op, at.expr.args[:]
        if isinstance(op, tvm.ir.GlobalVar):
            return self.call_function(at, self.shared.mod[op], op.name_hint)
        if isinstance(op, relax.Function):
            return self.call_function(at, op, "")
        if not isinstance(op, tvm.ir.Op):
            name = str(getattr(op, "global_symbol", ""))
            inputs, attrs = self.arguments(list(given) if name else [op, *given], [])
            return self.add_call(at, name or "call", attrs, inputs)
        if str(op.name) in _KERNEL_CALLS:
            return self.call_kernel(at)
        name, names = self.shared.op(op)
        inputs, attrs = self.arguments(given, names)
        return self.add_call(at, name, {**attrs, **self.shared.attrs(at.expr.attrs)}, inputs)

    def call_kernel(self, at: _At) -> str:
        """A call of a kernel of the module, or of a runtime function."""
        callee, given, *rest = at.expr.args[:]
        how = str(at.expr.op.name).removeprefix("relax.")
        fields = given.fields[:] if isinstance(given, relax.Tuple) else [given]
        inputs, attrs = self.arguments([*fields, *rest], [])
        if not isinstance(callee, tvm.ir.GlobalVar):
            return self.add_call(at, str(callee.global_symbol), {"call": how, **attrs}, inputs)
        kernel = self.shared.kernels[str(callee.name_hint)] = self.shared.mod[callee]
        told = kernel.attrs or {}
        names = sorted({str(k) for k in told.keys()} - {"global_symbol", "target"})  # noqa: SIM118
        attrs = {"call": how, **{n: as_json(told[n]) for n in names}, **attrs, **_flops(kernel)}
        identity = f"{tvm_ffi.structural_hash(kernel):x}"
        return self.add_call(at, str(callee.name_hint), attrs, inputs, identity)

    def add_call(
        self, at: _At, op: str, attrs: _Attrs, inputs: tuple[str, ...], identity: str = ""
    ) -> str:
        what = f"{identity or op} {json.dumps(attrs)}"
        return self.add(at, what, Kind.CALL, inputs, op=op, attrs=attrs)

    def call_function(self, at: _At, function: Any, name: str) -> str:
        """A call of a fused function, which is shown with its body."""
        inputs, attrs = self.arguments(at.expr.args[:], [])
        if not isinstance(function, relax.Function):
            return self.writing(at, function, str(name), {**attrs, **_flops(function)})
        # FuseOps makes one function of equal groups, with the names of the first, so in a function
        # that is called from two places the names do not tell where a call comes from.
        known = self.shared.calls.get(name, 1) < 2
        if name and name in self.shared.around:  # recursion would not end
            return self.add_call(at, f"@{name}", attrs, inputs)
        self.shared.around.append(name)
        body = self.inside(function, "fused", self.shared if known else self.shared.without_origins)
        self.shared.around.pop()
        # A shape among the arguments is an attribute of the call, not an input.
        given = zip(body.inputs, at.expr.args[:], strict=True)
        body = replace(body, inputs=tuple(i for i, one in given if not _is_plain(one)))
        if not any(at.origin):
            at = replace(at, origin=builder.body_origin(body))
        op = builder.fused_name(body)
        return self.add(at, "function", Kind.FUNCTION, inputs, op=op, attrs=attrs, body=body)

    def inside(self, function: Any, name: str, shared: _Shared) -> Graph:
        inner = _Walk(shared, function)
        self.alive.append(inner)
        return inner.graph(name)

    def writing(self, at: _At, kernel: Any, name: str, attrs: _Attrs) -> str:
        """A call of a kernel that writes into its arguments: their readers then read the call."""
        given = at.expr.args[:]
        inputs, _ = self.arguments(given, [])
        written = [i for i in written_arguments(kernel) if i < len(given)]
        places = [given[i] for i in written]
        attrs = {"writes": [sum(not _is_plain(g) for g in given[:i]) for i in written], **attrs}
        self.shared.kernels[name] = kernel
        kinds = [kind for p in places for kind in tensor_types(spelling.type_of(p))]
        what = f"{tvm_ffi.structural_hash(kernel):x} {json.dumps(attrs)} {' '.join(inputs)}"
        called: Any = {"op": name, "attrs": attrs, "inputs": inputs}
        ident = self.add_node(at.bound, what, Kind.CALL, tuple(kinds), at.origin, **called)
        for index, place in enumerate(places):
            if isinstance(place, spelling.Var):
                now, one = ident, _At(place, place, at.origin)
                if len(places) > 1:
                    about = {"index": index}
                    now = self.add(one, f"item {index}", Kind.ITEM, (ident,), attrs=about)
                self.ids[place.__chandle__()] = now
        return ident

    def arguments(self, args: Any, names: list[str]) -> tuple[tuple[str, ...], _Attrs]:
        """Ids of the tensors among a call's arguments; the others by the operator's names."""
        inputs: list[str] = []
        attrs: dict[str, JsonValue] = {}
        for index, argument in enumerate(args):
            if _is_plain(argument):
                name = names[index] if index < len(names) else f"argument {index}"
                attrs[name] = as_json(argument)
            else:
                inputs.append(self.value(argument, ""))
        return tuple(inputs), attrs


def _calls(mod: Any) -> Counter[str]:
    functions = (f for f in mod.functions.values() if isinstance(f, relax.Function))
    bodies = (f.body for f in functions if isinstance(f.body, relax.SeqExpr))
    bound = (b.value for body in bodies for block in body.blocks for b in block.bindings)
    callees = (getattr(value, "op", None) for value in bound)
    return Counter(str(c.name_hint) for c in callees if isinstance(c, tvm.ir.GlobalVar))


def _text(kernel: Any, name: str) -> str:
    """A kernel's text under its name in the module."""
    return _TEXTS.get((kernel.__chandle__(), name), lambda: (kernel, own_text(kernel, name)))[1]


def written_arguments(kernel: Any) -> list[int]:
    """The places of arguments that a kernel writes into; none for a library's, without a body."""
    stored: list[Any] = []
    spelling.each(kernel.body, spelling.loops.BufferStore, lambda s: stored.append(s.buffer))
    buffers = getattr(kernel, "buffer_map", {})  # until 0.26; since then a parameter is its buffer
    own = [(i, buffers.get(p, p)) for i, p in enumerate(kernel.params)]
    return [i for i, buffer in own if any(s.same_as(buffer) for s in stored)]


def _is_plain(expr: Any) -> bool:
    """Whether an argument is a shape, number, text or dtype, or a tuple of these: not a tensor."""
    if isinstance(expr, relax.Tuple):
        return bool(len(expr.fields)) and all(_is_plain(f) for f in expr.fields)
    if isinstance(expr, spelling.Constant):  # such as a dtype
        return not hasattr(spelling.value_of(expr), "numpy")
    return isinstance(expr, (relax.ShapeExpr, *spelling.boxed))


def _size(size: Any) -> int | str:
    """A size as a number, or as people write an open one: "2 * n"."""
    if isinstance(size, spelling.loops.IntImm):
        return int(size)
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(size))


def tensor_types(kind: Any) -> tuple[TensorType, ...]:
    """The tensors of a type, with tuples flattened; functions and shapes have none."""
    result = []
    todo = [kind]
    while todo:
        part = todo.pop()
        if isinstance(part, spelling.TensorType):
            if isinstance(part.shape, relax.ShapeExpr):
                shape = tuple(map(_size, part.shape.values[:]))
            else:
                shape = ("?",) * max(int(part.ndim), 0)
            result.append(TensorType(shape, str(part.dtype)))
        elif isinstance(part, spelling.TupleType):
            todo.extend(reversed(part.fields[:]))
    return tuple(result)


def counted_flops(kernel: Any) -> int | None:
    """TVM's estimate of the FLOPs of a kernel's loop nest; None if extents are unknown."""
    try:
        return round(estimate_tir_flops(tvm.IRModule({"main": kernel})))
    except (tvm.error.InternalError, ValueError, TypeError):
        return None


def _flops(kernel: Any) -> dict[str, JsonValue]:
    counted = counted_flops(kernel)
    return {} if counted is None else {"flops": counted}


def as_json(value: Any) -> JsonValue:
    if isinstance(value, bool | int | float):
        return builder.number(value)
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)  # TVM's own str class does not leave this process
    if isinstance(value, spelling.boxed):
        return as_json(value.value)
    if isinstance(value, spelling.Constant):
        return str(spelling.value_of(value))
    if isinstance(value, relax.ShapeExpr):
        return [as_json(v) for v in value.values[:]]
    if isinstance(value, relax.Tuple):
        return [as_json(v) for v in value.fields[:]]
    if isinstance(value, tvm.ir.Array | list | tuple):
        return [as_json(v) for v in value[:]]
    if isinstance(value, tvm.ir.Map | dict):
        return {str(k): as_json(v) for k, v in value.items()}
    return str(str(value))
