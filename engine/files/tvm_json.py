"""TVM's JSON, checked before TVM sees it: an acyclic graph of known types, and no code.

TVM 0.17 assumes that each field has the right type, whatever object is there, and both TVMs make an
object of any registered type, compiled code among them.
"""

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from relascope.core.errors import EngineError, reporting
from relascope.engine.files.tvm_arrays import read_array

_NODES = 500_000
_HINT = "Save it again with tvm.ir.save_json, from a module that has no compiled parts."

Node = dict[str, Any]

_EXPR_NAMES = "Function Var Call Constant Tuple TupleGetItem Let If"
_EXPR = {"GlobalVar", "Op", *(f"relay.{name}" for name in _EXPR_NAMES.split())}
_TYPE = {"relay.TensorType", "TupleType", "FuncType", "IncompleteType"}
_SIZE = {"IntImm", "tir.Any"}
_SPAN = {"Span", "SourceName", "SequentialSpan"}
_TEXTS = {"runtime.String"}
_LEAF = {"IntImm", "FloatImm", *_TEXTS}

# For each type of Relay, the fields that refer to nodes: the types allowed there, and those inside
# an array, or of the keys and values of a map. Other fields are numbers or texts. "" is no node.
_NONE = {""}
_Kinds = tuple[set[str], ...]
Fields = Mapping[str, tuple[set[str], _Kinds]]


def _fields(**kinds: set[str]) -> Fields:
    return {n: (k, ()) for n, k in {"span": _SPAN | _NONE, **kinds}.items()}


def _expr(**kinds: set[str]) -> Fields:
    about = {"_checked_type_": _TYPE | _NONE, "virtual_device_": {"VirtualDevice", ""}}
    return _fields(**about, **kinds)


def _array(kinds: set[str]) -> tuple[set[str], _Kinds]:
    return {"Array"}, (kinds,)


def _map(keys: set[str], values: set[str], *others: str) -> tuple[set[str], _Kinds]:
    return {"Map", *others}, (keys, values)


_RELAY: dict[str, Fields] = {
    "": {},
    "IRModule": {
        **_fields(attrs={"DictAttrs", ""}, source_map={"SourceMap", ""}),
        "functions": _map({"GlobalVar"}, {"relay.Function"}),
        "global_infos": _map(set(), set()),
        "global_type_var_map_": _map(set(), set()),
        "global_var_map_": _map(_TEXTS, {"GlobalVar"}),
        "type_definitions": _map(set(), set()),
    },
    "SourceMap": {"source_map": _map({"SourceName"}, {"Source"})},
    "Source": {"source_name": ({"SourceName"}, ()), "source": (_TEXTS, ())},
    "DictAttrs": {"__dict__": _map(_TEXTS, _LEAF, "")},
    "VirtualDevice": _fields(target=_NONE, memory_scope=_TEXTS),
    "GlobalVar": _expr(name_hint=_TEXTS, struct_info_=_NONE),
    "relay.Function": {
        **_expr(attrs={"DictAttrs", ""}, body=_EXPR, ret_type=_TYPE | _NONE),
        "params": _array({"relay.Var"}),
        "type_params": _array(set()),
    },
    "relay.Var": _expr(type_annotation=_TYPE | _NONE, vid={"relay.Id"}),
    "relay.Id": {"name_hint": (_TEXTS, ())},
    "relay.Call": {
        **_expr(op=_EXPR, attrs={"attrs", "DictAttrs", ""}),
        "args": _array(_EXPR),
        "type_args": _array(_TYPE | _NONE),
    },
    "relay.Tuple": {**_expr(), "fields": _array(_EXPR)},
    "relay.TupleGetItem": _expr(tuple_value=_EXPR),
    "relay.Let": _expr(var={"relay.Var"}, value=_EXPR, body=_EXPR),
    "relay.If": _expr(cond=_EXPR, true_branch=_EXPR, false_branch=_EXPR),
    "relay.Constant": _expr(),
    "relay.TensorType": {**_fields(), "shape": _array(_SIZE)},
    "TupleType": {**_fields(), "fields": _array(_TYPE)},
    "FuncType": {
        **_fields(ret_type=_TYPE),
        "arg_types": _array(_TYPE),
        "type_params": _array(set()),
        "type_constraints": _array(set()),
    },
    **dict.fromkeys(("IncompleteType", "tir.Any", "IntImm", "FloatImm"), _fields()),
    "Span": {"source_name": ({"SourceName"}, ())},
    "SequentialSpan": {"spans": _array({"Span"})},
}
_TEXT_NODES = ("Op", "runtime.String", "SourceName")


def check_relay_json(text: str, name: str) -> str:
    """Check the JSON of a Relay module, or of the constants of one in text; returns it as TVM may
    read it, or raises an EngineError of kind "file". Only TVM knows which fields of an operator's
    attributes are nodes, once it has made them: the module's reader checks those."""
    with _refusing(name):
        found = _parsed(text)
        nodes = _without_settings(found["nodes"])
        arrays: Any = found.get("b64ndarrays", [])
        _need(isinstance(arrays, list), "its arrays are not a list")
        graph = _RelayGraph(nodes, len(arrays))
        root = graph.index(found.get("root"))
        try:
            TopologicalSorter({i: graph.edges(i) for i in range(len(nodes))}).prepare()
        except CycleError as wrong:
            raise ValueError("nodes in it refer to each other in a cycle") from wrong
        _check_arrays(arrays)
        kept = {"root": root, "nodes": nodes, "b64ndarrays": arrays}
        return json.dumps(kept | {"attrs": _version(found.get("attrs"))})


_BUILDS = ("Executor", "Runtime", "Target", "TargetKind")
_ANY_DEVICE = {"device_type_int": "-1", "virtual_device_id": "-1"}


def _without_settings(nodes: list[Any]) -> list[Any]:
    """The nodes of a module that was saved during a build, with empty nodes in place of those that
    say how and for which device it is built."""
    gone = {i for i, n in enumerate(nodes) if isinstance(n, dict) and n.get("type_key") in _BUILDS}
    if not gone:
        return nodes
    kept = [{"type_key": ""} if i in gone else n for i, n in enumerate(nodes)]
    return [_without(node, gone) for node in kept]


def _without(node: Any, gone: Collection[int | None]) -> Any:
    """A map without the values that are gone; a device whose target is gone becomes any device."""
    match node:
        case {"type_key": "VirtualDevice", "attrs": dict(attrs)}:
            target = _number(attrs.get("target"))
            return {**node, "attrs": {**attrs, **(_ANY_DEVICE if target in gone else {})}}
        case {"type_key": "Map", "keys": list(keys), "data": list(data)} if len(keys) == len(data):
            pairs = [p for p in zip(keys, data, strict=True) if _number(p[1]) not in gone]
            if pairs or not keys:
                return {**node, "keys": [k for k, _ in pairs], "data": [v for _, v in pairs]}
            return {k: v for k, v in node.items() if k not in ("keys", "data")}
    return node


def _version(about: Any) -> dict[str, str]:
    version = about.get("tvm_version") if isinstance(about, dict) else None
    told = isinstance(version, str) and re.fullmatch(r"[\w.+]{1,40}", version)
    _need(told, "it does not say which TVM wrote it")
    return {"tvm_version": str(version)}


@dataclass(frozen=True)
class _RelayGraph:
    """The nodes of a file, and how many arrays come with them."""

    nodes: list[Any]
    arrays: int

    def index(self, value: Any) -> int:
        at = _number(value)
        there = at is not None and 0 <= at < len(self.nodes) and isinstance(self.nodes[at], dict)
        _need(there, f"it refers to a node {str(value)[:40]!r}, which does not exist")
        assert at is not None
        return at

    def edges(self, index: int) -> list[int]:
        """The nodes that a node reads; checks that each has a type that is allowed there."""
        node = self.nodes[index]
        _need(isinstance(node, dict), f"node {index} is not a node")
        kind, attrs = node.get("type_key"), node.get("attrs", {})
        _need(isinstance(kind, str), f"node {index} has no type")
        strange = set(node) - {"type_key", "attrs", "data", "keys", "repr_str", "repr_b64"}
        _need(not strange and isinstance(attrs, dict), f"node {index} has unexpected parts")
        if kind in _TEXT_NODES:
            _need(json_text(node) is not None, f"node {index} has no text")
            _need(not attrs and "data" not in node, f"node {index} has more than a text")
            return []
        _need(not {"repr_str", "repr_b64"} & set(node), f"node {index} ({kind}) is packed")
        if kind in ("Array", "Map"):
            return self.contents(index)
        _need("data" not in node and "keys" not in node, f"node {index} has unexpected parts")
        texts = all(isinstance(value, str) for value in attrs.values())
        _need(texts, f"node {index} ({kind}) has a field that is not a text")
        if kind == "relay.Constant":
            which = _number(attrs.get("data"))
            _need(which is not None and which < self.arrays, f"constant {index} has no array")
        if kind.startswith("relay.attrs."):
            return []
        _need(kind in _RELAY, f"node {index} has the type {kind}, which no such module has")
        fields = ((f, kinds) for f, kinds in _RELAY[kind].items() if f in attrs)
        return [self.field(f"node {index} ({kind})", attrs[f], f, kinds) for f, kinds in fields]

    def field(self, owner: str, value: str, name: str, kinds: tuple[set[str], _Kinds]) -> int:
        """The node in a field of another; checks it and its elements."""
        at, (allowed, inside) = self.index(value), kinds
        its = str(self.nodes[at].get("type_key"))
        fits = its in allowed or ("attrs" in allowed and its.startswith("relay.attrs."))
        _need(fits, f"{owner} has {its or 'nothing'} as its {name}")
        if its in ("Array", "Map"):
            pairs = its == "Map" and not self.nodes[at].get("keys")
            for place, one in enumerate(self.contents(at)):
                element = str(self.nodes[one].get("type_key"))
                fits = element in (inside[place % 2] if pairs else inside[-1])
                _need(fits, f"{owner} has {element or 'nothing'} among its {name}")
        return at

    def contents(self, index: int) -> list[int]:
        node = self.nodes[index]
        data, keys = node.get("data", []), node.get("keys", [])
        _need(isinstance(data, list) and isinstance(keys, list), f"node {index} is not a list")
        if keys:  # a map with texts as keys
            texts = all(isinstance(k, str) for k in keys)
            _need(texts, f"node {index} has a key that is not a text")
            _need(len(keys) == len(data), f"node {index} does not have as many keys as values")
        elif node["type_key"] == "Map":
            _need(len(data) % 2 == 0, f"node {index} has a key without a value")
        return [self.index(one) for one in data]


def json_text(node: Node) -> str | None:
    """The text of a text node, "" if it has none; None if it is invalid.

    A text with a line feed, such as the source that a module was parsed from, is stored as its
    length and bytes in base 64.
    """
    if "repr_b64" not in node:
        text = node.get("repr_str", "")
        return text if isinstance(text, str) else None
    try:
        packed = base64.b64decode(node["repr_b64"], validate=True)
        told = packed[8:].decode()
    except (TypeError, ValueError):
        return None
    fits = "repr_str" not in node and packed[:8] == (len(packed) - 8).to_bytes(8, "little")
    return told if fits else None


def _number(value: Any) -> int | None:
    """The number of a node or an array in a field; None if it is not one."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if type(value) is int else None


_RELAX_NAMES = """
    None int bool float ffi.String ffi.Array ffi.Map ffi.Shape ffi.Tensor ir.IRModule ir.GlobalVar
    ir.Var ir.Call ir.Op ir.Span ir.SourceName ir.SequentialSpan ir.SourceMap ir.DictAttrs
    ir.PrimType ir.IntImm ir.FloatImm ir.StringImm ir.GenericConst ir.TupleType ir.Tuple
    ir.TupleGetItem ir.FuncType ir.Type ir.AnyType relax.TensorType relax.ShapeType relax.TupleType
    relax.FuncType relax.AnyType relax.PrimType tirx.Var tirx.SizeVar tirx.Add tirx.Sub tirx.Mul
    tirx.FloorDiv tirx.FloorMod tirx.Min tirx.Max tirx.Cast ffi.DataType DataType dtype
"""
_RELAX = frozenset(_RELAX_NAMES.split())
_NO_EXPR = ("relax.expr.ExternFunc", "relax.ExternFunc")


_KERNELS = re.compile(
    r"(prim|tirx)\.\w+|s_tir\.SBlock\w*|ir\.(Range|TensorLoad|TensorRegion|StringType|EnvFunc)"
)
_INFERS = "tvm.relax.type.infer_by_ty_args"  # the only one that TVM may call while it reads


def _is_in_relax(kind: str, kernels: bool) -> bool:
    """Whether a Relax module, with or without kernels, may have nodes of a type."""
    known = kind in _RELAX or (kernels and _KERNELS.fullmatch(kind) is not None)
    expr = kind.startswith(("relax.expr.", "relax.attrs.")) and (kernels or kind not in _NO_EXPR)
    return known or expr


def check_relax_json(text: str, name: str, kernels: bool = False) -> str:
    """Check the JSON of a Relax module; returns it as TVM may read it, or raises an EngineError of
    kind "file". Here TVM checks the types of fields; nodes refer only to earlier ones."""
    with _refusing(name):
        found = _parsed(text)
        nodes, root = found["nodes"], found.get("root_index")
        _need(type(root) is int and 0 <= root < len(nodes), "it has no root")
        for index, node in enumerate(nodes):
            _check_relax_node(index, node, kernels)
        _check_arrays(node["data"] for node in nodes if node["type"] == "ffi.Tensor")
        about = _version(found.get("metadata"))
        return json.dumps({"root_index": root, "nodes": nodes, "metadata": about})


def _check_relax_node(index: int, node: Any, kernels: bool) -> None:
    _need(isinstance(node, dict) and set(node) <= {"type", "data"}, f"node {index} is not a node")
    kind, data = node.get("type"), node.get("data")
    known = isinstance(kind, str) and _is_in_relax(kind, kernels)
    _need(known, f"node {index} has the type {str(kind)[:60]}, which no such module has")
    if kind == "ir.EnvFunc":
        _need(data == _INFERS, f"node {index} calls {str(data)[:60]}, which is not allowed")
    if kind in ("ffi.Array", "ffi.Map"):
        _need(isinstance(data, list), f"node {index} is not a list")
        before = all(type(one) is int and 0 <= one < index for one in data)
        _need(before, f"node {index} refers to a node that does not come before it")


def _check_arrays(arrays: Iterable[Any]) -> None:
    for one in arrays:
        _need(isinstance(one, str), "an array in it is not a text")
        try:
            read_array(base64.b64decode(one, validate=True))
        except ValueError as wrong:
            raise ValueError(f"an array in it cannot be read: {wrong}") from wrong


def _parsed(text: str) -> Node:
    """The object of a JSON text, which must have a list of nodes."""
    try:
        found: Any = json.loads(text)
    except RecursionError as wrong:
        raise ValueError("it is nested too deeply") from wrong
    except ValueError as wrong:
        raise ValueError(f"it is not JSON: {wrong}") from wrong
    _need(isinstance(found, dict), "it is not an object")
    nodes = found.get("nodes")
    _need(isinstance(nodes, list) and len(nodes) > 0, "it has no list of nodes")
    _need(len(nodes) <= _NODES, f"it has more than {_NODES:,} nodes")
    return dict(found)


def _need(holds: object, why: str) -> None:
    """Raise a ValueError about a file unless `holds`; `why` continues a sentence after a colon."""
    if not holds:
        raise ValueError(why)


def _refusing(name: str) -> AbstractContextManager[None]:
    """Turns whatever a check of the file raises into its refusal."""
    said = f"Cannot read {name} as TVM's JSON: "
    return reporting(lambda wrong: EngineError("file", f"{said}{wrong}.", name, _HINT))
