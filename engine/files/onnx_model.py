"""ONNX files: what stands in one is checked, and made plain for TVM's importers.

An importer gets a model of operators that it knows, with static shapes: functions are written out,
what only computes shapes is computed here by ONNX's own reference, and whole numbers and scalars
are constants. External data is read from files beside the model alone.
"""

import ast
import math
import os
import re
import stat
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relascope.core.errors import EngineError, lines_of
from relascope.core.graph import TensorType
from relascope.engine.files.onnx_forms import Form, chosen_branch, refused, rewritten
from relascope.engine.files.program_file import onnx_parts

OLDEST = 7
"""The first set of operators that is opened: before it, operators broadcast by other rules."""
_HINT = "Export it again; open it as it is only where you trust who made it."
_MOST_NODES = 200_000
_MOST_ELEMENTS = 1 << 31
_MOST_CONSTANT = 1 << 26
_FOLDED = 1 << 16
"""Elements of a tensor that is computed here rather than in the program."""

_SHAPES = """
    Shape Size Constant ConstantOfShape Cast CastLike Concat Gather GatherND GatherElements Slice
    Squeeze Unsqueeze Reshape Add Sub Mul Div Mod Neg Abs Floor Ceil Equal Less LessOrEqual Greater
    GreaterOrEqual And Or Not Where Range ReduceProd ReduceSum ReduceMax ReduceMin Min Max Expand
    Transpose Identity Flatten Split Tile Sqrt Pow Trilu CumSum ScatterND NonZero
"""
FOLDED = frozenset(_SHAPES.split())
"""What is computed here where all that it reads is constant and small."""

_BRANCHES = (("", "If"), ("ai.onnx", "If"))
"""Of which one side stands for it where what it reads is known."""

_AT_IMPORT = {
    "Reshape Expand Tile Squeeze Unsqueeze TopK Split CumSum Trilu AffineGrid CenterCropPad "
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare SplitToSequence": (1,),
    "OneHot": (1, 2),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 2, 3),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "MaxUnpool": (2,),
    "Dropout": (1, 2),
    "DFT": (1, 2),
    "BlackmanWindow HannWindow HammingWindow": (0,),
    "NonMaxSuppression": (2, 3, 4),
    "Compress": (1,),
    "Loop": (0, 1),
    "If": (0,),
}
AT_IMPORT = {op: places for ops, places in _AT_IMPORT.items() for op in ops.split()}
"""Inputs of operators that decide shapes, or which operators there are: known when a model is
imported, or it is refused."""

_DTYPES = """
    - float32 uint8 int8 uint16 int16 int32 int64 - bool float16 float64 uint32 uint64 - - bfloat16
"""
DTYPES = {i: d for i, d in enumerate(_DTYPES.split()) if d != "-"}
"""Names of ONNX's types of elements, of those that programs here have."""


@dataclass(frozen=True)
class OnnxNode:
    """Where a node of an ONNX model comes from.

    Args:
        scope: path of the framework's module, where the exporter wrote it.
        operator: "MatMul"; with its domain where that is not ONNX's own.
        name: that the file gives it.
    """

    scope: str
    operator: str
    name: str

    @property
    def where(self) -> str:
        """For an error's `where`."""
        named = self.scope or self.name
        return f"{self.operator} in {named}" if named else self.operator


@dataclass(frozen=True)
class OnnxModel:
    """A model as importers take it.

    Args:
        model: the ModelProto; the name of a node is its place in `nodes`, as text.
        given: the ModelProto as its file has it, with its external data.
        opset: of ONNX's own operators.
        inputs: (name, type); in `model` they bear these names, in the file those of `names`.
        names: of the inputs in the file.
        weights: values of the tensors that are arguments of the program, by name.
        outputs: types of what it returns.
        types: of every tensor whose type is known.
        nodes: where each node comes from.
        notes: sentences for people.
    """

    model: Any
    given: Any
    opset: int
    inputs: tuple[tuple[str, TensorType], ...]
    names: tuple[str, ...]
    weights: Mapping[str, np.ndarray]
    outputs: tuple[TensorType, ...]
    types: Mapping[str, TensorType]
    nodes: tuple[OnnxNode, ...]
    notes: tuple[str, ...]


def read_onnx(path: Path) -> Any:
    """The ModelProto of a file, with its external data.

    Raises:
        EngineError: kind "file"; it is no model, or what it declares is refused; kind "engine"
            where the package onnx is not installed.
    """
    onnx = _onnx()
    data, packed = onnx_parts(path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as wrong:  # protobuf has an error class for each of its implementations
        message = f"{path.name} is not opened: it is no ONNX model, or cut short."
        raise EngineError("file", message, path.name, "Write it again.") from wrong
    if not model.HasField("graph") or not model.graph.output:
        message = f"{path.name} is not opened: it has no graph with an output."
        raise EngineError("file", message, path.name, "Write it again.")
    for tensor in _tensors(model.graph, path.name):
        _load_external(tensor, path, packed)
    return model


def _onnx() -> Any:
    try:
        import onnx
        import onnx.helper
        import onnx.inliner
        import onnx.shape_inference
    except ImportError as wrong:
        message = "This is an ONNX file, and the package onnx is not installed."
        raise EngineError("engine", message, "onnx", "Install it: pip install onnx.") from wrong
    return onnx


def _refused(name: str, why: str, where: str = "") -> EngineError:
    return EngineError("file", f"{name} is not opened: {why}.", where or name, _HINT)


def _graphs(graph: Any, depth: int = 0) -> Iterator[Any]:
    """A graph and those in its nodes."""
    yield graph
    if depth > 20:
        return
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs(inner, depth + 1)


def _tensors(graph: Any, name: str) -> Iterator[Any]:
    for one in _graphs(graph):
        if len(one.node) > _MOST_NODES:
            raise _refused(name, f"it has more than {_MOST_NODES:,} nodes")
        if one.sparse_initializer:
            raise _refused(name, "it has sparse tensors")
        yield from one.initializer
        for node in one.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _load_external(tensor: Any, path: Path, packed: Mapping[str, bytes]) -> None:
    """Read a tensor's data from a file in the model's folder, and check what it declares.

    Args:
        packed: the files that came with the model in one archive.
    """
    elements = math.prod(tensor.dims)
    where = f"{path.name}: {tensor.name[:200]}"
    if min(tensor.dims, default=0) < 0 or elements > _MOST_ELEMENTS:
        shape = "x".join(map(str, tensor.dims))[:200]
        raise _refused(path.name, f"a tensor in it has the shape {shape}", where)
    if tensor.data_location != tensor.EXTERNAL:
        return
    about = {e.key: e.value for e in tensor.external_data}
    place = about.get("location", "")
    parts = Path(place).parts
    if not place or "\0" in place or Path(place).is_absolute() or ".." in parts or "\\" in place:
        raise _refused(path.name, f"its data is to be read from {place[:200]!r}", where)
    folder, file = path.parent.resolve(), path.parent / place
    if place not in packed and not file.exists():
        message = f"{path.name} has its weights in another file, {place[:200]!r}, which is not in"
        message += " its folder."
        hint = "Put both into one folder and open it there, or save it with the weights inside."
        raise EngineError("file", message, where, hint)
    plain = place in packed or stat.S_ISREG(os.stat(file).st_mode)
    if not plain or not file.resolve().is_relative_to(folder):
        raise _refused(path.name, f"its data is to be read from {place[:200]!r}", where)
    try:
        offset = int(about.get("offset", 0))
        size = len(packed[place]) if place in packed else file.stat().st_size
        length = int(about.get("length", size - offset))
    except ValueError as wrong:
        raise _refused(path.name, "the place of its data is no number", where) from wrong
    item = _item_bytes(tensor.data_type)
    if offset < 0 or length < 0 or offset + length > size or length != math.ceil(elements * item):
        raise _refused(path.name, f"its data is not where it says, in {place[:200]!r}", where)
    if place in packed:
        tensor.raw_data = packed[place][offset : offset + length]
    else:
        with file.open("rb") as data:
            data.seek(offset)
            tensor.raw_data = data.read(length)
    del tensor.external_data[:]
    tensor.data_location = tensor.DEFAULT


def _item_bytes(kind: int) -> float:
    name = DTYPES.get(kind)
    return (2 if name == "bfloat16" else np.dtype(name).itemsize) if name else math.nan


def prepare(
    given: Any,
    known: Collection[str],
    ir: str,
    name: str,
    types: tuple[tuple[str, TensorType], ...] = (),
) -> OnnxModel:
    """Make a model plain for an importer.

    Args:
        given: as `read_onnx` has it.
        known: operators that the importer has, of ONNX's own domain.
        ir: for people.
        name: of the file.
        types: of the inputs, by name or in their order, where the file leaves sizes open.

    Raises:
        EngineError: kind "file", kind "operator" (names all that are not known, with counts), or
            kind "input".
    """
    onnx = _onnx()
    opset = _opset(given, name)
    _check_order(given, name)
    model = onnx.ModelProto()
    model.CopyFrom(given)
    if model.functions:
        _check_functions(model, name)
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as wrong:  # ONNX's own raises what it likes
            why = f"its functions cannot be written out: {lines_of(wrong)[-1][:200]}"
            raise _refused(name, why) from wrong
    names, inputs = _fix_inputs(model, name, types)
    _scopes(model)
    may_go = {
        (n.domain, n.op_type)
        for graph in _graphs(model.graph)
        for n in graph.node
        if n.op_type in FOLDED
        or (n.domain, n.op_type) in _BRANCHES
        or _is_function(onnx, n.domain, n.op_type, opset, model)
    }
    _check_known(model, known, ir, may_go)  # before types are sought, which fails over others
    types_of, model = _folded(onnx, model, opset, name)
    bodies = _without_functions(onnx, model, known, opset, name, ir, types_of)
    if _rewrite(onnx, bodies, types_of, opset) or bodies is not model:
        types_of, model = _folded(onnx, bodies, opset, name)
    _check_known(model, known, ir)
    _check_sizes(model, types_of, name)
    _check_forms(onnx, model, types_of, ir, opset)
    _check_at_import(model)
    weights = _weights(onnx, model, types_of)
    nodes = []
    for index, node in enumerate(model.graph.node):
        nodes.append(_node_of(node))
        node.name = str(index)
        del node.metadata_props[:]
    outputs = tuple(
        _static(types_of.get(o.name), o.name, "output", name) for o in model.graph.output
    )
    notes = (f"An ONNX model of operator set {opset}, written by {_producer(given)}.",)
    return OnnxModel(
        model, given, opset, inputs, names, weights, outputs, types_of, tuple(nodes), notes
    )


def _producer(model: Any) -> str:
    said = f"{model.producer_name} {model.producer_version}".strip()
    return said[:100] if said.isprintable() and said else "an exporter that does not say its name"


def _opset(model: Any, name: str) -> int:
    onnx = _onnx()
    own = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if len(own) != 1:
        raise _refused(name, "it does not say which operator set it is of")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= own[0] <= newest:
        message = f"{name} is of operator set {own[0]}, and {OLDEST} to {newest} are opened."
        hint = "Export it again, or convert it: onnx.version_converter.convert_version(model, 18)."
        raise EngineError("file", message, name, hint)
    return int(own[0])


def _check_order(model: Any, name: str) -> None:
    """Nodes stand after those that they read, and no name is given twice."""

    def check(graph: Any, outer: frozenset[str]) -> None:
        seen = set(outer)
        own = [*(i.name for i in graph.input), *(t.name for t in graph.initializer)]
        seen.update(own)
        for node in graph.node:
            where = f"{name}: {node.op_type} {node.name}"[:300]
            if missing := [i for i in node.input if i and i not in seen]:
                why = f"{node.op_type} reads {missing[0][:100]!r}, which nothing before it makes"
                raise _refused(name, why, where)
            for attribute in node.attribute:
                inner = [attribute.g] if attribute.HasField("g") else []
                for one in (*inner, *attribute.graphs):
                    check(one, frozenset(seen))
            for made in filter(None, node.output):
                if made in seen:
                    raise _refused(name, f"{made[:100]!r} is made twice", where)
                seen.add(made)
        if missing := [o.name for o in graph.output if o.name not in seen]:
            raise _refused(name, f"nothing makes its output {missing[0][:100]!r}")

    try:
        check(model.graph, frozenset())
    except RecursionError as wrong:
        raise _refused(name, "its graphs are nested too deeply") from wrong


def _check_functions(model: Any, name: str) -> None:
    """Refuse functions that call themselves, which could not be written out."""
    bodies = {(f.domain, f.name): f for f in model.functions}
    done: dict[Any, int] = {}
    for root in bodies:
        todo = [(root, False)]
        while todo:
            one, left = todo.pop()
            if left:
                done[one] = 2
            elif done.get(one, 0) == 0 and one in bodies:
                done[one] = 1
                todo.append((one, True))
                called = {(n.domain, n.op_type) for n in bodies[one].node} & bodies.keys()
                if any(done.get(c) == 1 for c in called):
                    raise _refused(name, f"its function {one[1][:100]!r} calls itself")
                todo += [(c, False) for c in called]
    sizes = {k: len(f.node) for k, f in bodies.items()}
    for _ in range(len(bodies)):
        grown = {
            k: sum(sizes.get((n.domain, n.op_type), 1) for n in f.node) for k, f in bodies.items()
        }
        if grown == sizes:
            break
        sizes = grown
        if max(sizes.values()) > _MOST_NODES:
            raise _refused(name, f"its functions are more than {_MOST_NODES:,} nodes")


def _without_functions(
    onnx: Any,
    model: Any,
    known: Collection[str],
    opset: int,
    name: str,
    ir: str,
    types: Mapping[str, TensorType],
) -> Any:
    """Operators that the importer does not have, or has wrong, written as others, where ONNX
    defines them so; the same model where there are none."""
    constants = _constants(onnx, model)
    for _ in range(4):
        unknown = set()
        for graph in _graphs(model.graph):
            unknown |= {
                (n.domain, n.op_type)
                for n in graph.node
                if not _has(n, known) or refused(ir, Form(n, types, constants, opset))
            }
        wanted = [u for u in unknown if _is_function(onnx, *u, opset, model)]
        if not wanted:
            break
        spelled = [(domain or "", op) for domain, op in wanted]
        before, inline = model, onnx.inliner.inline_selected_functions
        try:
            model = inline(before, spelled, False, True)
        except Exception:  # ONNX's own raises what it likes: then they are named as not known
            break
        if model.graph == before.graph:
            break
    return model


def _is_function(onnx: Any, domain: str, op: str, opset: int, model: Any) -> bool:
    versions = {o.domain: o.version for o in model.opset_import}
    try:
        schema = onnx.defs.get_schema(op, versions.get(domain, opset), domain)
    except Exception:  # SchemaError, which has no stable place
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _has(node: Any, known: Collection[str]) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in known


def _check_known(
    model: Any, known: Collection[str], ir: str, may_go: Collection[tuple[str, str]] = ()
) -> None:
    counts: Counter[str] = Counter()
    where: dict[str, str] = {}
    for graph in _graphs(model.graph):
        for node in graph.node:
            if not _has(node, known) and (node.domain, node.op_type) not in may_go:
                named = (
                    node.op_type
                    if node.domain in ("", "ai.onnx")
                    else f"{node.domain}.{node.op_type}"
                )
                counts[named] += 1
                where.setdefault(named, _node_of(node).where)
    if counts:
        listed = ", ".join(f"{op} ({n} times)" if n > 1 else op for op, n in counts.most_common())
        message = f"TVM's importer of ONNX for {ir.title()} does not have: {listed}."
        raise EngineError("operator", message, where[counts.most_common(1)[0][0]])


def _constants(onnx: Any, model: Any) -> dict[str, np.ndarray]:
    """The small tensors that are known, by name."""
    return {
        t.name: onnx.numpy_helper.to_array(t)
        for t in model.graph.initializer
        if t.data_type in DTYPES and math.prod(t.dims) <= 64
    }


def _rewrite(onnx: Any, model: Any, types: Mapping[str, TensorType], opset: int) -> bool:
    """Write operators that importers make wrong as others, where that is known; whether any."""
    constants, nodes, changed = _constants(onnx, model), [], False
    prefix = "_"
    while any(o.startswith(prefix) for n in model.graph.node for o in n.output):
        prefix += "_"
    for index, node in enumerate(model.graph.node):
        written = rewritten(Form(node, types, constants, opset), f"{prefix}{index}_")
        changed = changed or bool(written)
        nodes += written or [node]
    if changed:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    return changed


def _check_forms(
    onnx: Any, model: Any, types: Mapping[str, TensorType], ir: str, opset: int
) -> None:
    """Refuse what TVM's importer makes wrong, all of it at once, and what has no elements."""
    constants = _constants(onnx, model)
    forms = [(refused(ir, Form(node, types, constants, opset)), node) for node in model.graph.node]
    if named := Counter(form for form, _ in forms if form):
        listed = ", ".join(f"{f} ({n} times)" if n > 1 else f for f, n in named.most_common())
        message = f"TVM's importer of ONNX for {ir.title()} makes something else of {listed}."
        where = next(_node_of(node).where for form, node in forms if form)
        raise EngineError("operator", message, where)
    for node in model.graph.node:
        made = next((t for o in node.output if (t := types.get(o)) and 0 in t.shape), None)
        if made and node.op_type != "Constant":
            message = f"This {node.op_type} makes {made}, and a tensor without elements (a"
            message += " dimension of 0) cannot be built."
            raise EngineError("operator", message, _node_of(node).where)


def _check_at_import(model: Any) -> None:
    made = {t.name for t in model.graph.initializer}
    made |= {o for n in model.graph.node if n.op_type == "Constant" for o in n.output}
    given = {i.name for i in model.graph.input}
    for node in model.graph.node:
        for place in AT_IMPORT.get(node.op_type, ()):
            read = node.input[place] if place < len(node.input) else ""
            if read and read not in made:
                whose = f"the input {read!r}" if read in given else "values of its inputs"
                message = f"What {node.op_type} makes has a shape that {whose} decides."
                hint = "Programs here have static shapes: make it a constant of the model."
                raise EngineError("operator", message, _node_of(node).where, hint)


_SAFE = re.compile(r"\W", re.ASCII)


def _fix_inputs(
    model: Any, name: str, types: tuple[tuple[str, TensorType], ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, TensorType], ...]]:
    """Give the inputs names and sizes; their names in the file, and what they are now."""
    held = {t.name for t in model.graph.initializer}
    values = [i for i in model.graph.input if i.name not in held]
    del model.graph.input[:]
    own = tuple(v.name for v in values)
    taken = held | {o for n in model.graph.node for o in n.output}
    safe: dict[str, str] = {}
    for one in own:
        new = _SAFE.sub("_", one) or "x"
        new = new if new[0].isalpha() or new[0] == "_" else f"x_{new}"
        while new in taken - {one} or new in safe.values():
            new += "_"
        safe[one] = new
    listed = ", ".join(safe.values())
    by_name = {n: t for n, t in types if n}
    if strange := [n for n in by_name if n not in safe.values()]:
        message = f"The model has no input {strange[0]!r}; it takes {listed}."
        raise EngineError("input", message, strange[0])
    if types and len(types) != len(own):
        message = f"The model takes {len(own)} inputs ({listed}), not {len(types)}."
        raise EngineError("input", message, listed)
    rest = iter([t for n, t in types if not n])
    fixed = []
    for value in values:
        new = safe[value.name]
        asked = by_name[new] if new in by_name else next(rest, None)
        fixed.append((new, _input_type(value, new, asked, listed, name)))
        value.name = new
        kind = value.type.tensor_type
        kind.ClearField("shape")
        kind.shape.SetInParent()
        for size in fixed[-1][1].shape:
            kind.shape.dim.add().dim_value = int(size)
        model.graph.input.append(value)
    for graph in _graphs(model.graph):
        for node in graph.node:
            for place, read in enumerate(node.input):
                if read in safe:
                    node.input[place] = safe[read]
        for output in graph.output:
            output.name = safe.get(output.name, output.name)
    return own, tuple(fixed)


def _input_type(
    value: Any, new: str, asked: TensorType | None, listed: str, name: str
) -> TensorType:
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "nothing"
        message = f"The input {new} is a {kind.removesuffix('_type')}, and no tensor."
        raise EngineError("operator", message, new)
    kind = value.type.tensor_type
    dtype = DTYPES.get(kind.elem_type, "")
    if not dtype:
        message = f"The input {new} has elements of a type that programs here do not have."
        raise EngineError("operator", message, new)
    dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
    spelled = "x".join(
        str(d) if d else d2.dim_param or "?" for d, d2 in zip(dims, kind.shape.dim, strict=True)
    )
    if asked is not None:
        fits = not kind.HasField("shape") or len(asked.shape) == len(dims)
        fits = fits and all(d in (None, 0, int(s)) for d, s in zip(dims, asked.shape, strict=True))
        if not fits or asked.dtype not in (dtype, "float32"):
            message = f"The input {new} is {spelled}:{dtype} in the file, not {asked}."
            raise EngineError("input", message, new)
        return TensorType(asked.shape, dtype)
    sizes = [d for d in dims if d is not None]
    if not kind.HasField("shape") or len(sizes) < len(dims):
        message = f"The file leaves sizes of the input {new} open: {spelled or 'all'}."
        hint = f"Give one type an input ({listed}), such as {new}=1x14:{dtype}."
        raise EngineError("input", message, listed, hint)
    if math.prod(sizes) > _MOST_ELEMENTS or min(sizes, default=1) < 0:
        raise _refused(name, f"its input {new} has the shape {spelled[:200]}", new)
    if 0 in sizes:
        message = "A tensor without elements (a dimension of 0) cannot be imported."
        raise EngineError("operator", message, new)
    return TensorType(tuple(sizes), dtype)


_SCOPES = "pkg.torch.onnx.name_scopes"


def _scopes(model: Any) -> None:
    """Write the framework's module into the name of each node, which is all that stays."""
    for node in model.graph.node:
        said = {p.key: p.value for p in node.metadata_props}.get(_SCOPES, "")
        try:
            paths = [p for p in ast.literal_eval(said) if isinstance(p, str)] if said else []
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            paths = []
        if len(paths) > 1:
            name = (node.name or node.op_type).replace("/", "_")
            node.name = "/" + paths[-2].replace(".", "/") + "/" + name


def _node_of(node: Any) -> OnnxNode:
    parts = [p for p in node.name.split("/") if p]
    plain = node.name.startswith("/") and all(len(p) < 100 for p in parts)
    scope = ".".join(parts[:-1]) if plain else ""
    domain = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
    return OnnxNode(scope, f"{domain}{node.op_type}", node.name[:200])


def _folded(onnx: Any, model: Any, opset: int, name: str) -> tuple[dict[str, TensorType], Any]:
    """The types of all tensors, and a model without what only computes shapes."""
    types: dict[str, TensorType] = {}
    for _ in range(12):
        try:
            inferred = onnx.shape_inference.infer_shapes(model)
        except Exception as wrong:
            said = f"its shapes do not fit: {' '.join(str(wrong).split())[:300]}"
            raise _refused(name, said) from wrong
        # Not from the file: what it says of shapes may be for other inputs.
        graph = inferred.graph
        values = (*graph.value_info, *graph.output, *graph.input)
        types = {v.name: t for v in values if (t := _type(v)) is not None}
        for t in model.graph.initializer:
            if t.data_type in DTYPES:
                types[t.name] = TensorType(tuple(t.dims), DTYPES[t.data_type])
        _plain_casts(onnx, model.graph, types)
        if not _fold_once(onnx, model, types, opset, name):
            break
    return types, model


def _plain_casts(onnx: Any, graph: Any, types: Mapping[str, TensorType]) -> None:
    """Write a cast to another tensor's type as one to that type, which reads nothing of it."""
    kinds = {d: i for i, d in DTYPES.items()}
    for node in graph.node:
        like = types.get(node.input[1]) if node.op_type == "CastLike" else None
        if like is not None and node.domain in ("", "ai.onnx"):
            node.op_type = "Cast"
            del node.input[1:]
            node.attribute.append(onnx.helper.make_attribute("to", kinds[like.dtype]))


def _type(value: Any) -> TensorType | None:
    kind = value.type.tensor_type
    known = value.type.HasField("tensor_type") and kind.HasField("shape")
    if not known or kind.elem_type not in DTYPES:
        return None
    if not all(d.HasField("dim_value") and d.dim_value >= 0 for d in kind.shape.dim):
        return None
    return TensorType(tuple(d.dim_value for d in kind.shape.dim), DTYPES[kind.elem_type])


def _fold_once(
    onnx: Any, model: Any, types: Mapping[str, TensorType], opset: int, name: str
) -> bool:
    from onnx.reference import ReferenceEvaluator

    graph = model.graph
    constant: dict[str, np.ndarray] = {}
    small = {t.name for t in graph.initializer if math.prod(t.dims) <= _FOLDED}
    held = {t.name: t for t in graph.initializer if t.name in small}
    read_inside = {i for g in _graphs(graph) if g is not graph for n in g.node for i in n.input}

    def value(of: str) -> np.ndarray | None:
        if of not in constant and of in held and held[of].data_type in DTYPES:
            constant[of] = onnx.numpy_helper.to_array(held[of])
        return constant.get(of)

    kept, changed = [], False
    for node in graph.node:
        made: list[Any] | None = None
        plain = node.domain in ("", "ai.onnx") and node.op_type in FOLDED
        if plain and node.op_type in ("Shape", "Size") and node.input[0] in types:
            shape = types[node.input[0]].shape
            sizes = np.array([int(d) for d in shape], dtype=np.int64)
            ends = {a.name: a.i for a in node.attribute}
            if node.op_type == "Size":
                made = [np.array(math.prod(sizes.tolist()), dtype=np.int64)]
            else:
                made = [sizes[ends.get("start", 0) : ends.get("end", len(sizes))]]
        elif plain and all(value(i) is not None for i in node.input if i):
            outputs = [types.get(o) for o in node.output]
            little = all(t is None or math.prod(map(int, t.shape)) <= _FOLDED for t in outputs)
            try:
                count = _elements(node, constant)
            except ValueError as wrong:
                why = f"its {node.op_type} {wrong}"
                raise _refused(name, why, _node_of(node).where) from wrong
            if count > _MOST_CONSTANT:
                why = f"its {node.op_type} makes a constant of {count:,} elements, and"
                why += f" {_MOST_CONSTANT:,} are the most"
                raise _refused(name, why, _node_of(node).where)
            if little and count <= _FOLDED:
                one = onnx.helper.make_graph(
                    [node],
                    "one",
                    [],
                    [onnx.ValueInfoProto(name=o) for o in node.output if o],
                    [onnx.numpy_helper.from_array(constant[i], i) for i in {*node.input} if i],
                )
                try:
                    imports = [onnx.helper.make_opsetid("", opset)]
                    alone = onnx.helper.make_model(one, opset_imports=imports)
                    with warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")
                        made = [np.asarray(v) for v in ReferenceEvaluator(alone).run(None, {})]
                except Exception:  # then the importer says what is wrong with it
                    made = None
        elif (node.domain, node.op_type) in _BRANCHES:
            condition = value(node.input[0])
            if condition is not None and condition.size == 1:
                nodes, tensors = chosen_branch(onnx, node, bool(condition.reshape(-1)[0]))
                kept += nodes
                graph.initializer.extend(tensors)
                changed = True
                continue
        if made is None or any(v.dtype == object or v.size > _FOLDED for v in made):
            kept.append(node)
            continue
        changed = True
        constant.update(zip([o for o in node.output if o], made, strict=True))
    if not changed:
        return False
    wanted = {i for n in kept for i in n.input} | {o.name for o in graph.output} | read_inside
    tensors = [
        onnx.numpy_helper.from_array(v, n)
        for n, v in constant.items()
        if n in wanted and n not in held
    ]
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(tensors)
    return True


def _elements(node: Any, constant: Mapping[str, np.ndarray]) -> int:
    """How many elements a node makes of constants, where inference may not tell; 0 where it does.

    Raises:
        ValueError: none can be made so; the message continues a sentence about the node.
    """
    inputs = [constant[i] for i in node.input if i]
    if node.op_type == "Range":
        if any(v.size != 1 for v in inputs):
            raise ValueError("counts between what are no single numbers")
        start, limit, delta = (v.reshape(-1)[0].item() for v in inputs)
        if not (math.isfinite(start) and math.isfinite(limit) and delta and math.isfinite(delta)):
            raise ValueError(f"counts from {start} to {limit} by {delta}, which does not end")
        return max(0, math.ceil((limit - start) / delta))
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        sizes = [int(s) for s in inputs[-1].reshape(-1).tolist()]
        if min(sizes, default=0) < 0:
            raise ValueError(f"has a size below 0 among {sizes}"[:200])
        if node.op_type == "ConstantOfShape":
            return math.prod(sizes)
        return math.prod(max(1, s) for s in sizes) * inputs[0].size
    return 0


def _check_sizes(model: Any, types: Mapping[str, TensorType], name: str) -> None:
    """Refuse tensors, and constants that TVM would compute of small ones, of too many elements."""
    fixed = {t.name for t in model.graph.initializer if math.prod(t.dims) <= _FOLDED} | {""}
    for node in model.graph.node:
        computed = fixed.issuperset(node.input)
        fixed |= set(node.output) if computed else set()
        most = _MOST_CONSTANT if computed and node.op_type != "Constant" else _MOST_ELEMENTS
        for kind in filter(None, map(types.get, node.output)):
            if math.prod(map(int, kind.shape)) > most:
                what = "a constant" if computed else "a tensor"
                why = f"its {node.op_type} makes {what} of {kind}, of more than {most:,} elements"
                raise _refused(name, why, _node_of(node).where)


def _static(kind: TensorType | None, of: str, what: str, name: str) -> TensorType:
    if kind is None:
        message = f"The {what} {of!r} has a shape that depends on values, or is no tensor."
        hint = "Programs here have static shapes."
        raise EngineError("operator", message, of, hint)
    return kind


def _weights(onnx: Any, model: Any, types: Mapping[str, TensorType]) -> dict[str, np.ndarray]:
    """The floating tensors that stay arguments; all others become constants."""
    graph, decided = model.graph, set()
    for node in graph.node:
        places = AT_IMPORT.get(node.op_type, ())
        decided |= {node.input[p] for p in places if p < len(node.input)}
    wanted = {i for g in _graphs(graph) for n in g.node for i in n.input}
    wanted |= {o.name for o in graph.output}
    tensors, constants, weights = [], [], {}
    for tensor in graph.initializer:
        if tensor.name not in wanted:
            continue
        if tensor.data_type not in DTYPES:
            message = f"The tensor {tensor.name[:100]!r} has elements of a type that programs here"
            raise EngineError("operator", f"{message} do not have.", tensor.name[:100])
        floating = DTYPES[tensor.data_type] in ("float32", "float64", "float16")
        if floating and tensor.dims and tensor.name not in decided and 0 not in tensor.dims:
            weights[tensor.name] = onnx.numpy_helper.to_array(tensor)
            tensors.append(tensor)
        else:
            constants.append(
                onnx.helper.make_node("Constant", [], [tensor.name], value=_plain(onnx, tensor))
            )
    nodes = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(tensors)
    graph.node.extend((*constants, *nodes))
    return weights


def _plain(onnx: Any, tensor: Any) -> Any:
    """A tensor with its bytes as they are."""
    return onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
