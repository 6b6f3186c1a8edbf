"""A TorchScript trace as one flat graph: no calls of submodules, parameters as named inputs.

torch's own inlining keeps whole module paths of a fresh trace, but only last names of a loaded one.
Here both give whole paths, and each parameter keeps its name.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch

from relascope.core.errors import EngineError
from relascope.core.graph import NodeOrigin, reached
from relascope.engine.pytorch.draws import DROPPING, draws_in_trace
from relascope.engine.pytorch.nested import built, leaves, nesting, taken
from relascope.engine.pytorch.watch import Programs, line_of
from relascope.passes.program import Mask

_KINDS = ("", "feature_", "alpha_", "feature_alpha_")
_DROPOUTS = tuple(f"aten::{kind}dropout{end}" for kind in _KINDS for end in ("", "_"))
_LONGEST = 1_000_000  # operators, including calls of submodules
_TRACE_HINT = "Make the file with torch.jit.trace, which records only what runs."


@dataclass(frozen=True)
class TraceOrigin:
    """Where an operator of the trace comes from: its module's path, its name, its place in the
    order of execution, the line of the model's own source, "model.py:12", and its text, if known,
    and whether it is a further one of several that replace an operator."""

    scope: str
    operator: str
    ordinal: int
    line: str = ""
    text: str = ""
    further: bool = False

    @property
    def origin(self) -> NodeOrigin:
        line = f"{self.line}: {self.text}" if self.text else self.line
        return NodeOrigin(self.scope, self.operator, line)

    @property
    def where(self) -> str:
        return self.origin.where


_FRAME = re.compile(r"^(.+?)\((\d+)\): ", re.MULTILINE)


def frames_in(text: str) -> list[tuple[str, int]]:
    """Files and lines in frames as TorchScript writes them: `model.py(12): forward`."""
    return [(file, int(line)) for file, line in _FRAME.findall(text)]


@dataclass
class FlatTrace:
    """The flat graph of a traced module. `graph` is a torch._C.Graph, whose inputs are the model's,
    named by `input_names`, then the tensors in `tensors`, each with its shape and dtype; its
    outputs are the model's, nested ones flattened. `tensors` are parameters and buffers that the
    graph reads, by name, in its order. `origins` has each operator's origin by the debug names of
    its results; `ordinal` is the next operator's."""

    graph: Any
    input_names: tuple[str, ...]
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    origins: dict[str, TraceOrigin] = field(default_factory=dict)
    ordinal: int = 0

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The graph as a function of its inputs, in order, to a tuple of its outputs.

        Faster than the module, for whose first run torch takes time cubic in the nesting depth.
        """
        graph = self.graph.copy()
        torch._C._jit_pass_erase_shape_information(graph)
        returned(graph, list(graph.outputs()))
        made: Callable[..., Any] = torch._C._create_function_from_graph("forward", graph)
        return made

    def origin(self, node: Any) -> TraceOrigin:
        """Where a node of the graph comes from."""
        name = next((v.debugName() for v in node.outputs()), "")
        return self.origins.get(name) or TraceOrigin("", node.kind(), -1)

    @property
    def arguments(self) -> dict[str, Any]:
        """The graph's inputs by the names of the model's inputs, parameters and buffers, all of
        which must differ."""
        return dict(zip((*self.input_names, *self.tensors), self.graph.inputs(), strict=True))

    def insert(self, kind: str, inputs: list[Any], before: Any, origin: TraceOrigin) -> Any:
        """The result of a new operator, inserted before a node; its origin gets a new ordinal."""
        node = self.graph.create(kind, inputs, 1)
        node.insertBefore(before)
        made = node.output()
        made.setDebugName(f"n{self.ordinal}_0")
        self.origins[made.debugName()] = replace(origin, ordinal=self.ordinal)
        self.ordinal += 1
        return made

    def dropouts(self) -> list[Any]:
        return [n for n in self.graph.nodes() if n.kind() in _DROPOUTS]

    def active_dropouts(self) -> list[Any]:
        """The nodes with dropouts that were on when the model was traced."""
        on = (n for n in self.dropouts() if n.inputsAt(2).toIValue() and n.inputsAt(1).toIValue())
        return [*on, *(n for n, _ in self.draws() if n.kind() in DROPPING)]

    def draws(self) -> list[tuple[Any, Mask]]:
        """The nodes that draw random numbers, in their order, and what they draw."""
        return [(node, draw) for node in self.graph.nodes() for draw in draws_in_trace(node)]

    def parts_without(self, module: torch.nn.Module, places: Collection[str]) -> tuple[str, ...]:
        """Submodules of the traced module without some operators and some submodules (`places`
        names both), the largest first."""
        count: Counter[str] = Counter()
        inside = {""}  # modules to look into, because they cannot be taken whole
        for origin in {o.ordinal: o for o in self.origins.values()}.values():
            around = {*accumulate(LATER.sub("", origin.scope).split("."), "{}.{}".format)}
            count.update(around)
            if origin.operator in places or not around.isdisjoint(places):
                inside.update(around)
        known = dict(module.named_modules(remove_duplicate=False))
        found = []
        for path in sorted(filter(None, count), key=lambda p: p.count(".")):
            if path.rpartition(".")[0] not in inside:
                continue
            if path in inside or not runs_alone(known.get(path)):
                inside.add(path)
            elif count[path] > 1:
                found.append(path)
        return tuple(sorted(found, key=lambda p: -count[p]))

    @contextmanager
    def naming_parts(self, module: torch.nn.Module) -> Iterator[None]:
        """Where the model may be refused: adds to the error the submodules without its cause."""
        try:
            yield
        except EngineError as error:
            if error.kind == "operator" and error.instead is None:
                place = error.where.partition(", ")[0]
                operator = place.partition(" ")[0]
                error.instead = self.parts_without(module, {operator, place})
            raise


def runs_alone(module: torch.nn.Module | None) -> bool:
    """Whether a submodule has a forward(), and is not a mere list of others."""
    if isinstance(module, torch.jit.ScriptModule):
        return bool(module._c._has_method("forward"))
    if isinstance(graph := getattr(module, "graph", None), torch.fx.Graph):  # of a program
        return len(graph.nodes) > 0
    return module is not None and type(module).forward is not torch.nn.Module.forward


LATER = re.compile(r"@\d+")  # torch.export's name for a later call of a module


@dataclass(frozen=True)
class TraceCall:
    """A call of a submodule in a trace: its path, its method ("forward", or "forward1" and so on
    for later calls), its arguments and results in lists and tuples, and its seconds."""

    path: str
    method: str
    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    seconds: float = 0.0


def body(module: Any, method: str) -> Any:
    return module.graph if method == "forward" else getattr(module, method).graph


class Flattener:
    """Inlines forward() of a module from `torch.jit.trace`, fresh or loaded, into one flat graph,
    whose inputs have these names and the shapes and dtypes of `inputs`. `allowed` says whether it
    may contain an operator. `programs` are the `engine.pytorch.watch.program_lines` of a module
    traced here; a loaded trace has none, and the files that it names are not read."""

    def __init__(
        self,
        module: torch.jit.ScriptModule,
        input_names: tuple[str, ...],
        inputs: tuple[torch.Tensor, ...],
        allowed: Callable[[str], bool] = lambda kind: True,
        programs: Programs | None = None,
    ) -> None:
        self.programs = programs
        self.module, self.allowed, self.visited = module, allowed, 0
        self.graph: Any = torch._C.Graph()  # its methods have no stubs
        self.flat = FlatTrace(self.graph, input_names)
        self.inputs = []
        for name, tensor in zip(input_names, inputs, strict=True):
            value = self.graph.addInput(name)
            value.inferTypeFrom(tensor)
            self.inputs.append(value)
        self.parameters: dict[str, Any] = {}
        # Tied parameters are one tensor under several names: the first name stands for all.
        self.first_name: dict[tuple[Any, ...], str] = {}
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            self.first_name.setdefault(_identity(tensor), name)
        self.modules: dict[str, Any] = {"": module}
        self.tensors = inputs
        self.watching: str | None = None
        # Calls as values of the graph, with the values of their start and end times.
        self.calls: list[tuple[TraceCall, Any, Any]] = []

    def run(self, call: TraceCall | None = None) -> FlatTrace:
        """The flat graph of forward(), or of a call, whose arguments contain the inputs, in order,
        each once. Refused: control flow around submodules, results other than tensors, an operator
        that is not allowed, too long a graph (kind "operator"), and a wrong number of inputs (kind
        "input")."""
        graph = body(self.module, "forward" if call is None else call.method)
        formal = list(graph.inputs())[1:]
        if call is not None:
            wanted = zip(call.arguments, formal, strict=True)
            arguments = [self.argument(given, f.type()) for given, f in wanted]
        else:
            arguments = self.given()
        results = self.inline(graph, "", [_Module(""), *arguments])
        for value in _flat_outputs(results):
            if value.type().kind() != "TensorType":
                message = f"The model returns a value of type {value.type()}, not a tensor."
                hint = "Return tensors, or tuples, lists or dicts of them."
                origin = self.flat.origins.get(name := value.debugName())
                raise EngineError("operator", message, origin.where if origin else name, hint)
            self.graph.registerOutput(value)
        torch._C._jit_pass_lower_all_tuples(self.graph)
        drawn = [self.flat.origin(n) for n, _ in self.flat.draws()]
        torch._C._jit_pass_dce(self.graph)
        left = {self.flat.origin(n) for n, _ in self.flat.draws()}
        if lost := [o for o in drawn if o not in left]:
            message = f"Nothing reads the result of {lost[0].operator}, which draws random numbers."
            raise EngineError("operator", message, lost[0].where, "Remove it from the model.")
        self.flat.tensors = {n: t for n, t in self.flat.tensors.items() if self.is_read(n)}
        return self.flat

    def given(self) -> list[Any]:
        nested = nesting(self.module)
        names = [leaf for name, one in nested for leaf in leaves(one, name)]
        if len(names) != len(self.inputs):
            message = f"forward() takes {len(names)} inputs, not {len(self.inputs)}."
            raise EngineError("input", message, ", ".join(names))
        inputs = iter(self.inputs)
        return [built(one, inputs) for _, one in nested]

    def argument(self, given: Any, kind: Any) -> Any:
        """A call's argument as a value of the graph; its tensors are inputs."""
        if isinstance(given, torch.Tensor):
            return next(v for v, t in zip(self.inputs, self.tensors, strict=True) if t is given)
        if not isinstance(given, list | tuple):
            return self.graph.insertConstant(given)
        return self.container(given, kind, self.argument)

    def container(self, parts: Sequence[Any], kind: Any, make: Callable[[Any, Any], Any]) -> Any:
        """A tuple or list; `make` makes a value from a part and its type."""
        tuples = kind.kind() == "TupleType"
        kinds = kind.elements() if tuples else [kind.getElementType()] * len(parts)
        values = [make(p, k) for p, k in zip(parts, kinds, strict=True)]
        return self.add(f"prim::{'Tuple' if tuples else 'List'}Construct", values, kind)

    def watched(self, path: str = "") -> list[TraceCall]:
        """Run forward(), and return the calls of submodules in the order in which they end: of the
        one at a path, with its arguments as passed, or of all, with arguments as left in the end.
        Raises what `run` does, and RuntimeError and others of torch's if it does not run."""
        self.watching = path
        self.call("", "forward", self.given())
        handed = [v for c, *times in self.calls for v in (*c.arguments, *c.results, *times)]
        returned(self.graph, handed)
        run = torch._C._create_function_from_graph("watched", self.graph)
        with torch.no_grad(), torch.jit.optimized_execution(False):
            values = iter(run(*(t.clone() for t in (*self.tensors, *self.flat.tensors.values()))))
        found = []
        for call, *_ in self.calls:
            parts = call.arguments, call.results
            arguments, results = (tuple(next(values) for _ in part) for part in parts)
            begun, ended = next(values), next(values)
            timed = arguments, results, (ended - begun) / 1e9
            found.append(TraceCall(call.path, call.method, *timed))
        return found

    def add(self, kind: str, inputs: list[Any], type_: Any) -> Any:
        """Add an operator that has no place in the order of execution."""
        node = self.graph.insertNode(self.graph.create(kind, inputs, 1))
        node.output().setType(type_)
        return node.output()

    def call(self, path: str, method: str, arguments: list[Any]) -> list[Any]:
        graph = body(self.submodule(path), method)
        if self.watching is None or self.watching not in ("", path):
            return self.inline(graph, path, [_Module(path), *arguments])
        kept = {v.debugName(): v for v in arguments}
        if self.watching:  # copies, because a later operator in place may change a tensor
            none = self.graph.insertConstant(None)
            for name, value in kept.items():
                if value.type().kind() == "TensorType":
                    kept[name] = self.add("aten::clone", [value, none], torch._C.TensorType.get())
        begun = self.add("prim::TimePoint", [], torch._C.IntType.get())
        made = self.inline(graph, path, [_Module(path), *arguments])
        ended = self.add("prim::TimePoint", [], torch._C.IntType.get())
        given = tuple(kept[v.debugName()] for v in arguments)
        self.calls.append((TraceCall(path, method, given, tuple(made)), begun, ended))
        return made

    def is_read(self, name: str) -> bool:
        """Whether a parameter is read; one that is not is removed from the inputs."""
        value = self.parameters[name]
        read = bool(value.uses())
        if not read:
            names = [v.debugName() for v in self.graph.inputs()]
            self.graph.eraseInput(names.index(value.debugName()))
        return read

    def inline(self, graph: Any, scope: str, arguments: list[Any]) -> list[Any]:
        """Append copies of a graph's nodes; recursion is as deep as modules nest."""
        formal = (value.debugName() for value in graph.inputs())
        values: dict[str, Any] = dict(zip(formal, arguments, strict=True))

        def resolve(value: Any) -> Any:
            return self.whole(values[value.debugName()], value.type())

        for node in graph.nodes():
            kind = node.kind()
            self.visited += 1
            if self.visited > _LONGEST:
                message = f"The trace has more than {_LONGEST:,} operators."
                where, hint = scope or "the top", "Open one of its submodules instead."
                raise EngineError("operator", message, where, hint)
            first = next((values.get(v.debugName()) for v in node.inputs()), None)
            parts = taken(node, first) if isinstance(first, dict) else None
            if parts is not None:
                names = (v.debugName() for v in node.outputs())
                values.update(zip(names, parts, strict=True))
            elif kind == "prim::GetAttr":
                result = self.attribute(resolve(node.input()), node.s("name"))
                values[node.output().debugName()] = result
            elif kind == "prim::CallMethod":
                seen = resolve if self.watching is not None else lambda v: values[v.debugName()]
                target, *rest = map(seen, node.inputs())
                (values[node.output().debugName()],) = self.call(target.path, node.s("name"), rest)
            elif kind == "prim::CallFunction":
                self.call_function(node, scope, values)
            else:
                self.copy(node, scope, values, resolve)
        return [resolve(v) for v in graph.outputs()]

    def whole(self, value: Any, kind: Any) -> Any:
        """An argument that is a tuple or list as one value, for an operator that reads it whole."""
        if not isinstance(value, dict):
            return value
        if kind.kind() not in ("TupleType", "ListType"):
            message = "forward() reads a dict argument as a whole."
            raise EngineError("operator", message, "forward()", "Read it key by key.")
        return self.container([*value.values()], kind, self.whole)

    def copy(
        self, node: Any, scope: str, values: dict[str, Any], resolve: Callable[[Any], Any]
    ) -> None:
        kind = node.kind()
        for inner in reached([node], lambda n: (m for b in n.blocks() for m in b.nodes())):
            if inner is not node and inner.kind() in ("prim::CallMethod", "prim::GetAttr"):
                message = f"A branch or loop ({kind}) uses a submodule or parameter."
                where = TraceOrigin(scope, kind, -1, *self.line(node)).where
                raise EngineError("operator", message, where, _TRACE_HINT)
            if not self.allowed(inner.kind()):
                message = f"The file uses the operator {inner.kind()}, which no trace contains."
                where = TraceOrigin(scope, inner.kind(), -1, *self.line(inner)).where
                raise EngineError("operator", message, where, _TRACE_HINT)
        clone = self.graph.createClone(node, resolve)
        self.graph.insertNode(clone)
        origin = TraceOrigin(scope, kind, self.flat.ordinal, *self.line(node))
        for index, (old, new) in enumerate(zip(node.outputs(), clone.outputs(), strict=True)):
            # Debug names survive copies of the graph; node objects do not.
            new.setDebugName(f"n{origin.ordinal}_{index}")
            self.flat.origins[new.debugName()] = origin
            values[old.debugName()] = new
        self.flat.ordinal += 1

    def line(self, node: Any) -> tuple[str, str]:
        frames = "" if node.kind() == "prim::Constant" else node.sourceRange()
        return line_of(frames_in(frames), self.programs or {}, self.programs is not None)

    def call_function(self, node: Any, scope: str, values: dict[str, Any]) -> None:
        """Inline a scripted function by torch's own inliner, because it contains no module."""
        small: Any = torch._C.Graph()
        function, *arguments = list(node.inputs())
        callee = small.insertNode(small.createClone(function.node(), lambda v: v))
        inner = {function.debugName(): callee.output()}
        for value in arguments:
            if value.debugName() not in inner:
                inner[value.debugName()] = added = small.addInput()
                added.setType(value.type())
        call = small.insertNode(small.createClone(node, lambda v: inner[v.debugName()]))
        small.registerOutput(call.output())
        torch._C._jit_pass_inline(small)
        names = [n for n in inner if n != function.debugName()]
        (values[node.output().debugName()],) = self.inline(small, scope, [values[n] for n in names])

    def attribute(self, owner: Any, name: str) -> Any:
        path = f"{owner.path}.{name}" if owner.path else name
        value = getattr(self.submodule(owner.path), name)
        if isinstance(value, torch.nn.Module):
            return _Module(path)
        if isinstance(value, torch.Tensor):
            return self.parameter(self.first_name.get(_identity(value), path), value)
        packed = isinstance(value, torch.ScriptObject)
        return self.graph.insertConstant(_repacked(value) if packed else value)

    def submodule(self, path: str) -> Any:
        if path not in self.modules:
            around, _, name = path.rpartition(".")
            self.modules[path] = getattr(self.submodule(around), name)
        return self.modules[path]

    def parameter(self, name: str, tensor: torch.Tensor) -> Any:
        if name not in self.parameters:
            value = self.graph.addInput(f"p{len(self.parameters)}")
            value.inferTypeFrom(tensor)
            self.parameters[name] = value
            self.flat.tensors[name] = tensor
        return self.parameters[name]


@dataclass(frozen=True)
class _Module:
    """Stands for a submodule among the values of a graph."""

    path: str


def returned(graph: Any, values: list[Any]) -> None:
    """Make a graph return one tuple of these values in place of its outputs."""
    whole = graph.create("prim::TupleConstruct", values, 1)
    graph.appendNode(whole)
    tensor = torch._C.TensorType.get()
    types = [v.type() for v in values]
    kinds: list[Any] = [tensor if t.kind() == "TensorType" else t for t in types]
    whole.output().setType(torch._C.TupleType(kinds))
    for index in reversed(range(len(list(graph.outputs())))):
        graph.eraseOutput(index)
    graph.registerOutput(whole.output())


def _repacked(packed: Any) -> Any:
    """Packed parameters, packed again: a graph cannot have a file's as a constant."""
    ops, kind = torch.ops.quantized, str(packed._type()).rpartition(".")[2]
    state = packed.__getstate__()[0] if kind in ("LinearPackedParamsBase", "CellParamsBase") else ()
    match state:
        case (torch.Tensor(is_quantized=True), _):
            return ops.linear_prepack(*state)
        case ("quantized_dynamic", biases, _, (reduced,), pair):
            return ops.make_quantized_cell_params_dynamic(*pair, *biases, bool(reduced))
    return packed


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    layout = tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())
    return tensor.data_ptr(), *layout, id(tensor) if tensor.numel() == 0 else 0


def _flat_outputs(values: list[Any]) -> list[Any]:
    """Outputs in order, with tuples, lists and dicts flattened, and None left out."""
    result: list[Any] = []
    todo = list(reversed(values))
    while todo:
        value = todo.pop()
        node = value.node()
        inner = list(node.inputs())
        if node.kind() in ("prim::TupleConstruct", "prim::ListConstruct"):
            todo.extend(reversed(inner))
        elif node.kind() == "prim::DictConstruct":
            todo.extend(reversed(inner[1::2]))
        elif value.type().kind() != "NoneType":
            result.append(value)
    return result
