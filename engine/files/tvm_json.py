"""TVM's JSON, checked before TVM sees it: a graph of known types without circles, and no code.

TVM 0.17 takes each field for what its type says, whatever object stands there, and both make any
object that some name is registered for, compiled code among them.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.files.tvm_arrays import read_array

_NODES = 500_000
_HINT = "Save it again with tvm.ir.save_json, from a module that has no compiled parts."

Node = dict[str, Any]

_EXPR = {
    "relay." + n
    for n in ("Function", "Var", "Call", "Constant", "Tuple", "TupleGetItem", "Let", "If")
} | {"GlobalVar", "Op"}
_TYPE = {"relay.TensorType", "TupleType", "FuncType", "IncompleteType"}
_SIZE = {"IntImm", "tir.Any"}
_SPAN = {"Span", "SourceName", "SequentialSpan"}
_TEXTS = {"runtime.String"}
_LEAF = {"IntImm", "FloatImm", *_TEXTS}

# Of each type of Relay its fields that are other nodes: what may stand there; and within an array,
# or as the keys and the values of a map. Any other field is a number or a text. "" is none.
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
    "IncompleteType": _fields(),
    "tir.Any": _fields(),
    "IntImm": _fields(),
    "FloatImm": _fields(),
    "Span": {"source_name": ({"SourceName"}, ())},
    "SequentialSpan": {"spans": _array({"Span"})},
}
_TEXT_NODES = ("Op", "runtime.String", "SourceName")


def check_relay_json(text: str, name: str) -> str:
    """The same JSON, of a Relay module or of the constants of one in text, as TVM may read it.

    Which fields of an operator's attributes are nodes, TVM tells only of those that it has made:
    they are for who reads the module to check.

    Raises:
        EngineError: kind "file"; says what is wrong with it.
    """
    found = _parsed(text, name)
    nodes: Any = found.get("nodes")
    arrays: Any = found.get("b64ndarrays", [])
    _check_count(nodes, name)
    nodes = _without_settings(nodes)
    _need(isinstance(arrays, list), name, "its arrays are no list")
    root = _index(found.get("root"), nodes, name)
    edges: list[list[int]] = []
    for index, node in enumerate(nodes):
        _need(isinstance(node, dict), name, f"node {index} is none")
        edges.append(_relay_edges(index, node, nodes, len(arrays), name))
    _acyclic(edges, name)
    _check_arrays(arrays, name)
    kept = {"root": root, "nodes": nodes, "b64ndarrays": arrays}
    return json.dumps(kept | {"attrs": {"tvm_version": _version(found, name)}})


_SETTINGS = ("Executor", "Runtime", "Target", "TargetKind")
_ANY_DEVICE = {"device_type_int": "-1", "virtual_device_id": "-1"}


def _without_settings(nodes: list[Any]) -> list[Any]:
    """The nodes of a module that was saved during a build, without what says how and for
    which device it is built: nothing stands in their places."""
    gone = {
        i for i, n in enumerate(nodes) if isinstance(n, dict) and n.get("type_key") in _SETTINGS
    }
    if not gone:
        return nodes
    kept = [{"type_key": ""} if i in gone else n for i, n in enumerate(nodes)]
    return [_without(node, gone) for node in kept]


def _without(node: Any, gone: Collection[int | None]) -> Any:
    """A map without the values that are gone; a device whose target is, as any device."""
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


def _check_count(nodes: Any, name: str) -> None:
    _need(isinstance(nodes, list) and len(nodes) > 0, name, "it has no list of nodes")
    _need(len(nodes) <= _NODES, name, f"it has more than {_NODES:,} nodes")


def _version(found: Node, name: str) -> str:
    attrs = found.get("attrs")
    version = attrs.get("tvm_version", "") if isinstance(attrs, dict) else ""
    told = isinstance(version, str) and re.fullmatch(r"[\w.+]{1,40}", version)
    _need(bool(told), name, "it does not say which TVM wrote it")
    return str(version)


def _relay_edges(index: int, node: Node, nodes: list[Node], arrays: int, name: str) -> list[int]:
    """The nodes that a node reads, each of which is of a type that may stand there."""
    kind, attrs = node.get("type_key"), node.get("attrs", {})
    _need(isinstance(kind, str), name, f"node {index} has no type")
    assert isinstance(kind, str)
    strange = set(node) - {"type_key", "attrs", "data", "keys", "repr_str", "repr_b64"}
    _need(not strange and isinstance(attrs, dict), name, f"node {index} is unlike others")
    if kind in _TEXT_NODES:
        _need(text_of(node) is not None, name, f"node {index} has no text")
        _need(not attrs and "data" not in node, name, f"node {index} has more than a text")
        return []
    _need(not {"repr_str", "repr_b64"} & set(node), name, f"node {index} ({kind}) is packed")
    if kind in ("Array", "Map"):
        return _contents(index, node, nodes, name)
    _need("data" not in node and "keys" not in node, name, f"node {index} is unlike others")
    for value in attrs.values():
        _need(isinstance(value, str), name, f"node {index} ({kind}) has a field that is no text")
    if kind == "relay.Constant":
        which = _number(attrs.get("data"))
        _need(which is not None and which < arrays, name, f"constant {index} has no array")
    if kind.startswith("relay.attrs."):
        return []
    _need(kind in _RELAY, name, f"node {index} is of the type {kind}, which no such module has")
    found = []
    for field, (allowed, inside) in _RELAY[kind].items():
        if field not in attrs:
            continue
        at = _index(attrs[field], nodes, name)
        its = str(nodes[at].get("type_key"))
        fits = its in allowed or ("attrs" in allowed and its.startswith("relay.attrs."))
        _need(fits, name, f"node {index} ({kind}) has {its or 'nothing'} as its {field}")
        if its in ("Array", "Map"):
            pairs = its == "Map" and not nodes[at].get("keys")
            for place, one in enumerate(_contents(at, nodes[at], nodes, name)):
                element = str(nodes[one].get("type_key"))
                fits = element in (inside[place % 2] if pairs else inside[-1])
                wrong = f"node {index} ({kind}) has {element or 'nothing'} among its {field}"
                _need(fits, name, wrong)
        found.append(at)
    return found


def text_of(node: Node) -> str | None:
    """What a node says that is a text, "" where it says nothing; None where that is none.

    A text with a line feed, such as the source that a module was parsed from, stands as its length
    and bytes in base 64.
    """
    if "repr_b64" not in node:
        text = node.get("repr_str", "")
        return text if isinstance(text, str) else None
    try:
        packed = base64.b64decode(node["repr_b64"], validate=True)
        told = packed[8:].decode()
    except (TypeError, ValueError, binascii.Error):
        return None
    fits = "repr_str" not in node and packed[:8] == (len(packed) - 8).to_bytes(8, "little")
    return told if fits else None


def _contents(index: int, node: Node, nodes: list[Node], name: str) -> list[int]:
    data, keys = node.get("data", []), node.get("keys", [])
    _need(isinstance(data, list) and isinstance(keys, list), name, f"node {index} is no list")
    if keys:  # a map by text
        _need(all(isinstance(k, str) for k in keys), name, f"node {index} has a key that is none")
        _need(len(keys) == len(data), name, f"node {index} has not as many keys as values")
    elif node["type_key"] == "Map":
        _need(len(data) % 2 == 0, name, f"node {index} has a key without a value")
    return [_index(one, nodes, name) for one in data]


def _index(value: Any, nodes: list[Node], name: str) -> int:
    at = _number(value)
    if at is None or not 0 <= at < len(nodes) or not isinstance(nodes[at], dict):
        raise refused(name, f"it refers to a node {str(value)[:40]!r}, which is not there")
    return at


def _number(value: Any) -> int | None:
    """What a field says that names a node or an array; None where it is no such number."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if type(value) is int else None


def _acyclic(edges: list[list[int]], name: str) -> None:
    """Refuse circles, without recursion: nodes that nobody reads go first."""
    readers = [0] * len(edges)
    for one in edges:
        for at in one:
            readers[at] += 1
    todo = [i for i, count in enumerate(readers) if not count]
    gone = 0
    while todo:
        gone += 1
        for at in edges[todo.pop()]:
            readers[at] -= 1
            if not readers[at]:
                todo.append(at)
    _need(gone == len(edges), name, "nodes in it refer to each other in a circle")


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
_INFERS = "tvm.relax.type.infer_by_ty_args"  # which alone TVM may call while it reads


def _is_in_relax(kind: str, kernels: bool) -> bool:
    """Whether a Relax module, which may have kernels, may have nodes of a type."""
    known = kind in _RELAX or (kernels and _KERNELS.fullmatch(kind) is not None)
    expr = kind.startswith(("relax.expr.", "relax.attrs.")) and (kernels or kind not in _NO_EXPR)
    return known or expr


def check_relax_json(text: str, name: str, kernels: bool = False) -> str:
    """The same JSON, of a Relax module, as TVM may read it.

    TVM checks the types of fields itself here; what a node refers to stands before it.

    Raises:
        EngineError: kind "file"; says what is wrong with it.
    """
    found = _parsed(text, name)
    nodes: Any = found.get("nodes")
    _check_count(nodes, name)
    root = found.get("root_index")
    _need(type(root) is int and 0 <= root < len(nodes), name, "it has no root")
    arrays = []
    for index, node in enumerate(nodes):
        _need(
            isinstance(node, dict) and set(node) <= {"type", "data"}, name, f"node {index} is none"
        )
        kind, data = node.get("type"), node.get("data")
        shown = str(kind)[:60]
        known = isinstance(kind, str) and _is_in_relax(kind, kernels)
        _need(known, name, f"node {index} is of the type {shown}, which no such module has")
        if kind == "ffi.Tensor":
            arrays.append(data)
        if kind == "ir.EnvFunc":
            _need(data == _INFERS, name, f"node {index} is the function {str(data)[:60]}")
        read: Iterable[Any] = ()
        if kind in ("ffi.Array", "ffi.Map"):
            _need(isinstance(data, list), name, f"node {index} is no list")
            read = data
        elif isinstance(data, dict):
            read = (v for v in data.values() if type(v) is int) if kind == "ffi.Map" else ()
        for one in read:
            before = type(one) is int and 0 <= one < index
            _need(before, name, f"node {index} refers to one that does not stand before it")
    _check_arrays(arrays, name)
    metadata = {"tvm_version": _version({"attrs": found.get("metadata")}, name)}
    return json.dumps({"root_index": root, "nodes": nodes, "metadata": metadata})


def _check_arrays(arrays: Iterable[Any], name: str) -> None:
    for one in arrays:
        _need(isinstance(one, str), name, "an array in it is no text")
        try:
            read_array(base64.b64decode(one, validate=True))
        except (ValueError, binascii.Error) as wrong:
            raise refused(name, f"an array in it cannot be read: {wrong}") from wrong


def _parsed(text: str, name: str) -> Node:
    try:
        found = json.loads(text)
    except RecursionError as wrong:
        raise refused(name, "it is nested too deeply") from wrong
    except ValueError as wrong:
        raise refused(name, f"it is no JSON: {wrong}") from wrong
    _need(isinstance(found, dict), name, "it is no object")
    return dict(found)


def _need(holds: bool, name: str, why: str) -> None:
    if not holds:
        raise refused(name, why)


def refused(name: str, why: str) -> EngineError:
    """That TVM is not given a file.

    Args:
        why: continues a sentence behind a colon.
    """
    return EngineError("file", f"{name} is not read as TVM's JSON: {why}.", name, _HINT)
