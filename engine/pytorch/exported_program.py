"""Programs written by `torch.export.save` (`.pt2`), as modules that can be traced like others."""

import pickle
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from traceback import walk_tb
from typing import Any
from unittest.mock import patch

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, SymIntArgument
from torch.utils import _pytree as pytree

from relascope.core.errors import EngineError, reporting
from relascope.core.graph import TensorType
from relascope.core.place import environment
from relascope.engine.files import exported
from relascope.engine.files.archive import Archive, plainly
from relascope.engine.protocol.results import OpenSize
from relascope.engine.pytorch.inputs.tensors import Input, rows_of_program, tensor_type, with_rows

_TENSORS_ONLY = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}
"""Keeps torch from falling back to unpickling objects, which may run code."""


def reader() -> Any:
    """torch's reader of exported programs: an import of 800 modules that no other file needs."""
    from torch.export.pt2_archive._package import load_pt2

    return load_pt2


@contextmanager
def _without_classes(archive: Archive) -> Iterator[None]:
    """Have torch read inputs and outputs that are instances of classes as tuples.

    Otherwise torch would import the author's classes, and create instances of others as the file
    says. Example inputs in classes are left out.
    """
    from torch._export.serde import serialize

    whole = serialize.deserialize_torch_artifact

    def artifact(saved: Any) -> Any:
        try:
            return whole(saved)
        except pickle.UnpicklingError:
            if not exported.takes_classes(archive):
                raise
            return (), {}

    with (
        patch.object(serialize, "treespec_loads", exported.nesting),
        patch.object(serialize, "deserialize_torch_artifact", artifact),
    ):
        yield


class Exported:
    """A program as read from its file, with its inputs' types, in which an open dimension is the
    text of an expression, and the symbols' sizes in the example. Refused if it cannot be read
    without unpickling objects (kind "file"), or an input is neither a tensor nor a number (kind
    "input")."""

    def __init__(self, path: Path) -> None:
        self.path = path
        archive = Archive(path)
        exported.check_program(archive)
        load_pt2 = reader()
        if grouped := exported.LIBRARY.encode() in archive.read(exported.PROGRAM):
            self._learn_library()
        with self._reading(), environment(_TENSORS_ONLY), _without_classes(archive):
            # torch.export.load would retry with another reader what this one refuses.
            self.program = load_pt2(str(path)).exported_programs["model"]
        if grouped:  # by PyTorch's own operator, for which transformers' stands in an export
            for node in self.program.graph.nodes:
                if f"torch.ops.{node.target}" == exported.LIBRARY:
                    node.target = torch.ops.aten._grouped_mm.default
            self.program.graph_module.recompile()
        self._take_flat()
        self._take_inputs()
        self.sizes = self._sizes(exported.open_sizes(archive))

    def _take_inputs(self) -> None:
        program = self.program
        nodes = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
        specs = program.graph_signature.input_specs
        given = [s.arg.name for s in specs if s.kind == InputKind.USER_INPUT]
        values = dict(zip(given, map(nodes.get, given), strict=True))
        tensors = (n for n, v in values.items() if isinstance(v, torch.Tensor))
        self.values: dict[str, Any] = {n: values[n] for n in tensors}
        self._numbers = {n: v for n, v in values.items() if isinstance(v, torch.SymInt)}
        if strange := [n for n in values if n not in self.values and n not in self._numbers]:
            message = f"The program's input {strange[0]} is neither a tensor nor a number."
            hint = "Export a module whose inputs are tensors and numbers."
            raise EngineError("input", message, strange[0], hint)
        types = {n: tensor_type(v) for n, v in self.values.items()}
        inputs = (Input(n, t, seen=self._seen(n)) for n, t in types.items())
        self.inputs = with_rows(inputs, rows_of_program(program.graph))

    def _take_flat(self) -> None:
        """Have the program take tensors by position and return a tuple; other inputs are fixed."""
        program = self.program
        specs = program.graph_signature.input_specs
        nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
        count = sum(spec.kind == InputKind.USER_INPUT for spec in specs)
        for node, spec in zip(nodes, [*specs], strict=True):
            if isinstance(spec.arg, ConstantArgument):
                _fix(node, spec.arg.value)
                specs.remove(spec)
        signature = program.module_call_graph[0].signature
        leaf = pytree.treespec_leaf()
        users = [s for s in specs if s.kind == InputKind.USER_INPUT]
        given = sum(not isinstance(s.arg, SymIntArgument) for s in users)
        if (declared := signature.in_spec.num_leaves) != count:
            message = f"The program declares {declared} inputs, but has {count}."
            raise EngineError("file", message, self.path.name, "Export it again.")
        counts = given, signature.out_spec.num_leaves
        args, returned = (pytree.TreeSpec(tuple, None, [leaf] * count) for count in counts)
        signature.in_spec = pytree.TreeSpec(tuple, None, [args, pytree.TreeSpec(dict, [], [])])
        signature.out_spec = returned

    def _learn_library(self) -> None:
        """Register transformers' operator, which torch needs to read the program."""
        try:
            import transformers.integrations.moe  # noqa: F401
        except ImportError as missing:
            message = f"{self.path.name} uses an operator of transformers, which is not installed."
            hint = "Install it: pip install transformers."
            raise EngineError("file", message, self.path.name, hint) from missing

    def _seen(self, name: str) -> tuple[int, int] | None:
        """The smallest and largest of the example's integers."""
        leaves = pytree.tree_leaves(self.program.example_inputs)
        tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
        value = dict(zip(self.values, tensors, strict=False)).get(name)
        if not isinstance(value, torch.Tensor) or "int" not in str(value.dtype):
            return None
        return (int(value.min()), int(value.max())) if value.numel() else None

    def _sizes(self, known: dict[str, OpenSize]) -> tuple[OpenSize, ...]:
        """The symbols of the inputs' dimensions and numbers, with the places where they appear."""
        places: dict[str, list[str]] = {}
        for name, value in {**self.values, **self._numbers}.items():
            several = isinstance(value, torch.Tensor)
            for axis, size in enumerate(value.shape if several else [value]):
                for symbol in [] if isinstance(size, int) else size.node.expr.free_symbols:
                    here = f"{name}.{axis}" if several else name
                    whole = size.node.expr == symbol
                    text = here if whole else f"{here} = {size.node.expr}"
                    places.setdefault(str(symbol), []).append(text)
        return tuple(
            replace(known.get(s, OpenSize(s, 2, 2, None)), places=tuple(p))
            for s, p in places.items()
        )

    def pinned(
        self,
        pins: Iterable[tuple[str, int]],
        given: Mapping[str, TensorType],
        saved: Mapping[str, TensorType],
    ) -> dict[str, int]:
        """The size of each symbol: as pinned, else from the inputs' types as given or saved, else
        the example's. Refused (kind "input") if there is no such symbol or dimension, two sizes of
        one symbol differ, or the program does not take the size."""
        of = {one.symbol: one for one in self.sizes}
        fixed: dict[str, tuple[int, str]] = {}
        wanted = [(name, name, size) for name, size in pins]
        for name, kind in {**given, **saved}.items():
            self._check_type(name, kind, name in saved)
            wanted += [(f"{name}.{i}", name, int(size)) for i, size in enumerate(kind.shape)]
        for place, where, size in wanted:
            symbol, value = self._solved(place, where, size, of)
            if not symbol:
                continue
            if fixed.setdefault(symbol, (value, place))[0] != value:
                other, first = fixed[symbol]
                before = f"{first} makes {symbol}" if first != symbol else f"{symbol} is pinned to"
                message = f"{before} {other}, and {place} makes it {value}."
                raise EngineError("input", message, where, f"{_title(of[symbol])} has one size.")
            if value < of[symbol].least or value > (of[symbol].most or value):
                bounds = "{} or more" if of[symbol].most is None else "{} to {}"
                bounds = bounds.format(of[symbol].least, of[symbol].most)
                message = f"{_title(of[symbol])} is {value}, but the program takes {bounds}."
                raise EngineError("input", message, where)
        return {s: fixed[s][0] if s in fixed else one.size for s, one in of.items()}

    def _check_type(self, name: str, kind: TensorType, saved: bool) -> None:
        own = tensor_type(self.values[name])
        floats = all(getattr(torch, t.dtype).is_floating_point for t in (kind, own))
        hint = f"It takes {own}."
        if not saved and kind.dtype != own.dtype and not floats:
            message = f"{name} is given as {kind.dtype}, but the program takes {own.dtype}."
            raise EngineError("input", message, name, hint)
        if len(kind.shape) != len(own.shape):
            message = f"{name} has {len(kind.shape)} dimensions, not {len(own.shape)}."
            raise EngineError("input", message, name, hint)

    def _solved(
        self, place: str, where: str, size: int, of: Mapping[str, OpenSize]
    ) -> tuple[str, int]:
        """The symbol that a size at a place fixes, and its value; "" if none is open there."""
        if place in self._numbers:
            place = str(self._numbers[place].node.expr)
        if place in of:
            return place, size
        name, _, axis = place.partition(".")
        if name not in self.values or not axis or int(axis) >= self.values[name].dim():
            listed = ", ".join(p.partition(" ")[0] for one in self.sizes for p in one.places)
            message = f"The program has no open size {place!r}."
            hint = f"The open sizes are {listed}." if listed else "All its sizes are fixed."
            raise EngineError("input", message, place, hint)
        dim = self.values[name].shape[int(axis)]
        if isinstance(dim, int):
            if dim != size:
                message = f"{place} is {size}, but the program fixes it at {dim}."
                own = tensor_type(self.values[name])
                hint = f"{name} is {own}. Export it with this dimension dynamic."
                raise EngineError("input", message, where, hint)
            return "", 0
        (symbol, *others) = dim.node.expr.free_symbols
        slope = dim.node.expr.coeff(symbol, 1)
        rest = dim.node.expr - slope * symbol
        if others or rest.free_symbols or not slope:
            return "", 0  # checked when all sizes are filled in
        if (size - rest) % slope:
            message = f"{place} is {size}, but the program takes {dim.node.expr}."
            raise EngineError("input", message, where, f"Pin {symbol} instead.")
        return str(symbol), int((size - rest) / slope)

    def filled_in(self, sizes: Mapping[str, int]) -> tuple[torch.nn.Module, tuple[Input, ...]]:
        """The module with every open size fixed, in train or eval mode as exported, and its inputs.
        The tree of modules is rebuilt, with the exported model's module paths and parameter names.
        Sizes that the program does not take are refused (kind "input")."""
        program, inputs = self.program, []
        fixed: dict[str, torch.Tensor] = {}
        for one in self.inputs:
            like = self.values[one.name]
            dims = [int(_number(d, sizes)) for d in like.shape]
            inputs.append(replace(one, type=replace(tensor_type(like), shape=tuple(dims))))
            # unflatten's module compares its inputs with this.
            fixed[one.name] = torch.empty(dims, dtype=like.dtype, device="meta")
        specs = program.graph_signature.input_specs
        specs[:] = [s for s in specs if not isinstance(s.arg, SymIntArgument)]
        for node in [n for n in program.graph.nodes if n.op == "placeholder"]:
            if node.name in fixed:
                node.meta["val"] = fixed[node.name]
            elif node.name in self._numbers:
                _fix(node, _number(node.meta["val"], sizes))
        for inner in program.graph_module.modules():
            if isinstance(inner, torch.fx.GraphModule):
                _fill_in(inner, sizes, self.path.name)
        with self._reading():
            module = torch.export.unflatten(program)
        for path, inner in module.named_modules():
            _run_as_code(path, inner, sizes)
        return module, tuple(inputs)

    def _reading(self) -> AbstractContextManager[None]:
        """Report torch's errors."""
        message = f"PyTorch {torch.__version__} cannot load this program: "
        hint = "Save it with torch.export.save of this version, or save a torch.jit trace."
        where = self.path.name
        return reporting(lambda e: EngineError("file", f"{message}{_why(e)}.", where, hint))


def _why(wrong: Exception) -> str:
    """torch's reason, or for an error of sympy or Python, what it is about."""
    if isinstance(wrong, TypeError | AssertionError | ArithmeticError):
        for frame, _ in walk_tb(wrong.__traceback__):
            if frame.f_code.co_name == "deserialize_tensor_meta":
                sizes = [s.value for s in frame.f_locals["tensor_meta"].sizes]
                said = ", ".join(str(getattr(s, "expr_str", s))[:80] for s in sizes[:8])
                return f"a tensor in it has impossible sizes: [{said}]"
    lacks = re.fullmatch(r"(\w+)\.__init__\(\) missing .*?: (.*)", str(wrong))
    return f"a {lacks[1]} in it has no {lacks[2]}" if lacks else plainly(wrong)


def _title(size: OpenSize) -> str:
    return f"{size.symbol} ({', '.join(size.places)})"


def _number(value: Any, sizes: Mapping[str, int]) -> int | float | bool:
    if isinstance(value, int | float):
        return value
    expression = value.node.expr
    found = expression.subs({s: sizes[str(s)] for s in expression.free_symbols})
    if found in (True, False):
        return bool(found)
    return int(found) if isinstance(value, torch.SymInt) else float(found)


def _by_values(value: Any, sizes: Mapping[str, int]) -> bool:
    """Whether a size depends on values that only a run computes."""
    symbols = getattr(getattr(value, "node", None), "expr", value)
    return any(str(s) not in sizes for s in getattr(symbols, "free_symbols", ()))


def _not_in_a_trace(size: str, where: str) -> None:
    """Refuse, in a trace, a size that depends on a run's values: the trace would fix it."""
    if torch.jit.is_tracing():
        message = f"The size {size} depends on values that only a run computes."
        raise EngineError("operator", message, where, "Export the model without such a size.")


def _fill_in(module: torch.fx.GraphModule, sizes: Mapping[str, int], where: str) -> None:
    """Replace a graph's sizes by numbers, and remove the nodes that only check them."""
    graph = module.graph
    numbers: dict[torch.fx.Node, int | float | None] = {}
    open_: list[torch.fx.Node] = []
    for node in graph.nodes:
        _put(node, numbers)
        if node.op != "call_function":
            continue
        if isinstance(value := node.meta.get("val"), _SIZES):
            if _by_values(value, sizes):
                open_.append(node)
            else:
                numbers[node] = _number(value, sizes)
        elif (name := str(node.target)).startswith("aten._assert_scalar"):
            if node.args[0] is False or node.args[0] == 0:
                message = f"The program does not take these sizes: {node.args[1]}."
                raise EngineError("input", message[:300], where, "Pin other sizes.")
            numbers[node] = None
        elif name.startswith("aten.sym_constrain_range"):
            numbers[node] = None
    for node in (*reversed([*numbers]), *reversed(open_)):
        if node in numbers or not node.users:
            graph.erase_node(node)
    module.recompile()


def _run_as_code(path: str, module: torch.nn.Module, sizes: Mapping[str, int]) -> None:
    """Run a program's module as generated code, whose lines map to those of the model's source."""
    module.__dict__["_run_with_interpreter"] = False
    if own := getattr(module, "graph_module", None):
        refused = [n for n in own.graph.nodes if _by_values(n.meta.get("val"), sizes)]
        for node in refused:
            place = f"{node.name} in {path}" if path else node.name
            where = exported.at_line(place, exported.lines_in(node.meta.get("stack_trace") or ""))
            with own.graph.inserting_before(node):
                own.graph.call_function(_not_in_a_trace, (str(node.meta["val"]), where))
        mine = [n for n in own.graph.nodes if n.name == "self"]  # in the code, the module
        for node in mine:
            node._rename("self_")
        # Modules called twice were joined after their code was written.
        if mine or refused or "@" in own.code:
            own.recompile()


def _fix(node: torch.fx.Node, value: Any) -> None:
    for user in [*node.users]:
        _put(user, {node: value})
    node.graph.erase_node(node)


def _put(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> None:
    read = node.args, node.kwargs
    node.args, node.kwargs = torch.fx.node.map_arg(read, lambda n: values.get(n, n))


_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
