"""Translate a Relay module in TVM's JSON to Relax, operator by operator; operators without an equal
counterpart are named. The type of every result is checked against the file's."""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relascope.core.errors import EngineError
from relascope.core.graph import TensorType, read_first
from relascope.engine.files.tvm_arrays import read_array
from relascope.engine.files.tvm_json import Node, check_relay_json, json_text
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.passes.relax.training.conv_gradient import of_weight

_TYPED = "Save it after relay.transform.InferType()."


class _Unlike(Exception):
    """A form of an operator that Relax lacks; its text continues "nn.pad "."""


class _RelayCall:
    """A call of an operator, with its attributes as Python numbers, texts and lists. `args` are
    Relax expressions, with a tuple's fields bound to variables; `kinds` are the flat types of its
    result; `builder` is that of the function around it."""

    def __init__(
        self, nodes: list[Node], attrs: Node, args: list[Any], kinds: list[TensorType], builder: Any
    ) -> None:
        self.args, self.kinds, self.builder = args, kinds, builder
        self._nodes, self._attrs = nodes, attrs

    @property
    def shape(self) -> list[int]:
        """The shape of its result."""
        return [int(d) for d in self.kinds[0].shape]

    def of(self, index: int) -> list[int]:
        return [int(d) for d in self.args[index].ty.shape.values]

    def value(self, index: int) -> Any:
        """A constant argument as an array; raises `_Unlike` for any other."""
        if not isinstance(self.args[index], tvm.ir.GenericConst):
            raise _Unlike("of a value that is not constant")
        return self.args[index].value.numpy()

    def has(self, name: str) -> Any:
        """An attribute: a number, a text, a list of these, or None."""
        text = self._attrs.get(name)
        return None if text is None else self._plain(text)

    def number(self, name: str, default: Any) -> Any:
        """An attribute that is written in its field, as a number of the default's type."""
        text = self._attrs.get(name)
        return default if text is None else type(default)(float(text))

    def text(self, name: str, default: str = "") -> str:
        """An attribute that is a text, in its field or in a node."""
        text = self._attrs.get(name, default)
        return str(self._plain(text) or "") if text.isdecimal() else text

    def options(self, nodes: str = "", texts: str = "", **defaults: Any) -> dict[str, Any]:
        """Attributes by name: `nodes` as by `has`, `texts` as by `text` (None if empty), and the
        rest as by `number`, with their defaults."""
        found = {n: self.has(n) for n in nodes.split()}
        found |= {n: self.text(n) or None for n in texts.split()}
        return found | {n: self.number(n, default) for n, default in defaults.items()}

    def _plain(self, text: Any) -> Any:
        node = self._nodes[int(text)]
        kind, attrs = node["type_key"], node.get("attrs", {})
        if kind in ("IntImm", "FloatImm"):
            return (int if kind == "IntImm" else float)(attrs["value"])
        if kind == "runtime.String":
            return json_text(node)
        if kind == "Array":
            return [self._plain(one) for one in node.get("data", [])]
        if kind == "":
            return None
        raise _Unlike(f"with a {kind}")

    def need(self, holds: Any, what: str) -> None:
        """Raise `_Unlike` unless `holds`."""
        if not holds:
            raise _Unlike(what)


_Made = Callable[[_RelayCall], Any]
op = relax.op


def _called(name: str, nodes: str = "", texts: str = "", **defaults: Any) -> _Made:
    """A call with the same arguments, and attributes as in `_RelayCall.options`."""
    return lambda c: attrgetter(name)(op)(*c.args, **c.options(nodes, texts, **defaults))


def _reduced(name: str) -> _Made:
    return lambda c: getattr(op, name)(c.args[0], _axes(c), c.number("keepdims", False))


def _axes(c: _RelayCall) -> list[int]:
    rank, axes = len(c.of(0)), c.has("axis")
    if axes is None:
        return list(range(rank))
    named = [a % rank for a in (axes if isinstance(axes, list) else [axes])]
    return [a for a in range(rank) if a not in named] if c.number("exclude", False) else named


def _arg(name: str, c: _RelayCall) -> Any:
    axes, keep = _axes(c), c.number("keepdims", False)
    c.need(not c.number("select_last_index", False), "of the last index")
    c.need(len(axes) in (1, len(c.of(0))), "over some axes")
    c.need(len(axes) == 1 or not keep, "over all axes with keepdims")
    data, axis = (c.args[0], *axes) if len(axes) == 1 else (op.reshape(c.args[0], [-1]), 0)
    return op.astype(getattr(op, name)(data, axis, keep), c.kinds[0].dtype)


def _conv_weight(c: _RelayCall) -> Any:
    window = *(c.has(n) for n in ("strides", "padding", "dilation")), c.number("groups", 1)
    grad, data = c.args
    return of_weight(data, grad, c.shape, window, c.builder)


def _adaptive(c: _RelayCall) -> Any:
    layout = c.text("layout", "NCHW")
    c.need(layout == "NCHW", f"in {layout}")
    return op.nn.adaptive_avg_pool2d(c.args[0], c.shape[2:])


def _global_max(c: _RelayCall) -> Any:
    c.need(c.text("layout", "NCHW") == "NCHW", "in a layout other than NCHW")
    return op.max(c.args[0], [2, 3], True)


def _turned(value: Any) -> Any:
    rank = len(value.ty.shape.values)
    return op.permute_dims(value, [*range(rank - 2), rank - 1, rank - 2])


def _matmul(a: int, b: int, c: _RelayCall) -> Any:
    """A matrix product; `a` and `b` say whether to transpose each if the attributes do not."""
    left, right = c.args
    left = _turned(left) if c.number("transpose_a", a) else left
    right = _turned(right) if c.number("transpose_b", b) else right
    return op.matmul(left, right, c.text("out_dtype") or None)


def _bias(c: _RelayCall) -> Any:
    rank, axis = len(c.of(0)), c.number("axis", 1)
    wide = [1] * rank
    wide[axis] = c.of(1)[0]
    return op.add(c.args[0], op.reshape(c.args[1], wide))


_NORM: dict[str, Any] = {"epsilon": 1e-5, "center": True, "scale": True}


def _group_norm(c: _RelayCall) -> Any:
    axis = c.number("axis", 1) % len(c.of(0))
    axes = [a for a in range(1, len(c.of(0))) if a != axis]
    return op.nn.group_norm(*c.args, c.number("num_groups", 0), axis, axes, **c.options(**_NORM))


def _pad(c: _RelayCall) -> Any:
    modes, mode = {"edge": "replicate"}, c.text("pad_mode")
    c.need(mode in ("constant", "reflect", "edge"), f"with the mode {mode}")
    width = [int(w) for pair in c.has("pad_width") for w in pair]
    c.need(min(width) >= 0, "with a negative width")
    return op.nn.pad(c.args[0], width, modes.get(mode, mode), float(c.value(1)))


def _take(c: _RelayCall) -> Any:
    c.need(not c.has("batch_dims"), "with batch_dims")
    axis, mode = c.has("axis"), c.text("mode", "clip")
    c.need(mode in ("clip", "wrap", "fast"), f"with the mode {mode}")
    data = c.args[0] if axis is not None else op.reshape(c.args[0], [-1])
    return op.take(data, c.args[1], axis or 0, mode)


def _slice(c: _RelayCall) -> Any:
    begin, end = c.has("begin"), c.has("end")
    strides, axes = c.has("strides"), c.has("axes")
    c.need(len(c.args) == 1 and begin is not None and end is not None, "with computed bounds")
    axes = list(range(len(begin))) if axes is None else axes
    strides = [1] * len(begin) if strides is None else strides
    strides = strides * len(begin) if len(strides) == 1 else strides
    if c.text("slice_mode") == "size":
        sizes = [c.of(0)[a] for a in axes]
        end = [s if e < 0 else (b % s) + e for b, e, s in zip(begin, end, sizes, strict=True)]
        strides = [1] * len(begin)
    end = end + [c.of(0)[a] for a in axes[len(end) :]]
    return op.strided_slice(c.args[0], axes, begin, end, strides)


def _expand(c: _RelayCall) -> Any:
    axis, count = c.number("axis", 0), c.number("num_newaxis", 1)
    axis = axis if axis >= 0 else axis + len(c.of(0)) + 1
    return op.expand_dims(c.args[0], [axis + i for i in range(count)])


def _filled(value: float) -> _Made:
    return lambda c: op.full(c.shape, relax.const(value, c.kinds[0].dtype), c.kinds[0].dtype)


def _arange(c: _RelayCall) -> Any:
    start, stop, step = (c.value(i).item() for i in range(3))
    dtype = c.kinds[0].dtype
    numbers = np.arange(start, stop, step).astype(dtype)
    c.need(list(numbers.shape) == c.shape, "with these limits")
    return relax.const(numbers, dtype)


def _one_hot(c: _RelayCall) -> Any:
    on, off = (tvm.tirx.const(c.value(i).item(), c.kinds[0].dtype) for i in (1, 2))
    given = (relax.prim_value(on), relax.prim_value(off))
    return op.one_hot(c.args[0], *given, c.number("depth", 1), c.number("axis", -1))


def _round(c: _RelayCall) -> Any:
    """Round halves away from zero; Relax rounds them to even."""
    (data,) = c.args
    whole = op.trunc(data)
    far = op.greater_equal(op.abs(op.subtract(data, whole)), relax.const(0.5, c.kinds[0].dtype))
    return op.where(far, op.add(whole, op.sign(data)), whole)


def _variance(c: _RelayCall) -> Any:
    apart = op.subtract(*c.args)
    axes, keep = _axes(c), c.number("keepdims", False)
    found = op.mean(op.multiply(apart, apart), axes, keep)
    if c.number("unbiased", 0):
        count = math.prod(c.of(0)[a] for a in axes)
        c.need(count > 1, "of one value, unbiased")
        found = op.multiply(found, relax.const(count / (count - 1), c.kinds[0].dtype))
    return found


def _gather_nd(c: _RelayCall) -> Any:
    indices = op.astype(op.permute_dims(c.args[1], [*range(1, len(c.of(1))), 0]), "int64")
    c.need(not c.has("batch_dims"), "with batch_dims")
    return op.gather_nd(c.args[0], indices)


def _topk(c: _RelayCall) -> Any:
    about = c.options("k", axis=-1), c.text("ret_type", "both"), not c.number("is_ascend", False)
    options, ret_type, largest = about
    dtype = c.text("dtype") or "int32"
    return op.topk(*c.args, **options, ret_type=ret_type, largest=largest, dtype=dtype)


def _resize(c: _RelayCall) -> Any:
    texts = "layout method coordinate_transformation_mode out_dtype"
    defaults = {"cubic_alpha": -0.5, "cubic_exclude": 0, "extrapolation_value": 0.0}
    options = c.options("", texts, **defaults) | {"rounding_method": c.text("rounding_method")}
    size, roi = tuple(c.has("size")), tuple(c.has("roi") or (0.0,) * 4)
    return op.image.resize2d(*c.args, size, roi, **options)


_SLIDING = "strides padding dilation"
_RESHAPES = "nn.batch_flatten reshape reshape_like squeeze"
_CONV: dict[str, Any] = {"texts": "data_layout kernel_layout out_layout out_dtype", "groups": 1}
_POOL: dict[str, Any] = {"nodes": f"pool_size {_SLIDING}", "texts": "layout", "ceil_mode": False}
_AVERAGE = {**_POOL, "count_include_pad": False}
_ALIKE = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp floor isfinite isinf
    isnan log logical_not negative rsqrt sigmoid sign sin sinh sqrt tan tanh trunc
    add subtract multiply divide power floor_mod floor_divide maximum minimum equal not_equal less
    less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor left_shift right_shift where zeros_like ones_like full_like nn.relu
"""
_BY_NAME = (_arange, _gather_nd, _one_hot, _round, _take, _topk, _variance)
_OPERATORS: dict[str, _Made] = {
    **{name: _called(name) for name in _ALIKE.split()},
    **{made.__name__[1:]: made for made in _BY_NAME},
    **{name: _reduced(name) for name in ("sum", "mean", "max", "min", "prod")},
    **{n: _called(n, _SLIDING, **_CONV) for n in ("nn.conv1d", "nn.conv2d", "nn.conv3d")},
    "nn.conv2d_transpose": _called("nn.conv2d_transpose", f"{_SLIDING} output_padding", **_CONV),
    "nn.conv2d_backward_weight": _conv_weight,
    **{n: _called(n, **_POOL) for n in (f"nn.max_pool{d}d" for d in (1, 2, 3))},
    **{n: _called(n, **_AVERAGE) for n in (f"nn.avg_pool{d}d" for d in (1, 2, 3))},
    **{name: partial(_arg, name) for name in ("argmax", "argmin")},
    "broadcast_to": lambda c: op.broadcast_to(c.args[0], c.shape),
    "broadcast_to_like": lambda c: op.broadcast_to(c.args[0], c.shape),
    "cast": lambda c: op.astype(c.args[0], c.kinds[0].dtype),
    "cast_like": lambda c: op.astype(c.args[0], c.kinds[0].dtype),
    "clip": lambda c: op.clip(c.args[0], c.number("a_min", 0.0), c.number("a_max", 0.0)),
    "collapse_sum_like": lambda c: op.collapse_sum_to(c.args[0], c.shape),
    "collapse_sum_to": lambda c: op.collapse_sum_to(c.args[0], c.shape),
    "concatenate": lambda c: op.concat(list(c.args[0].fields), c.number("axis", 0)),
    "copy": lambda c: c.args[0],
    "cumsum": lambda c: op.cumsum(
        *c.args, c.has("axis"), c.kinds[0].dtype, bool(c.has("exclusive"))
    ),
    "expand_dims": _expand,
    "full": lambda c: op.full(c.shape, c.args[0], c.kinds[0].dtype),
    "gather": _called("gather_elements", "axis"),
    "image.resize2d": _resize,
    "nn.batch_norm": _called("nn.batch_norm", axis=1, training=False, **_NORM),
    "nn.bias_add": _bias,
    **dict.fromkeys(("nn.batch_matmul", "nn.dense"), partial(_matmul, 0, 1)),
    "nn.dropout": lambda c: relax.Tuple([c.args[0], op.ones_like(c.args[0])]),
    **dict.fromkeys(("nn.adaptive_avg_pool2d", "nn.global_avg_pool2d"), _adaptive),
    "nn.global_max_pool2d": _global_max,
    "nn.group_norm": _group_norm,
    "nn.layer_norm": lambda c: op.nn.layer_norm(
        *c.args, c.number("axis", -1), **c.options(**_NORM)
    ),
    "nn.leaky_relu": lambda c: op.nn.leakyrelu(c.args[0], c.number("alpha", 0.25)),
    "nn.matmul": partial(_matmul, 0, 0),
    "nn.pad": _pad,
    "nn.prelu": _called("nn.prelu", axis=1),
    **{n: _called(n, axis=-1) for n in ("nn.log_softmax", "nn.softmax")},
    "ones": _filled(1),
    "repeat": _called("repeat", "repeats axis"),
    "reverse": _called("flip", "axis"),
    "scatter_elements": lambda c: op.scatter_elements(
        *c.args, c.has("axis"), c.text("reduction", "update")
    ),
    "split": _called("split", "indices_or_sections", axis=0),
    **dict.fromkeys(_RESHAPES.split(), lambda c: op.reshape(c.args[0], c.shape)),
    "stack": lambda c: op.stack(list(c.args[0].fields), c.has("axis")),
    "strided_slice": _slice,
    "tile": lambda c: op.tile(c.args[0], c.has("reps")),
    "transpose": _called("permute_dims", "axes"),
    "zeros": _filled(0),
}
"""By the name of an operator of Relay's, what computes the same in Relax."""

_VALUES = {"relay.Call", "relay.Tuple", "relay.TupleGetItem", "relay.Constant", "relay.Var"}


class _RelayReader:
    def __init__(self, document: Node, name: str) -> None:
        self.nodes: list[Node] = document["nodes"]
        self.arrays: list[str] = document["b64ndarrays"]
        self.root: int = document["root"]
        self.name = name

    def main(self) -> int:
        """The function to translate: "main", or the only one."""
        root = self.nodes[self.root]
        if root["type_key"] == "relay.Function":
            return self.root
        if root["type_key"] != "IRModule":
            raise self.refused("it holds no module")
        pairs = self.nodes[int(root["attrs"]["functions"])].get("data", [])
        named = {
            self.text(self.nodes[var]["attrs"]["name_hint"]): function
            for var, function in zip(pairs[::2], pairs[1::2], strict=True)
        }
        if len(named) == 1:
            return int(next(iter(named.values())))
        if "main" not in named:
            raise self.refused('it has no function "main"')
        raise self.refused(f"it has {len(named)} functions, not one")

    def refused(self, why: str) -> EngineError:
        """The error of a module that is not translated."""
        message = f"relascope cannot translate the Relay module {self.name} to Relax: {why}."
        hint = "Choose the engine Relay, which reads it directly."
        return EngineError("operator", message, self.name, hint)

    def text(self, index: Any) -> str:
        return json_text(self.nodes[int(index)]) or ""

    def args(self, index: int) -> list[int]:
        node = self.nodes[index]
        attrs, kind = node.get("attrs", {}), node["type_key"]
        if kind == "relay.Call":
            return list(self.nodes[int(attrs["args"])].get("data", []))
        if kind == "relay.Tuple":
            return list(self.nodes[int(attrs["fields"])].get("data", []))
        return [int(attrs["tuple_value"])] if kind == "relay.TupleGetItem" else []

    def operator(self, index: int) -> str:
        called = self.nodes[int(self.nodes[index]["attrs"]["op"])]
        named = called["type_key"] == "Op"
        return str(called.get("repr_str", "")) if named else f"a {called['type_key']}"

    def types(self, index: Any) -> list[TensorType]:
        """The flat types in a node of a type."""
        node = self.nodes[int(index)]
        attrs = node.get("attrs", {})
        if node["type_key"] == "TupleType":
            fields = self.nodes[int(attrs["fields"])].get("data", [])
            return [kind for one in fields for kind in self.types(one)]
        if node["type_key"] != "relay.TensorType":
            raise self.refused(f"its types are not inferred. {_TYPED[:-1]}")
        sizes = [self.nodes[d] for d in self.nodes[int(attrs["shape"])].get("data", [])]
        if any(s["type_key"] != "IntImm" for s in sizes):
            raise self.refused("it leaves sizes open")
        return [TensorType(tuple(int(s["attrs"]["value"]) for s in sizes), attrs["dtype"])]

    def check(self, order: list[int]) -> None:
        """Refuse what has no counterpart, naming all of it, with counts."""
        kinds = Counter(self.nodes[i]["type_key"] for i in order)
        missing = Counter(k.removeprefix("relay.") for k in kinds if k not in _VALUES)
        calls = [self.operator(i) for i in order if self.nodes[i]["type_key"] == "relay.Call"]
        missing.update(o for o in calls if o not in _OPERATORS)
        if missing:
            listed = (f"{o} ({n} times)" if n > 1 else o for o, n in missing.most_common())
            raise self.refused(f"no counterpart in Relax is known for {', '.join(listed)}")


def from_relay(text: str, name: str) -> Any:
    """A Relay module in TVM's JSON as a Relax module. Raises EngineError of kind "file" if it is
    not such a module, and "operator" with the names of all operators that Relax lacks."""
    reader = _RelayReader(json.loads(check_relay_json(text, name)), name)
    nodes = reader.nodes
    main = nodes[reader.main()]["attrs"]
    order = [*read_first([int(main["body"])], reader.args)]
    reader.check(order)
    builder = relax.BlockBuilder()
    made: dict[int, Any] = {}
    params = []
    for index in nodes[int(main["params"])].get("data", []):
        attrs = nodes[index]["attrs"]
        told = attrs["type_annotation"] if attrs["type_annotation"] != "0" else None
        (kind,) = reader.types(told or attrs["_checked_type_"])
        hint = reader.text(nodes[int(attrs["vid"])]["attrs"]["name_hint"])
        made[index] = relax.Var(hint, relax.TensorType(list(kind.shape), kind.dtype))
        params.append(made[index])
    with builder.function("main", params):
        with builder.dataflow():
            for index in order:
                if index not in made:
                    made[index] = _value(reader, builder, index, made)
            result = builder.emit_output(made[int(main["body"])])
        builder.emit_func_output(result)
    return builder.get()


def _value(reader: _RelayReader, builder: Any, index: int, made: dict[int, Any]) -> Any:
    node = reader.nodes[index]
    attrs, kind = node.get("attrs", {}), node["type_key"]
    args = [made[a] for a in reader.args(index)]
    if kind == "relay.Constant":
        return relax.const(read_array(base64.b64decode(reader.arrays[int(attrs["data"])])))
    if kind == "relay.Var":
        raise reader.refused("it reads a variable that nothing binds")
    if kind == "relay.Tuple":
        return relax.Tuple(args)
    if kind == "relay.TupleGetItem":
        whole, place = args[0], int(attrs["index"])
        if isinstance(whole, relax.Tuple):
            return whole.fields[place]
        return builder.emit(relax.TupleGetItem(whole, place))
    name = reader.operator(index)
    kinds = reader.types(attrs["_checked_type_"])
    about = reader.nodes[int(attrs["attrs"])].get("attrs", {})
    try:
        call = _RelayCall(reader.nodes, about, args, kinds, builder)
        found = builder.normalize(_OPERATORS[name](call))
    except _Unlike as unlike:
        raise reader.refused(f"no counterpart in Relax is known for {name} {unlike}") from unlike
    except EngineError:
        raise
    except Exception as wrong:  # TVM raises anything on arguments that do not fit
        raise reader.refused(f"Relax does not accept its {name}") from wrong
    if isinstance(found, relax.Tuple):
        found = relax.Tuple([_bound(builder, f) for f in found.fields])
    else:
        found = _bound(builder, found)
    ours = [*tensor_types(found.ty)]
    if ours != kinds:
        said = ", ".join(map(str, ours)), ", ".join(map(str, kinds))
        raise reader.refused(f"{name} returns {said[0]} in Relax, but {said[1]} in Relay")
    return found


def _bound(builder: Any, value: Any) -> Any:
    return builder.emit(value) if isinstance(value, tvm.ir.Call) else value
