"""ONNX files, checked and simplified for TVM's importers.

An importer gets a model of operators that it knows, with static shapes: functions are inlined,
what only computes shapes is computed here by ONNX's own reference, and integers and scalars are
constants. External data is read only from files beside the model.
"""

import ast
import copy
import math
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor
from onnx.numpy_helper import from_array, to_array
from onnx.reference import ReferenceEvaluator

from relascope.core.errors import EngineError, lines_of, reporting
from relascope.core.graph import TensorType
from relascope.engine.files.onnx_forms import (
    Form,
    chosen_branch,
    fault_of,
    inner_graphs,
    rename,
    rewritten,
)
from relascope.engine.files.program_file import onnx_parts

OLDEST = 7
"""The oldest set of operators that is opened; in older ones, operators broadcast otherwise."""
Types = Mapping[str, TensorType]
_Inputs = tuple[tuple[str, TensorType], ...]
_HINT = "Export it again. If you trust its author, open it as it is with another program."
_MOST_NODES = 200_000
_MOST_ELEMENTS = 1 << 31
_MOST_CONSTANT = 1 << 26
_FOLDED = 1 << 16
"""The most elements of a tensor that is computed here and not in the program."""

_SHAPES = """
    Shape Size Constant ConstantOfShape Cast CastLike Concat Gather GatherND GatherElements Slice
    Squeeze Unsqueeze Reshape Add Sub Mul Div Mod Neg Abs Floor Ceil Equal Less LessOrEqual Greater
    GreaterOrEqual And Or Not Where Range ReduceProd ReduceSum ReduceMax ReduceMin Min Max Expand
    Transpose Identity Flatten Split Tile Sqrt Pow Trilu CumSum ScatterND NonZero
"""
FOLDED = frozenset(_SHAPES.split())
"""Operators that are computed here if all their inputs are constant and small."""

_OWN = ("", "ai.onnx")
"""Names of the domain of ONNX's own operators."""

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
"""Inputs that decide shapes, or which operators run, and so must be known at import."""

_DTYPES = """
    - float32 uint8 int8 uint16 int16 int32 int64 - bool float16 float64 uint32 uint64 - - bfloat16
"""
DTYPES = {i: d for i, d in enumerate(_DTYPES.split()) if d != "-"}
"""Names of the ONNX element types that relascope supports."""


@dataclass(frozen=True)
class OnnxNode:
    """Where a node of an ONNX model comes from: the path of the framework's module, if the
    exporter wrote it, the operator, with its domain if that is not ONNX's own, and its name in the
    file."""

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

    `model` is the ModelProto, in which a node's name is its place in `nodes`, which say where each
    comes from; `given` is the one of the file, with its external data. `opset` is of ONNX's own
    operators. `inputs` has names, as in `model`, and types; `names` are theirs in the file.
    `weights` has the values of tensors that are arguments of the program, by name; `outputs` the
    types of what it returns; `types` those of every tensor whose type is known; `notes` are
    sentences for people."""

    model: ModelProto
    given: ModelProto
    opset: int
    inputs: tuple[tuple[str, TensorType], ...]
    names: tuple[str, ...]
    weights: Mapping[str, np.ndarray]
    outputs: tuple[TensorType, ...]
    types: Types
    nodes: tuple[OnnxNode, ...]
    notes: tuple[str, ...]

    def check_results(self, index: int, types: Iterable[TensorType | str | None]) -> None:
        """Check (kind "operator") the types that an importer gives the results of a node, by its
        index, against ONNX's. None is a type not known yet, text is not a static tensor."""
        node = self.model.graph.node[index]
        for kind, name in zip(types, node.output, strict=False):
            wanted = self.types.get(name)
            if name and kind is not None and wanted is not None and kind != wanted:
                message = f"TVM's importer gives this {node.op_type} type {kind}, ONNX {wanted}."
                raise EngineError("operator", message, self.nodes[index].where)

    def check_outputs(self, types: tuple[TensorType, ...], path: str) -> None:
        """Check (kind "operator") the outputs of an importer's program against ONNX's."""
        if types != self.outputs:
            ours, theirs = (", ".join(map(str, kinds)) for kinds in (types, self.outputs))
            message = f"TVM's importer gives the model the outputs {ours}, ONNX {theirs}."
            raise EngineError("operator", message, path)


def importing(what: str, where: str) -> AbstractContextManager[None]:
    """Report (kind "operator") that TVM's importer fails on something, whatever it raises."""

    def report(wrong: Exception) -> EngineError:
        said = (lines_of(wrong) or [type(wrong).__name__])[-1][:300].rstrip(". ")
        return EngineError("operator", f"TVM's importer fails on {what}: {said}.", where)

    return reporting(report)


def read_onnx(path: Path) -> ModelProto:
    """The model of a file, with its external data. Refuses (kind "file") a file that is not a
    model, or declares what it may not."""
    data, packed = onnx_parts(path)
    model = ModelProto()
    message = f"Cannot open {path.name}: it is not an ONNX model, or it is truncated."
    # protobuf has an error class for each of its implementations.
    with reporting(lambda wrong: EngineError("file", message, path.name, "Save it again.")):
        model.ParseFromString(data)
    if not model.HasField("graph") or not model.graph.output:
        message = f"Cannot open {path.name}: it has no graph with an output."
        raise EngineError("file", message, path.name, "Save it again.")
    for graph in _graphs(model.graph, *model.functions):
        if len(graph.node) > _MOST_NODES:
            raise _refused(path.name, f"it has more than {_MOST_NODES:,} nodes")
        if isinstance(graph, GraphProto):
            if graph.sparse_initializer:
                raise _refused(path.name, "it has sparse tensors")
            for tensor in graph.initializer:
                _load(tensor, path, packed)
        for attribute in (a for node in graph.node for a in node.attribute):
            for tensor in (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors):
                _load(tensor, path, packed)
    return model


def _refused(name: str, why: str, where: str = "") -> EngineError:
    return EngineError("file", f"{name} was refused: {why}.", where or name, _HINT)


def _graphs(*outer: Any) -> Iterator[Any]:
    """Graphs and functions, and the graphs in their nodes: at most 50 deep, because protobuf reads
    at most 100 nested messages."""
    for graph in outer:
        yield graph
        for node in graph.node:
            yield from _graphs(*inner_graphs(node))


def _load(tensor: TensorProto, path: Path, packed: Mapping[str, bytes]) -> None:
    """Check what a tensor declares, and read its data from a file in the model's folder, or from
    one packed with the model."""
    where = f"{path.name}: {tensor.name[:200]}"
    if min(tensor.dims, default=0) < 0 or math.prod(tensor.dims) > _MOST_ELEMENTS:
        shape = "x".join(map(str, tensor.dims))[:200]
        raise _refused(path.name, f"a tensor in it has the bad shape {shape}", where)
    if tensor.data_location != tensor.EXTERNAL:
        return
    place = next((e.value for e in tensor.external_data if e.key == "location"), "")
    if place and place not in packed and not (path.parent / place).exists():
        message = f"{path.name} needs the weights in {place[:200]!r}, which is not in its folder."
        hint = "Put both into one folder and open it there, or save it with the weights inside."
        raise EngineError("file", message, where, hint)
    why = f"its data cannot be read from {place[:200]!r}: "
    with reporting(lambda e: _refused(path.name, why + _on_a_line(e).rstrip("."), where)):
        if place in packed:
            about = ExternalDataInfo(tensor)
            start, length = about.offset or 0, about.length
            tensor.raw_data = packed[place][start : None if length is None else start + length]
            tensor.data_location = tensor.DEFAULT
        else:  # ONNX refuses links, and files outside the folder
            load_external_data_for_tensor(tensor, str(path.parent))
        to_array(tensor)  # this needs all of its bytes


def _on_a_line(wrong: Exception) -> str:
    return " ".join(str(wrong).split())[:300]


def prepare_onnx(
    given: ModelProto, supported: Collection[str], ir: str, name: str, types: _Inputs = ()
) -> OnnxModel:
    """Simplify a model for the importer of `ir`, which has the `supported` operators of ONNX's own
    domain. Types of the inputs, by name or in order, are for a file that leaves sizes open. Raises
    an EngineError of kind "file", "operator" (naming all unknown ones, with counts) or "input"."""
    opset = _opset(given, name)
    model = _without_own_functions(given, name)
    _check_order(model.graph, name)
    names, inputs = _fix_inputs(model, name, types)
    _scopes(model)
    _check_known(model, supported, ir, later=True)  # first, because type inference fails on others
    types_of = _fold(model, name)
    model, changed = _without_functions(model, supported, ir, types_of)
    if _rewrite(model, types_of) or changed:
        types_of = _fold(model, name)
    _check_known(model, supported, ir)
    _check_sizes(model, types_of, name)
    _check_forms(model, types_of, ir)
    _check_at_import(model)
    weights = _weights(model)
    nodes = []
    for index, node in enumerate(model.graph.node):
        nodes.append(_node_of(node))
        node.name = str(index)
        del node.metadata_props[:]
    outputs = tuple(_static(types_of.get(o.name), o.name) for o in model.graph.output)
    said = f"{given.producer_name} {given.producer_version}".strip()
    producer = said[:100] if said.isprintable() and said else "an unnamed exporter"
    notes = (f"An ONNX model with operator set {opset}, written by {producer}.",)
    about = model, given, opset, inputs, names, weights, outputs, types_of
    return OnnxModel(*about, tuple(nodes), notes)


def _opset(model: ModelProto, name: str) -> int:
    own = [o.version for o in model.opset_import if o.domain in _OWN]
    if len(own) != 1:
        raise _refused(name, "it does not declare one version of ONNX's operator set")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= own[0] <= newest:
        message = f"{name} has operator set {own[0]}; relascope opens {OLDEST} to {newest}."
        hint = "Export it again, or convert it: onnx.version_converter.convert_version(model, 18)."
        raise EngineError("file", message, name, hint)
    return int(own[0])


def _without_own_functions(given: ModelProto, name: str) -> ModelProto:
    """A copy with the file's own functions inlined, and one name for ONNX's own domain."""
    bodies = {(f.domain, f.name): f for f in given.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(body: Any, outer: tuple[tuple[str, str], ...] = ()) -> int:
        count = 0
        for node in (n for graph in _graphs(body) for n in graph.node):
            called = (node.domain, node.op_type)
            if called in outer:
                raise _refused(name, f"its function {node.op_type[:100]!r} calls itself")
            if called in bodies and called not in sizes:
                sizes[called] = size(bodies[called], (*outer, called))
            count += 1 + sizes.get(called, 0)
        if count > _MOST_NODES:
            raise _refused(name, f"its functions expand to more than {_MOST_NODES:,} nodes")
        return count

    try:
        for body in (given.graph, *given.functions):
            size(body)
        inline = onnx.inliner.inline_local_functions if given.functions else copy.deepcopy
        model: ModelProto = inline(given)
    except (EngineError, MemoryError):
        raise
    except Exception as wrong:  # ONNX raises anything
        why = f"its functions cannot be inlined: {lines_of(wrong)[-1][:200]}"
        raise _refused(name, why) from wrong
    for one in (*model.opset_import, *(n for g in _graphs(model.graph) for n in g.node)):
        one.domain = "" if one.domain in _OWN else one.domain
    return model


def _check_order(graph: GraphProto, name: str, outer: Collection[str] = ()) -> None:
    """Check that nodes follow those that they read, and that no name is defined twice."""
    seen = {*outer, *(i.name for i in graph.input), *(t.name for t in graph.initializer)}
    for node in graph.node:
        where = f"{name}: {node.op_type} {node.name}"[:300]
        if missing := [i for i in node.input if i and i not in seen]:
            why = f"{node.op_type} reads {missing[0][:100]!r}, which nothing before it computes"
            raise _refused(name, why, where)
        for inner in inner_graphs(node):
            _check_order(inner, name, seen)
        for made in filter(None, node.output):
            if made in seen:
                raise _refused(name, f"{made[:100]!r} is defined twice", where)
            seen.add(made)
    if missing := [o.name for o in graph.output if o.name not in seen]:
        raise _refused(name, f"nothing computes its output {missing[0][:100]!r}")


def _without_functions(
    model: ModelProto, known: Collection[str], ir: str, types: Types
) -> tuple[ModelProto, bool]:
    """Replace operators that the importer lacks or computes wrongly by others, if ONNX defines
    them so; also returns whether there are any."""
    changed = False
    for _ in range(4):
        wanted = {
            (form.node.domain, form.node.op_type)
            for form in _forms(model, types)
            if (not _has(form.node, known) or fault_of(ir, form)) and _is_function(form.node, model)
        }
        if not wanted:
            break
        try:
            found = onnx.inliner.inline_selected_functions(model, list(wanted), False, True)
        except Exception:  # ONNX raises anything; `_check_known` then names them
            break
        if found.graph == model.graph:
            break
        model, changed = found, True
    return model, changed


def _is_function(node: NodeProto, model: ModelProto) -> bool:
    """Whether ONNX defines an operator by others."""
    versions = {o.domain: o.version for o in model.opset_import}
    try:
        version = versions.get(node.domain, versions[""])
        schema: Any = onnx.defs.get_schema(node.op_type, version, node.domain)
    except Exception:  # SchemaError, whose module differs by version
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _has(node: NodeProto, known: Collection[str]) -> bool:
    return not node.domain and node.op_type in known


def _check_known(model: ModelProto, known: Collection[str], ir: str, later: bool = False) -> None:
    """Refuse operators that the importer does not have, naming all; if `later`, not those that may
    still be computed here or inlined."""
    strange = [
        node
        for graph in _graphs(model.graph)
        for node in graph.node
        if not _has(node, known)
        and not (later and (_has(node, FOLDED | {"If"}) or _is_function(node, model)))
    ]
    counts = Counter(_node_of(node).operator for node in strange)
    if counts:
        most = counts.most_common(1)[0][0]
        message = f"TVM's ONNX importer for {ir.title()} does not support {_listed(counts)}."
        where = next(n.where for n in map(_node_of, strange) if n.operator == most)
        raise EngineError("operator", message, where)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{one} ({n} times)" if n > 1 else one for one, n in counts.most_common())


def _forms(model: ModelProto, types: Types) -> Iterator[Form]:
    """All nodes, with what is known of their inputs."""
    constants = {
        t.name: to_array(t)
        for t in model.graph.initializer
        if t.data_type in DTYPES and math.prod(t.dims) <= 64
    }
    opset = _version(model)
    for graph in _graphs(model.graph):
        yield from (Form(node, types, constants, opset) for node in graph.node)


def _version(model: ModelProto) -> int:
    """The version of ONNX's own operators."""
    return next(int(o.version) for o in model.opset_import if not o.domain)


def _rewrite(model: ModelProto, types: Types) -> bool:
    """Replace operators that importers compute wrongly, if known how; returns whether any."""
    prefix = "_"
    while any(o.startswith(prefix) for n in model.graph.node for o in n.output):
        prefix += "_"
    nodes, changed = [], False
    outermost = islice(_forms(model, types), len(model.graph.node))
    for index, form in enumerate(outermost):
        written = rewritten(form, f"{prefix}{index}_")
        changed = changed or bool(written)
        nodes += written or [form.node]
    if changed:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    return changed


def _check_forms(model: ModelProto, types: Types, ir: str) -> None:
    """Refuse what TVM's importer computes wrongly, naming all, and results without elements."""
    strange = [(what, form.node) for form in _forms(model, types) if (what := fault_of(ir, form))]
    if strange:
        listed = _listed(Counter(what for what, _ in strange))
        message = f"TVM's ONNX importer for {ir.title()} computes wrongly: {listed}."
        raise EngineError("operator", message, _node_of(strange[0][1]).where)
    for node in model.graph.node:
        made = next((t for o in node.output if (t := types.get(o)) and 0 in t.shape), None)
        if made and node.op_type != "Constant":
            message = f"{node.op_type} returns {made}: a tensor without elements cannot be built."
            raise EngineError("operator", message, _node_of(node).where)


def _check_at_import(model: ModelProto) -> None:
    made = {t.name for t in model.graph.initializer}
    made |= {o for n in model.graph.node if n.op_type == "Constant" for o in n.output}
    given = {i.name for i in model.graph.input}
    for node in model.graph.node:
        for read in _decides(node):
            if read not in made:
                whose = f"the input {read!r}" if read in given else "values of its inputs"
                message = f"The result of {node.op_type} has a shape that depends on {whose}."
                hint = "Shapes must be static: make it a constant of the model."
                raise EngineError("operator", message, _node_of(node).where, hint)


def _decides(node: NodeProto) -> list[str]:
    """The inputs of a node that must be known at import."""
    places = AT_IMPORT.get(node.op_type, ())
    return [node.input[p] for p in places if p < len(node.input) and node.input[p]]


def _fix_inputs(model: ModelProto, name: str, types: _Inputs) -> tuple[tuple[str, ...], _Inputs]:
    """Give the inputs plain names and fixed sizes; returns their names in the file, and both."""
    held = {t.name for t in model.graph.initializer}
    values = [i for i in model.graph.input if i.name not in held]
    del model.graph.input[:]
    model.graph.input.extend(values)
    own = tuple(v.name for v in values)
    taken = held | {o for g in _graphs(model.graph) for n in g.node for o in n.output}
    safe: dict[str, str] = {}
    for one in own:
        new = re.sub(r"\W", "_", one, flags=re.ASCII) or "x"
        new = f"x_{new}" if new[0].isdigit() else new
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
    rename(model.graph, safe)
    fixed = []
    for value in model.graph.input:
        asked = by_name[value.name] if value.name in by_name else next(rest, None)
        kind = _input_type(value, asked, listed, name)
        sizes = value.type.tensor_type.shape
        sizes.Clear()
        sizes.SetInParent()
        for size in kind.shape:
            sizes.dim.add().dim_value = int(size)
        fixed.append((value.name, kind))
    return own, tuple(fixed)


def _input_type(
    value: ValueInfoProto, asked: TensorType | None, listed: str, name: str
) -> TensorType:
    new, kind = value.name, value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        what = value.type.WhichOneof("value") or "nothing"
        message = f"The input {new} is a {what.removesuffix('_type')}, not a tensor."
        raise EngineError("operator", message, new)
    dtype = DTYPES.get(kind.elem_type, "")
    if not dtype:
        message = f"relascope does not support the element type of the input {new}."
        raise EngineError("operator", message, new)
    dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
    spelled = "x".join(str(d.dim_value or d.dim_param or "?") for d in kind.shape.dim)
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
        hint = f"Give a type for each input ({listed}), such as {new}=1x14:{dtype}."
        raise EngineError("input", message, listed, hint)
    if math.prod(sizes) > _MOST_ELEMENTS or min(sizes, default=1) < 0:
        raise _refused(name, f"its input {new} has the bad shape {spelled[:200]}", new)
    if 0 in sizes:
        message = "A tensor without elements (a dimension of 0) cannot be imported."
        raise EngineError("operator", message, new)
    return TensorType(tuple(sizes), dtype)


_SCOPES = "pkg.torch.onnx.name_scopes"


def _scopes(model: ModelProto) -> None:
    for node in model.graph.node:
        said = next((p.value for p in node.metadata_props if p.key == _SCOPES), "[]")
        try:
            paths = [p for p in ast.literal_eval(said) if isinstance(p, str)]
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            paths = []
        if len(paths) > 1:
            name = (node.name or node.op_type).replace("/", "_")
            node.name = "/" + paths[-2].replace(".", "/") + "/" + name


def _node_of(node: NodeProto) -> OnnxNode:
    parts = [p for p in node.name.split("/") if p]
    plain = node.name.startswith("/") and all(len(p) < 100 for p in parts)
    scope = ".".join(parts[:-1]) if plain else ""
    return OnnxNode(scope, f"{node.domain}.{node.op_type}".lstrip("."), node.name[:200])


def _fold(model: ModelProto, name: str) -> dict[str, TensorType]:
    """Compute what only computes shapes in a model; returns the types of all tensors."""
    types: dict[str, TensorType] = {}
    for _ in range(12):
        with reporting(lambda e: _refused(name, f"its shapes do not match: {_on_a_line(e)}")):
            inferred = onnx.shape_inference.infer_shapes(model)
        # Inferred, not from the file, whose shapes may be for other inputs.
        graph = inferred.graph
        values = (*graph.value_info, *graph.output, *graph.input)
        types = {v.name: t for v in values if (t := _type(v)) is not None}
        for t in model.graph.initializer:
            if t.data_type in DTYPES:
                types[t.name] = TensorType(tuple(t.dims), DTYPES[t.data_type])
        _plain_casts(model.graph, types)
        if not _fold_once(model, types, name):
            break
    return types


def _plain_casts(graph: GraphProto, types: Types) -> None:
    """Turn each CastLike into a Cast, which does not read the other tensor."""
    kinds = {d: i for i, d in DTYPES.items()}
    for node in graph.node:
        like = types.get(node.input[1]) if _has(node, ("CastLike",)) else None
        if like is not None:
            node.op_type = "Cast"
            del node.input[1:]
            node.attribute.append(helper.make_attribute("to", kinds[like.dtype]))


def _type(value: ValueInfoProto) -> TensorType | None:
    kind = value.type.tensor_type
    known = value.type.HasField("tensor_type") and kind.HasField("shape")
    if not known or kind.elem_type not in DTYPES:
        return None
    if not all(d.HasField("dim_value") and d.dim_value >= 0 for d in kind.shape.dim):
        return None
    return TensorType(tuple(d.dim_value for d in kind.shape.dim), DTYPES[kind.elem_type])


def _fold_once(model: ModelProto, types: Types, name: str) -> bool:
    """Compute what reads only small constants, and replace an If by the branch that such a
    constant chooses; returns whether there is any."""
    graph, opset = model.graph, _version(model)
    small = [t for t in graph.initializer if math.prod(t.dims) <= _FOLDED]
    values = {t.name: to_array(t) for t in small if t.data_type in DTYPES}
    held, kept, changed, empty = frozenset(values), [], False, np.empty(0)
    for node in graph.node:
        made: list[np.ndarray] | None = None
        if _has(node, FOLDED):
            made = _computed(node, values, types, opset, name)
        elif _has(node, ("If",)) and values.get(node.input[0], empty).size == 1:
            nodes, tensors = chosen_branch(node, bool(values[node.input[0]].reshape(-1)[0]))
            kept += nodes
            graph.initializer.extend(tensors)
            changed = True
            continue
        if made is None:
            kept.append(node)
        else:
            changed = True
            values.update(zip(filter(None, node.output), made, strict=True))
    if changed:
        del graph.node[:]
        graph.node.extend(kept)
        wanted = _read(graph) - held
        graph.initializer.extend(from_array(v, n) for n, v in values.items() if n in wanted)
    return changed


def _read(graph: GraphProto) -> set[str]:
    every = [*_graphs(graph)]
    read = {i for one in every for node in one.node for i in node.input}
    return read | {o.name for one in every for o in one.output}


def _computed(
    node: NodeProto, values: Mapping[str, np.ndarray], types: Types, opset: int, name: str
) -> list[np.ndarray] | None:
    """The results of a node; None if its inputs are not all known, its results are large, or
    ONNX's reference fails, after which the importer says what is wrong."""
    inputs = {i: values.get(i) for i in node.input if i}
    if node.op_type in ("Shape", "Size") and (kind := types.get(node.input[0])):
        sizes = tuple(map(int, kind.shape))
        inputs = {node.input[0]: np.broadcast_to(np.float32(0), sizes)}  # no value is read
    elif all(v is not None for v in inputs.values()):
        try:
            count = _elements(node, [values[i] for i in node.input if i])
        except ValueError as wrong:
            raise _refused(name, f"its {node.op_type} {wrong}", _node_of(node).where) from wrong
        outputs = (types[o].shape for o in node.output if o in types)
        if max([count, *(math.prod(map(int, shape)) for shape in outputs)]) > _FOLDED:
            return None
    else:
        return None
    named = inputs, filter(None, node.output)
    given, results = ([ValueInfoProto(name=n) for n in names] for names in named)
    alone = GraphProto(name="alone", node=[node], input=given, output=results)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            made = ReferenceEvaluator(alone, {"": opset}).run(None, inputs)
    except Exception:  # it raises anything
        return None
    arrays = [np.asarray(v) for v in made]
    return None if any(v.dtype == object or v.size > _FOLDED for v in arrays) else arrays


def _elements(node: NodeProto, inputs: list[np.ndarray]) -> int:
    """How many elements a node computes from constants, where inference may not tell; else 0. The
    text of a ValueError continues a sentence about the node."""
    count = 0
    if node.op_type == "Range":
        if any(v.size != 1 for v in inputs):
            raise ValueError("counts between values that are not single numbers")
        start, limit, delta = (v.reshape(-1)[0].item() for v in inputs)
        if not (math.isfinite(start) and math.isfinite(limit) and delta and math.isfinite(delta)):
            raise ValueError(f"counts from {start} to {limit} by {delta}, which never ends")
        count = max(0, math.ceil((limit - start) / delta))
    elif node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        sizes = [int(s) for s in inputs[-1].reshape(-1).tolist()]
        if min(sizes, default=0) < 0:
            raise ValueError(f"has a negative size among {sizes}"[:200])
        if node.op_type == "ConstantOfShape":
            count = math.prod(sizes)
        else:
            count = math.prod(max(1, s) for s in sizes) * inputs[0].size
    if count > _MOST_CONSTANT:
        raise ValueError(f"makes a constant of {count:,} elements; the limit is {_MOST_CONSTANT:,}")
    return count


def _check_sizes(model: ModelProto, types: Types, name: str) -> None:
    """Refuse too large tensors, and too large constants that TVM would compute from small ones."""
    fixed = {t.name for t in model.graph.initializer if math.prod(t.dims) <= _FOLDED} | {""}
    for node in model.graph.node:
        computed = fixed.issuperset(node.input)
        fixed |= set(node.output) if computed else set()
        most = _MOST_CONSTANT if computed and node.op_type != "Constant" else _MOST_ELEMENTS
        for kind in filter(None, map(types.get, node.output)):
            if math.prod(map(int, kind.shape)) > most:
                what = "a constant" if computed else "a tensor"
                why = f"its {node.op_type} makes {what} of {kind}; the limit is {most:,} elements"
                raise _refused(name, why, _node_of(node).where)


def _static(kind: TensorType | None, of: str) -> TensorType:
    if kind is None:
        message = f"The output {of!r} has a shape that depends on values, or is not a tensor."
        raise EngineError("operator", message, of, "Shapes must be static.")
    return kind


def _weights(model: ModelProto) -> dict[str, np.ndarray]:
    """The floating-point tensors that stay arguments; all others become constants."""
    graph = model.graph
    decided = {i for node in graph.node for i in _decides(node)}
    read = _read(graph)
    constants, weights = [], {}
    tensors = [t for t in graph.initializer if t.name in read]
    for tensor in tensors:
        one = tensor.name
        if tensor.data_type not in DTYPES:
            message = f"relascope does not support the element type of the tensor {one[:100]!r}."
            raise EngineError("operator", message, one[:100])
        floating, value = DTYPES[tensor.data_type].startswith("float"), to_array(tensor)
        if floating and tensor.dims and one not in decided and 0 not in tensor.dims:
            weights[one] = value
        else:
            constants.append(helper.make_node("Constant", [], [one], value=from_array(value, one)))
    nodes = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(t for t in tensors if t.name in weights)
    graph.node.extend((*constants, *nodes))
    return weights
