"""From the flat graph of a trace to an FX graph of ATen operators, which both importers read.

The trace is walked node by node, so every FX node knows the operator and the module that it came
from. What a trace computes of shapes is computed here: shapes are static. Each FX node carries its
type, found by running the operator on tensors without memory.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NoReturn

import torch
import torch._dynamo.config  # FakeTensorMode would import it, for a second, in each forked engine
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from relascope.core.errors import EngineError
from relascope.engine.files.operators import DYNAMIC_INT8
from relascope.engine.pytorch import draws, unlike
from relascope.engine.pytorch.attention import fused_attention
from relascope.engine.pytorch.flat_trace import TraceOrigin
from relascope.engine.pytorch.in_place import changed_buffers, changes_in_place
from relascope.engine.pytorch.model import Model
from relascope.engine.pytorch.operators import compositions
from relascope.engine.pytorch.operators.chosen_rows import ChosenRows, chosen_rows
from relascope.engine.pytorch.operators.complex_pairs import ComplexPair, in_pairs, makes_pairs
from relascope.engine.pytorch.operators.compositions import name_of, stays
from relascope.engine.pytorch.operators.dynamic_int8 import int8_function
from relascope.engine.pytorch.operators.forms import form_of, given_to
from relascope.engine.pytorch.operators.number_formats import (
    HALVES,
    NOTE,
    dtypes_of,
    fills,
    number_in,
    result_dtypes,
    widens,
)
from relascope.engine.pytorch.unlike import REWRITE, by_values
from relascope.passes.program import Mask

# Numbers of a trace index these as ScalarType and MemoryFormat.
_NAMES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool",
    "contiguous_format preserve_format channels_last channels_last_3d",
)
_DTYPES, _MEMORY = ([getattr(torch, name) for name in names.split()] for names in _NAMES)
BFLOAT16 = 15
"""The number of bfloat16, which is not among these."""

_HINT = "Make the file with torch.jit.trace, and let no branch depend on a tensor's values."
_NUMBERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("Int", "IntImplicit"), int),
    **dict.fromkeys(("Float", "FloatImplicit"), float),
    "Bool": bool,
    **dict.fromkeys(("ScalarImplicit", "item"), lambda number: number),
}
"""Operators of a trace that turn a tensor into a number, and the kind of number."""


_NOT_PLAIN = object()
_CPU = torch.device("cpu")
_NORM = "aten::batch_norm"
_DOUBLE = (torch.float64, torch.complex128)
_SIZES = 8
"""The most integers that are taken for sizes."""


@dataclass(frozen=True)
class FxTrace:
    """What a trace became.

    The placeholders of `graph` are the model's inputs, then its parameters and buffers, in the
    order of the trace; `arguments` are their names in PyTorch; then `masks`, of dropouts and other
    draws, each where it is first read. `meta["val"]` is each node's value
    without memory, `meta["origin"]` where it came from. `constants` has tensors that the trace
    holds, by the target of their `get_attr` node; `updates` the new value of each buffer that an
    operator changes as a whole; `values` what each value of the flat trace became, by its debug
    name: a node, or what is known without a run.

    A joint graph's last placeholders are `grad_outs`, shape and dtype of the gradient of each
    floating output by its argument's name; `gradients` has each floating-point input's and
    parameter's gradient, by name."""

    graph: Graph
    arguments: tuple[str, ...]
    constants: dict[str, torch.Tensor]
    updates: dict[str, Node]
    values: dict[str, Any]
    masks: tuple[Mask, ...]
    grad_outs: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    gradients: dict[str, Node] = field(default_factory=dict)


def trace_to_fx(
    model: Model, supports: Callable[[str], bool], frontend: str = "Relax", whole: bool = False
) -> FxTrace:
    """Write the flat trace of a model as an FX graph. In-place operators become pure ones, which
    was checked to be right before. `supports` says whether the importer of `frontend` has an ATen
    operator, such as "add.Tensor"; others are written with those (PyTorch's core ATen
    decompositions), and, except if `whole`, batch norms in train mode. Control flow, shapes that
    depend on values, and all operators that are not known are refused (kind "operator"), with
    module."""
    return _FxWriter(model, supports, frontend, whole).run()


def note_values(model: Model, values: Mapping[str, Any]) -> None:
    """Write into a trace from a file the types of its values; see `FxTrace.values`."""
    live = not isinstance(model.module, torch.jit.ScriptModule)
    for node in () if live else model.flat.graph.nodes():
        for value in node.outputs():
            made = values.get(value.debugName())
            if isinstance(made, Node) and isinstance(made.meta["val"], torch.Tensor):
                value.inferTypeFrom(made.meta["val"])


class _FxWriter:
    def __init__(
        self, model: Model, known: Callable[[str], bool], frontend: str, whole: bool
    ) -> None:
        self.model, self.flat, self.frontend = model, model.flat, frontend
        self.known = cache(
            lambda n: n.partition(".")[0].removesuffix("_like") in draws.FILLS or known(n)
        )
        self.graph = Graph()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.loaded = isinstance(model.module, torch.jit.ScriptModule)
        self.values: dict[str, Any] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self.updates: dict[str, Node] = {}
        self.masks: list[Mask] = []
        self.whole = whole
        self.origin = TraceOrigin("", "", -1)
        self.unknown: list[tuple[str, TraceOrigin]] = []
        self.arguments = (*model.input_names, *self.flat.tensors)
        tensors = (*model.inputs, *self.flat.tensors.values())
        inputs = zip(self.flat.graph.inputs(), tensors, strict=True)
        for index, (value, tensor) in enumerate(inputs):
            node = self.graph.placeholder(f"arg{index}")
            self.values[value.debugName()] = self.typed(node, self.faked(tensor))

    def run(self) -> FxTrace:
        try:
            for node in self.flat.graph.nodes():
                self.origin = self.flat.origin(node)
                self.write(node)
        except EngineError:
            if not self.unknown:  # an error after such an operator may come from it
                raise
        if self.unknown:
            raise unlike.all_unknown(self.frontend, self.unknown, self.model)
        results = [self.values[v.debugName()] for v in self.flat.graph.outputs()]
        self.value(results)
        self.graph.output(tuple(self.node_of(r) for r in results))
        changed = changed_buffers(self.model.flat, self.model.buffers)
        self.updates |= {name: self.values[value] for value, name in changed.items()}
        known = self.arguments, self.constants, self.updates, self.values
        return FxTrace(self.graph, *known, tuple(self.masks))

    def write(self, node: Any) -> None:
        kind, inputs = node.kind(), [self.values[v.debugName()] for v in node.inputs()]
        outputs = [v.debugName() for v in node.outputs()]
        if kind in ("prim::ListUnpack", "prim::TupleUnpack"):
            made = self.unpacked(inputs[0], len(outputs))
        else:
            result = self.plain(node, kind, inputs)
            if result is _NOT_PLAIN:
                result = self.operator(node, inputs)
            made = [result] if len(outputs) == 1 else self.unpacked(result, len(outputs))
        self.values.update(zip(outputs, made, strict=True))

    def plain(self, node: Any, kind: str, inputs: list[Any]) -> Any:
        """A value known without a run; `_NOT_PLAIN` for an ATen operator."""
        if kind == "prim::Constant":
            none = node.output().type().kind() == "NoneType"
            value: Any = None if none else node.output().toIValue()
            if isinstance(value, torch.device):
                return _CPU
            value = value.cpu() if isinstance(value, torch.Tensor) else value
            # A file has a Python number as a tensor, but it counts as a number.
            single = self.loaded and isinstance(value, torch.Tensor) and not value.dim()
            return value.item() if single and value.dtype in _DOUBLE else value
        if kind in ("prim::ListConstruct", "prim::TupleConstruct"):
            return inputs
        if kind == "prim::NumToTensor":
            return torch.tensor(self.number(inputs[0]))
        if number := _NUMBERS.get(kind.removeprefix("aten::")):
            return number(self.number(inputs[0]))
        if kind == "aten::size":
            shape = self.value(inputs[0]).shape
            return shape[inputs[1]] if len(inputs) > 1 else list(shape)
        if kind in ("aten::numel", "aten::dim"):
            return getattr(self.value(inputs[0]), kind[6:])()
        if kind == "aten::__getitem__":
            return self.unpacked(inputs[0], None)[inputs[1]]
        if kind == "prim::dtype":
            return dtype_number(self.value(inputs[0]).dtype)
        if kind == "prim::device":
            return _CPU
        if not kind.startswith("aten::") and kind not in DYNAMIC_INT8:
            self.refuse(f"{kind} is not an operator of a straight-line graph.", _HINT)
        return _NOT_PLAIN

    def operator(self, node: Any, inputs: list[Any]) -> Any:
        kind = node.kind()
        if node.schema() == "(no schema)":
            self.refuse(f"{kind} has no definition in this PyTorch.")
        schema = torch._C.parse_schema(node.schema())
        space, _, name = kind.partition("::")
        if found := int8_function(schema, inputs):
            packet = getattr(getattr(torch.ops, space), name)
            op = getattr(packet, schema.overload_name or "default")
            return self.decomposed(op, found[0], self.nodes_of(found[1]), {})
        op = self.overload(name, schema)
        if kind == "aten::_convolution":  # the last four of its arguments choose among libraries
            op, inputs = torch.ops.aten.convolution.default, inputs[:9]
        args, kwargs = _given(op._schema, inputs)
        if self.is_small(args):
            return op(*args, **kwargs)
        if rows := chosen_rows(name_of(op), args, self.origin):
            return rows
        if any(isinstance(a, ChosenRows) for a in tree_leaves(args)):
            return self.of_chosen(op, args)
        made = self.call(op, args, kwargs)
        if op._schema.name != schema.name and changes_in_place(schema.name):
            dtype = self.value(args[0]).dtype  # the changed tensor keeps it
            if made.meta["val"].dtype != dtype:
                made = self.call(torch.ops.aten.to.dtype, [made, dtype], {})
        return made

    def overload(self, name: str, schema: Any) -> Any:
        """An operator; if it changes its argument, the form that does not."""
        overload = schema.overload_name or "default"
        if not changes_in_place(schema.name):
            return getattr(getattr(torch.ops.aten, name), overload)
        if name == "normal_":  # `normal` takes means and deviations as tensors
            return torch.ops.aten.normal_functional.default
        pure = getattr(torch.ops.aten, name[:-1], None)
        forms = pure.overloads() if pure is not None else []
        types = _types(schema)
        same = [f for f in forms if types == _types(getattr(pure, f)._schema)] or forms
        if not same or (overload not in same and same is forms):
            self.refuse(f"aten::{name} changes a tensor in place, and has no out-of-place form.")
        return getattr(pure, overload if overload in same else same[0])

    def is_small(self, args: list[Any]) -> bool:
        """Whether this computes a shape: from a few known numbers, and nothing else."""
        tensors = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor | Node)]
        return bool(tensors) and all(
            isinstance(t, torch.Tensor)
            and (not t.dim() or (t.numel() <= _SIZES and not t.is_floating_point()))
            for t in tensors
        )

    def call(self, op: Any, args: list[Any], kwargs: dict[str, Any], halves: bool = True) -> Any:
        if op is torch.ops.aten.repeat_interleave.self_Tensor and self.is_small(args[1:2]):
            op = torch.ops.aten.repeat_interleave.self_int  # a number that a trace has as a tensor
            args = [args[0], int(args[1]), *args[2:]]
        given = given_to(op._schema, self.value(args), self.value(kwargs))
        args, kwargs = self.nodes_of(args), self.nodes_of(kwargs)
        if makes_pairs(name_of(op), self.value([args, kwargs])):
            return self.in_pairs(op, args, kwargs)
        if halves and widens(name_of(op), self.value([args, kwargs])):
            return self.widened(op, args, kwargs)
        train = op is torch.ops.aten.batch_norm.default and args[5]
        if train and not (self.whole and args[3] is None):
            return self.moved(op, args)
        form = form_of(name_of(op), given, self.model.differentiable)
        drops = op is torch.ops.aten.dropout.default and (self.whole or not self.known(name_of(op)))
        drawn = draws.draw_of(op._schema, args, kwargs) if form is None else None
        if drawn and (drawn.draw or drops):
            return self.drawn(drawn, op, args, kwargs)
        if drops:
            return args[0]
        if form is None and (self.known(name_of(op)) or stays(op, self.value(args))):
            return self.added(op, args, kwargs)
        return self.decomposed(op, form or op, args, kwargs)

    def drawn(self, drawn: Mask, op: Any, args: list[Any], kwargs: dict[str, Any]) -> Node:
        """The argument that PyTorch fills with what an operator draws, or a dropout's product with
        its mask."""
        node = self.added(op, args, kwargs)
        self.graph.erase_node(node)
        value = node.meta["val"]
        dtype, place = str(value.dtype).removeprefix("torch."), self.origin.ordinal
        drawn = replace(drawn, shape=tuple(value.shape), dtype=dtype, ordinal=place)
        self.masks.append(draws.numbered(drawn, self.masks))
        with self.fake:
            filled = value.to(getattr(torch, drawn.input_dtype))
        mask = self.typed(self.graph.placeholder(self.masks[-1].name), filled)
        if drawn.draw:
            return mask
        kept = self.added(torch.ops.aten.to.dtype, [mask, value.dtype], {})
        factor = self.added(torch.ops.aten.mul.Tensor, [kept, drawn.scale], {})
        return self.added(torch.ops.aten.mul.Tensor, [args[0], factor], {})

    def moved(self, op: Any, args: list[Any]) -> Node:
        """A batch norm in train mode, whose running statistics, if any, move."""
        *tensors, train, momentum, epsilon, fast = args
        names = {self.values[v.debugName()]: n for n, v in self.flat.arguments.items()}
        moving = [names.get(node, "") for node in tensors[3:] if node is not None]
        for name in moving:
            readers = [use.user for use in self.flat.arguments[name].uses()] if name else []
            seen = self.values.keys()
            later = [r for r in readers if seen.isdisjoint(v.debugName() for v in r.outputs())]
            own = all(r.kind() == _NORM and r.inputsAt(5).toIValue() for r in later)
            if name not in self.model.buffers or not own:
                self.refuse(*unlike.SHARED_STATISTICS)
        now = [self.updates.get(names.get(node, ""), node) for node in tensors]
        form, given = compositions.moved_batch_norm, [*now, momentum, epsilon]
        made, *new = self.decomposed(op, form, given, {})
        self.updates.update(zip(moving, new, strict=True))
        given = [*tensors[:3], None, None, train, momentum, epsilon, fast]
        return self.added(op, given, {}) if self.whole else made

    def of_chosen(self, op: Any, args: list[Any]) -> Any:
        """An operator on rows that a mask selects."""
        rows = next(a for a in tree_leaves(args) if isinstance(a, ChosenRows))
        made = rows.then(name_of(op), args[1:]) if args[0] is rows else None
        if made is None:
            raise by_values("aten.index.Tensor", rows.origin, self.model)
        if isinstance(made, ChosenRows):
            return made
        return self.decomposed(op, made, [rows.tensor, rows.mask], {})

    def in_pairs(self, op: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An operator on complex tensors, as operators on their parts; see `complex_pairs`."""
        with self.without_memory(op):
            made = op(*self.value(args), **self.value(kwargs))
        args = tree_map(self.parts, args, is_leaf=_is_pair)
        done = self.decomposed(op, partial(in_pairs, op), args, kwargs)

        def paired(found: Any, like: Any) -> Any:
            if isinstance(like, list | tuple):
                return [paired(f, k) for f, k in zip(found, like, strict=True)]
            if not like.is_complex():
                return found
            pair = ComplexPair(found)
            pair.meta = {"val": like}
            return pair

        return paired(done, made)

    def parts(self, value: Any) -> Any:
        """A complex constant as a pair of constants; anything else as it is."""
        if not isinstance(value, Node) or not value.meta["val"].is_complex():
            return value
        held = self.constants[str(value.target)]
        return ComplexPair(self.node_of(p.contiguous()) for p in (held.real, held.imag))

    def widened(self, op: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An operator in 16 bits, in float32 between casts; see `number_formats`."""
        with self.without_memory(op):
            made = op(*self.value(args), **self.value(kwargs))
        name, first = name_of(op), next(iter(self.value(args)), None)
        wanted = result_dtypes(name, first, made)
        half = next(d for d in dtypes_of(self.value([args, kwargs])) if d in HALVES)
        self.model.note(NOTE.format(str(half).removeprefix("torch.")))
        self.model.composed.add(self.origin.ordinal)
        running = op is torch.ops.aten.batch_norm.default and args[5]

        def wide(value: Any, place: int = -1) -> Any:
            if isinstance(value, list | tuple):
                return [wide(v) for v in value]
            if value in HALVES:
                return torch.float32
            value = number_in(name, value, half) if wanted[0] in (half, torch.bool) else value
            is_half = isinstance(value, Node) and value.meta["val"].dtype in HALVES
            if not is_half or (running and place in (3, 4)):  # its running statistics
                return value
            if value.op == "get_attr":
                return self.node_of(self.constants[str(value.target)].float())
            return self.added(torch.ops.aten.to.dtype, [value, torch.float32], {})

        if fills(name):
            return self.node_of(op(*self.empty(args), **self.empty(kwargs)))
        args = [wide(a, i) for i, a in enumerate(args)]
        done = self.call(op, args, {k: wide(v) for k, v in kwargs.items()}, False)
        if isinstance(made, torch.Tensor):
            return self.narrowed(done, wanted[0])
        parts = zip(self.unpacked(done, len(wanted)), wanted, strict=True)
        return [self.narrowed(p, d) for p, d in parts]

    def empty(self, value: Any) -> Any:
        """Arguments with uninitialized tensors in place of nodes."""
        values = self.value(value)
        return tree_map_only(torch.Tensor, lambda t: torch.empty(t.shape, dtype=t.dtype), values)

    def narrowed(self, node: Node, dtype: torch.dtype) -> Node:
        if node.meta["val"].dtype == dtype:
            return node
        return self.added(torch.ops.aten.to.dtype, [node, dtype], {})

    def added(self, op: Any, args: list[Any], kwargs: dict[str, Any]) -> Node:
        node = self.graph.call_function(op, tuple(args), kwargs)
        with self.without_memory(op):
            value = op(*self.value(list(args)), **self.value(kwargs))
        return self.typed(node, value)

    @contextmanager
    def without_memory(self, op: Any) -> Iterator[None]:
        """Runs operators without memory, and raises their errors as refusals."""
        try:
            with self.fake, torch.no_grad():
                yield
        except EngineError as error:
            error.where = error.where or self.origin.where
            raise
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise by_values(str(op), self.origin, self.model) from None
        except Exception as wrong:
            why = unlike.reason(wrong)
            self.refuse(f"{op} cannot be imported as it is used here{why}", REWRITE)

    def decomposed(
        self, op: Any, form: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """An operator that the importer does not have, written with those that it may have."""
        self.model.composed.add(self.origin.ordinal)
        nodes = list(dict.fromkeys(a for a in tree_leaves([args, kwargs]) if isinstance(a, Node)))
        inner = self.recorded(op, form, args, kwargs, nodes)
        calls = [n for n in inner.graph.nodes if n.op == "call_function"]
        if any((n.target is op and form is op) or is_mutable(n) for n in calls):
            # The error names all unknown ones, so the trace is read on as if this one were known.
            self.unknown.append((op._schema.name, self.origin))
            return self.added(op, args, kwargs)
        made: dict[Node, Any] = {}
        placeholders = iter(nodes)
        for node in inner.graph.nodes:
            if node.op == "placeholder":
                made[node] = next(placeholders)
            elif node.op == "get_attr":
                made[node] = self.node_of(getattr(inner, node.target))
            elif node.op == "call_function":
                inner_args = _replaced(list(node.args), made)
                if isinstance(node.target, torch._ops.OpOverload):
                    inner_kwargs = _replaced(dict(node.kwargs), made)
                    made[node] = self.call(node.target, inner_args, inner_kwargs)
                else:
                    made[node] = self.item(*inner_args)
        return _replaced(inner.graph.output_node().args[0], made)

    def recorded(
        self, op: Any, form: Callable[..., Any], args: Any, kwargs: Any, nodes: list[Node]
    ) -> torch.fx.GraphModule:
        """What a form of an operator calls, as a graph that takes the nodes among its arguments."""

        def run(*tensors: torch.Tensor) -> Any:
            given = dict(zip(nodes, tensors, strict=True))
            return form(*_replaced(args, given), **_replaced(kwargs, given))

        given = [n.meta["val"] for n in nodes]
        table = compositions.composing(op, self.known, form is op)
        with self.without_memory(op):
            with torch.backends.mkldnn.flags(enabled=False):  # which has an LSTM of its own
                # Autograd would take apart the products that kernels of attention look for.
                whole = form is fused_attention
                inner = make_fx(run, decomposition_table=table, pre_dispatch=whole)(*given)
            if any(is_mutable(n) for n in inner.graph.nodes):
                inner = make_fx(torch.func.functionalize(inner))(*given)
        return inner

    def item(self, source: Any, index: int) -> Node:
        if isinstance(source, list | tuple):
            return source[index]
        node = self.graph.call_function(operator.getitem, (source, index))
        return self.typed(node, source.meta["val"][index])

    def unpacked(self, value: Any, count: int | None) -> list[Any]:
        if isinstance(value, list | tuple):
            return list(value)
        count = len(value.meta["val"]) if count is None else count
        return [self.item(value, i) for i in range(count)]

    def number(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.item()
        if isinstance(value, Node):
            self.refuse("A tensor's value becomes a number, which no graph can hold.", _HINT)
        return value

    def typed(self, node: Node, value: Any) -> Node:
        node.meta["val"], node.meta["origin"] = value, self.origin
        return node

    def node_of(self, value: Any) -> Any:
        """A tensor of the trace as a constant node; anything else as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        name = f"constant{len(self.constants)}"
        self.constants[name] = held = value.detach().cpu()
        return self.typed(self.graph.create_node("get_attr", name), self.fake.from_tensor(held))

    def faked(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor without memory, on the CPU: programs are the same for all devices."""
        if tensor.device == _CPU:
            return self.fake.from_tensor(tensor)
        with self.fake:
            sizes, strides = tensor.shape, tensor.stride()
            return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=_CPU)

    def nodes_of(self, value: Any) -> Any:
        return tree_map(self.node_of, value, is_leaf=_is_pair)

    def value(self, value: Any) -> Any:
        """The values of nodes, also in lists and dicts, without memory; rows that a mask selects
        are refused (kind "operator"), because their shape is not known."""
        for rows in tree_leaves(value):
            if isinstance(rows, ChosenRows):
                raise by_values("aten.index.Tensor", rows.origin, self.model)
        kinds = (Node, ComplexPair)
        return tree_map_only(kinds, lambda v: v.meta["val"], value, is_leaf=_is_pair)

    def refuse(self, message: str, hint: str = "") -> NoReturn:
        raise EngineError("operator", message, self.origin.where, hint)


def is_mutable(node: Node) -> bool:
    """Whether an operator changes one of its arguments."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _types(schema: Any) -> list[str]:
    return [str(a.real_type) for a in schema.arguments]


def _is_pair(value: Any) -> bool:
    return isinstance(value, ComplexPair)


def _replaced(value: Any, by: dict[Node, Any]) -> Any:
    return tree_map_only(Node, by.__getitem__, value)


def _given(schema: Any, values: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position and by name, without defaults, as torch.export writes them."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    # The functional form of an operator may lack some of its last arguments' names, not order.
    for argument, value in zip(schema.arguments, values, strict=False):
        value = _typed_argument(str(argument.real_type), value)
        if not argument.kwarg_only:
            args.append(value)
        elif not (argument.has_default_value() and _same(value, argument.default_value)):
            kwargs[argument.name] = value
    positional = [a for a in schema.arguments if not a.kwarg_only]
    while args:
        last = positional[len(args) - 1]
        if not (last.has_default_value() and _same(args[-1], last.default_value)):
            break
        args.pop()
    return args, kwargs


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, Node | torch.Tensor):
        return False
    if isinstance(value, list | tuple) and isinstance(default, list | tuple):
        return list(value) == list(default)
    return type(value) is type(default) and bool(value == default)


def _typed_argument(kind: str, value: Any) -> Any:
    """What a trace gives as a number: dtype, memory format, layout."""
    if value is None or isinstance(value, bool) or not isinstance(value, int):
        return value
    if "ScalarType" in kind:
        return torch.bfloat16 if value == BFLOAT16 else _DTYPES[value]
    if "MemoryFormat" in kind:
        return _MEMORY[value]
    if "Layout" in kind:
        return torch.strided
    return value


def dtype_number(dtype: torch.dtype) -> int:
    """The number of a dtype in a trace."""
    return BFLOAT16 if dtype is torch.bfloat16 else _DTYPES.index(dtype)
