"""A Relax module run by PyTorch, operator by operator: a judge without TVM.

The same TVM with fewer passes may have the same fault. If an operator has no counterpart that is
surely equal, its module has no such judge."""

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import tvm
from torch.utils._pytree import tree_leaves
from tvm import relax, tirx

from relascope.core.errors import lines_of
from relascope.engine.relax.draw.to_graph import tensor_types
from relascope.passes.relax.ir.rewrite import everything

_HALVES = ("float16", "bfloat16")
"""Each operator on these computes in float64 and rounds its result once."""
_KNOWN = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool", *_HALVES)

_Values = list[Any]
_Operator = Callable[[_Values, Any], Any]


def _plain(name: str) -> _Operator:
    function = getattr(torch, name)
    return lambda given, attrs: function(*given)


def _ints(value: Any) -> list[int] | None:
    if value is None:
        return None
    return [int(v) for v in value] if hasattr(value, "__len__") else [int(value)]


def _dtype(value: Any) -> Any:
    return None if value is None or str(value) in ("", "void") else getattr(torch, str(value))


def _floating(name: str, given: _Values, attrs: Any) -> Any:
    if not given[0].is_floating_point():
        raise NotImplementedError(f"{name} of integers")
    return getattr(torch, name)(*given)


def _reduced(
    function: Callable[[torch.Tensor, list[int], bool], torch.Tensor], given: _Values, attrs: Any
) -> Any:
    x, axes = given[0], _ints(attrs.axis)
    return function(x, list(range(x.ndim)) if axes is None else axes, bool(attrs.keepdims))


def _product(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    for axis in sorted((a % x.ndim for a in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def _extreme(function: Callable[..., Any], given: _Values, attrs: Any) -> Any:
    axis = attrs.axis
    return function(given[0], None if axis is None else int(axis), bool(attrs.keepdims))


def _matmul(given: _Values, attrs: Any) -> Any:
    wanted = _dtype(attrs.out_dtype)
    if wanted is not None and torch.float64 != given[0].dtype != wanted:
        raise NotImplementedError("matmul with another result dtype")
    return torch.matmul(*given).to(wanted or given[0].dtype)


def _split(given: _Values, attrs: Any) -> Any:
    x, axis, parts = given[0], int(attrs.axis), attrs.indices_or_sections
    if hasattr(parts, "__len__"):
        return tuple(torch.tensor_split(x, [int(p) for p in parts], axis))
    return tuple(torch.split(x, -(-x.shape[axis] // int(parts)), axis))


def _strided_slice(given: _Values, attrs: Any) -> Any:
    x, axes, begin, end, *strides = given
    steps = strides[0] if strides else [1] * len(axes)
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        if step < 0 and last < 0 and bool(attrs.assume_inbound):
            raise NotImplementedError("a slice that runs back to the start")
        found = range(x.shape[axis])[first:last:step]  # PyTorch only steps forward
        places = torch.arange(len(found), device=x.device) * found.step + found.start
        x = x.index_select(axis, places)
    return x


def _take(given: _Values, attrs: Any) -> Any:
    x, indices = given
    axis, mode = int(attrs.axis or 0), str(attrs.mode)
    x = x.flatten() if attrs.axis is None else x
    size = x.shape[axis]
    if mode == "wrap":
        indices = indices % size
    elif mode == "clip":
        indices = indices.clamp(0, size - 1)
    elif not x.is_meta and bool(((indices < 0) | (indices >= size)).any()):
        raise NotImplementedError("an index out of range")
    found = x.index_select(axis, indices.flatten().long())
    return found.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _convolution(
    function: Callable[..., torch.Tensor], layouts: tuple[str, str], given: _Values, attrs: Any
) -> Any:
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != layouts:
        raise NotImplementedError("convolution in this layout")
    # Of each axis, the last first.
    sides = np.reshape(_ints(attrs.padding) or [], (2, -1)).T[::-1]
    x = F.pad(given[0], sides.flatten().tolist())
    steps = _ints(attrs.strides), 0, _ints(attrs.dilation), int(attrs.groups)
    return function(x, given[1], None, *steps)


def _pool(given: _Values, attrs: Any, value: float) -> tuple[torch.Tensor, list[int], list[int]]:
    """The padded input, the window and the strides."""
    pads = _ints(attrs.padding) or []
    if (
        str(attrs.layout) != "NCHW"
        or bool(attrs.ceil_mode)
        or set(_ints(attrs.dilation) or []) != {1}
    ):
        raise NotImplementedError("a pooling of this kind")
    top, left, bottom, right = pads
    x = F.pad(given[0], [left, right, top, bottom], value=value)
    return x, _ints(attrs.pool_size) or [], _ints(attrs.strides) or []


def _max_pool(given: _Values, attrs: Any) -> Any:
    x, window, strides = _pool(given, attrs, -np.inf)
    return F.max_pool2d(x, window, strides)


def _avg_pool(given: _Values, attrs: Any) -> Any:
    x, window, strides = _pool(given, attrs, 0.0)
    if any(_ints(attrs.padding) or []) and not bool(attrs.count_include_pad):
        raise NotImplementedError("average pooling without its padding")
    return F.avg_pool2d(x, window, strides)


def _adaptive_pool(given: _Values, attrs: Any) -> Any:
    if str(attrs.layout) != "NCHW":
        raise NotImplementedError("pooling in this layout")
    return F.adaptive_avg_pool2d(given[0], _ints(attrs.output_size))  # type: ignore[arg-type]


def _layer_norm(given: _Values, attrs: Any) -> Any:
    x, gamma, beta = given
    axes = sorted(a % x.ndim for a in _ints(attrs.axes) or [])
    if axes != list(range(x.ndim - len(axes), x.ndim)) or not (attrs.center and attrs.scale):
        raise NotImplementedError("a norm over these axes")
    return F.layer_norm(x, [x.shape[a] for a in axes], gamma, beta, float(attrs.epsilon))


def _batch_norm(given: _Values, attrs: Any) -> Any:
    x, gamma, beta, mean, variance = given
    if bool(attrs.training) or int(attrs.axis) != 1 or not (attrs.center and attrs.scale):
        raise NotImplementedError("this form of batch norm")
    done = F.batch_norm(x, mean, variance, gamma, beta, False, 0.0, float(attrs.epsilon))
    return done, mean, variance


_MIRRORS: Mapping[str, Any] = {"reflect": "reflect", "replicate": "edge"}


def _pad(given: _Values, attrs: Any) -> Any:
    width, mode = _ints(attrs.pad_width) or [], str(attrs.pad_mode)
    if mode in _MIRRORS:  # numpy pads by more than the tensor, PyTorch refuses
        x = given[0]
        for axis, size in enumerate(x.shape):
            places = np.pad(np.arange(size), width[2 * axis : 2 * axis + 2], _MIRRORS[mode])
            x = x.index_select(axis, torch.from_numpy(places).to(x.device))
        return x
    if mode != "constant":
        raise NotImplementedError("this padding mode")
    pairs = np.reshape(width, (-1, 2))[::-1]
    return F.pad(given[0], pairs.flatten().tolist(), value=float(attrs.pad_value))


def _full(given: _Values, attrs: Any) -> Any:
    shape, value = given
    return value.to(_dtype(attrs.dtype) or value.dtype).expand(list(shape)).clone()


def _scan(function: Callable[..., torch.Tensor], given: _Values, attrs: Any) -> Any:
    if bool(attrs.exclusive) or attrs.axis is None:
        raise NotImplementedError("a scan of this kind")
    return function(given[0], int(attrs.axis), dtype=_dtype(attrs.dtype) or given[0].dtype)


def _squeeze(given: _Values, attrs: Any) -> Any:
    axes = _ints(attrs.axis)
    return given[0].squeeze() if axes is None else given[0].squeeze(tuple(axes))


def _expand_dims(given: _Values, attrs: Any) -> Any:
    x = given[0]
    ndim = x.ndim + len(attrs.axis)
    for axis in sorted(a % ndim for a in _ints(attrs.axis) or []):
        x = x.unsqueeze(axis)
    return x


def _permute(given: _Values, attrs: Any) -> Any:
    axes = _ints(attrs.axes)
    return given[0].permute(list(range(given[0].ndim))[::-1] if axes is None else axes)


_ALIKE = """
    abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log negative rsqrt sigmoid sign
    sin sinh sqrt square tan tanh trunc logical_not isfinite isinf isnan tril triu add subtract
    multiply maximum minimum atan2 where logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor bitwise_not
    equal=eq not_equal=ne less=lt less_equal=le greater=gt greater_equal=ge
"""
_BY_NAME = (_expand_dims, _full, _matmul, _split, _squeeze, _strided_slice, _take)
_OPERATORS: dict[str, _Operator] = {
    **{n: _plain(t or n) for n, _, t in (s.partition("=") for s in _ALIKE.split())},
    **{made.__name__[1:]: made for made in _BY_NAME},
    "divide": partial(_floating, "div"),
    "power": partial(_floating, "pow"),
    "sum": partial(_reduced, lambda x, axes, keep: x.sum(axes, keep, dtype=x.dtype)),
    "prod": partial(_reduced, _product),
    "mean": partial(_reduced, torch.mean),
    "max": partial(_reduced, torch.amax),
    "min": partial(_reduced, torch.amin),
    "variance": partial(_reduced, lambda x, axes, keep: x.var(axes, keepdim=keep, correction=0)),
    "std": partial(_reduced, lambda x, axes, keep: x.std(axes, keepdim=keep, correction=0)),
    "argmax": partial(_extreme, torch.argmax),
    "argmin": partial(_extreme, torch.argmin),
    "cumsum": partial(_scan, torch.cumsum),
    "cumprod": partial(_scan, torch.cumprod),
    "reshape": lambda g, a: g[0].reshape(list(g[1])),
    "broadcast_to": lambda g, a: g[0].broadcast_to(list(g[1])),
    "flatten": lambda g, a: g[0].flatten(),
    "permute_dims": _permute,
    "concat": lambda g, a: torch.cat(list(g[0]), 0 if a.axis is None else int(a.axis)),
    "stack": lambda g, a: torch.stack(list(g[0]), 0 if a.axis is None else int(a.axis)),
    "flip": lambda g, a: g[0].flip(_ints(a.axis)),
    "tile": lambda g, a: g[0].tile(_ints(a.repeats)),
    "gather_elements": lambda g, a: torch.gather(g[0], int(a.axis), g[1].long()),
    "astype": lambda g, a: g[0].to(_dtype(a.dtype)),
    "clip": lambda g, a: torch.clip(*g),
    "zeros": lambda g, a: torch.zeros(list(g[0]), dtype=_dtype(a.dtype)),
    "ones": lambda g, a: torch.ones(list(g[0]), dtype=_dtype(a.dtype)),
    "zeros_like": lambda g, a: torch.zeros_like(g[0], dtype=_dtype(a.dtype)),
    "ones_like": lambda g, a: torch.ones_like(g[0], dtype=_dtype(a.dtype)),
    "arange": lambda g, a: torch.arange(*g, dtype=_dtype(a.dtype)),
    "shape_of": lambda g, a: list(g[0].shape),
    "shape_to_tensor": lambda g, a: torch.tensor(g[0], dtype=torch.int64),
    "tensor_to_shape": lambda g, a: g[0].tolist(),
    "einsum": lambda g, a: torch.einsum(str(a.subscripts), *g[0]),
    "nn.relu": lambda g, a: F.relu(g[0]),
    "nn.gelu": lambda g, a: F.gelu(g[0]),
    "nn.gelu_tanh": lambda g, a: F.gelu(g[0], approximate="tanh"),
    "nn.silu": lambda g, a: F.silu(g[0]),
    "nn.leakyrelu": lambda g, a: F.leaky_relu(g[0], float(a.alpha)),
    "nn.softmax": lambda g, a: torch.softmax(g[0], int(a.axis)),
    "nn.log_softmax": lambda g, a: torch.log_softmax(g[0], int(a.axis)),
    "nn.conv1d": partial(_convolution, F.conv1d, ("NCW", "OIW")),
    "nn.conv2d": partial(_convolution, F.conv2d, ("NCHW", "OIHW")),
    "nn.max_pool2d": _max_pool,
    "nn.avg_pool2d": _avg_pool,
    "nn.adaptive_avg_pool2d": _adaptive_pool,
    "nn.layer_norm": _layer_norm,
    "nn.batch_norm": _batch_norm,
    "nn.pad": _pad,
}
_ARITHMETIC: tuple[tuple[Any, Callable[[int, int], int]], ...] = (
    (tirx.Add, operator.add),
    (tirx.Sub, operator.sub),
    (tirx.Mul, operator.mul),
    (tirx.FloorDiv, operator.floordiv),
    (tirx.FloorMod, operator.mod),
    (tirx.Min, min),
    (tirx.Max, max),
)
_BY_VALUES = ("relax.tensor_to_shape",)  # only a run knows the types of its results
_ANY_SIZE: Mapping[str, int] = defaultdict(lambda: 3)


def unknown(mod: Any) -> str:
    """The first thing in a module without a surely equal counterpart in PyTorch, or "". Operators
    are tried one by one on tensors without values."""
    for name, function in mod.functions.items():
        if not isinstance(function, relax.Function):
            return f"the kernel {name.name_hint}"
        for one in everything(function):
            if isinstance(one, relax.ExternFunc):
                return str(one.global_symbol)
            if isinstance(one, tvm.ir.Var | tvm.ir.GenericConst):
                for kind in tensor_types(one.ty):
                    if kind.dtype not in _KNOWN:
                        return kind.dtype
            if isinstance(one, tvm.ir.Call) and (why := _missing(one)):
                return why
    return ""


def _missing(call: Any) -> str:
    """What PyTorch lacks of a called operator; "" if nothing, or if no operator is called."""
    if not isinstance(call.op, tvm.ir.Op):
        return ""
    name = str(call.op.name)
    function = _OPERATORS.get(name[6:])
    if function is None or name in _BY_VALUES:
        return "" if function else name
    try:
        with torch.device("meta"):
            _applied(function, [_without_values(a) for a in call.args], call)
    except _Unknown:
        pass  # only a run knows its arguments
    except NotImplementedError as other:
        return str(other)
    except Exception:  # PyTorch raises anything on arguments that it does not accept
        return f"{name} as it is used here"
    return ""


def _applied(function: _Operator, given: _Values, call: Any) -> Any:
    kinds = tensor_types(call.ty)
    given_kinds = (kind for a in call.args if hasattr(a, "ty") for kind in tensor_types(a.ty))
    if not {kind.dtype for kind in (*kinds, *given_kinds)} & {*_HALVES}:
        return function(given, call.attrs)
    made = function(_wide(given), call.attrs)
    several = isinstance(made, tuple)
    pairs = zip(made if several else [made], kinds, strict=True)
    rounded = tuple(one.to(_dtype(kind.dtype)) for one, kind in pairs)
    return rounded if several else rounded[0]


def _wide(value: Any) -> Any:
    """The arguments, with tensors of half precision in float64."""
    if isinstance(value, tuple | list):
        return type(value)(map(_wide, value))
    narrow = isinstance(value, torch.Tensor) and str(value.dtype)[6:] in _HALVES
    return value.double() if narrow else value


class _Unknown(Exception):
    """An argument whose type leaves out its rank or sizes."""


def _without_values(expr: Any) -> Any:
    """A tensor of an argument's type, with open sizes as 3; any other argument unchanged."""
    if isinstance(expr, relax.Tuple):
        return tuple(map(_without_values, expr.fields))
    if isinstance(expr, relax.ShapeExpr):
        return [_number(v, _ANY_SIZE) for v in expr.values]
    if not isinstance(expr, tvm.ir.Var | tvm.ir.GenericConst | tvm.ir.Call | relax.TupleGetItem):
        return _number(expr, _ANY_SIZE)
    if not isinstance(expr.ty, relax.TensorType) or not isinstance(expr.ty.shape, relax.ShapeExpr):
        raise _Unknown
    sizes = [_number(v, _ANY_SIZE) for v in expr.ty.shape.values]
    return torch.empty(sizes, dtype=_dtype(expr.ty.dtype))


def _tensor(array: np.ndarray, kind: Any) -> torch.Tensor:
    """An array as a tensor of a type; numpy holds bfloat16 values as float32."""
    if getattr(kind, "dtype", None) != "bfloat16":
        return torch.from_numpy(np.array(array))
    return torch.from_numpy(np.array(array, "float32")).bfloat16()


class ByOperator:
    """A module's "main", for which `unknown` finds nothing, run by PyTorch. `arrays` has the values
    of arguments other than inputs, by name."""

    def __init__(self, mod: Any, arrays: Mapping[str, np.ndarray]) -> None:
        self._mod, self._arrays = mod, dict(arrays)

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The results, flat, for the inputs by name; bfloat16 as float32, both ways. Raises
        NotImplementedError, which says what, if PyTorch lacks an attribute of an operator."""
        given = {**self._arrays, **arrays}
        main = self._mod["main"]
        values = [_tensor(given[str(p.name)], p.ty) for p in main.params]
        try:
            flat = tree_leaves(self._call(main, values, {}))
        except (NotImplementedError, MemoryError):
            raise
        except Exception as other:  # PyTorch raises anything on what it does not accept
            raise NotImplementedError(f"what it does: {lines_of(other)[0]}") from other
        flat = [one.float() if one.dtype == torch.bfloat16 else one for one in flat]
        return [one.contiguous().numpy() for one in flat]

    def _call(self, function: Any, values: Sequence[Any], outside: Mapping[int, Any]) -> Any:
        known, sizes = dict(outside), dict[str, int]()
        for variable, value in zip(function.params, values, strict=True):
            known[variable.__chandle__()] = value
            self._sizes(variable.ty, value, sizes)
        return self._body(function.body, known, sizes)

    def _sizes(self, kind: Any, value: Any, sizes: dict[str, int]) -> None:
        """Read the open sizes of a type from a value of it."""
        shape = kind if isinstance(kind, relax.ShapeType) else getattr(kind, "shape", None)
        dims = getattr(shape, "values", None) or ()
        found = value.shape if isinstance(value, torch.Tensor) else value
        for dim, size in zip(dims, found if dims else (), strict=True):
            if isinstance(dim, tirx.Var):
                sizes.setdefault(str(dim.name), int(size))

    def _body(self, body: Any, known: dict[int, Any], sizes: dict[str, int]) -> Any:
        if not isinstance(body, relax.SeqExpr):
            return self._value(body, known, sizes)
        for block in body.blocks:
            for binding in block.bindings:
                value = self._value(binding.value, known, sizes)
                if isinstance(binding, relax.MatchCast):
                    self._sizes(binding.ty, value, sizes)
                known[binding.var.__chandle__()] = value
        return self._value(body.body, known, sizes)

    def _value(self, expr: Any, known: dict[int, Any], sizes: dict[str, int]) -> Any:
        inner = partial(self._value, known=known, sizes=sizes)
        if isinstance(expr, tvm.ir.Var):
            return known[expr.__chandle__()]
        if isinstance(expr, tvm.ir.GenericConst):
            value = expr.value
            return _tensor(value.numpy(), expr.ty) if hasattr(value, "numpy") else value
        if isinstance(expr, relax.Tuple):
            return tuple(map(inner, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            return inner(expr.tuple_value)[int(expr.index)]
        if isinstance(expr, relax.ShapeExpr):
            return [_number(v, sizes) for v in expr.values]
        if isinstance(expr, relax.If):
            branch = expr.true_branch if bool(inner(expr.cond)) else expr.false_branch
            return self._body(branch, dict(known), dict(sizes))
        if isinstance(expr, relax.Function):
            return lambda values: self._call(expr, values, known)
        if isinstance(expr, tvm.ir.Call):
            return self._run(expr, known, sizes)
        return _number(expr, sizes)

    def _run(self, call: Any, known: dict[int, Any], sizes: dict[str, int]) -> Any:
        given = [self._value(a, known, sizes) for a in call.args]
        if isinstance(call.op, tvm.ir.Op):
            return _applied(_OPERATORS[str(call.op.name)[6:]], given, call)
        if isinstance(call.op, tvm.ir.GlobalVar):
            return self._call(self._mod[call.op], given, {})
        return self._value(call.op, known, sizes)(given)


def _number(expr: Any, sizes: Mapping[str, int]) -> Any:
    """A number among arguments, or a size computed from known ones."""
    if isinstance(expr, tirx.Var):
        return sizes[str(expr.name)]
    for kind, compute in _ARITHMETIC:
        if isinstance(expr, kind):
            return compute(_number(expr.a, sizes), _number(expr.b, sizes))
    if not hasattr(expr, "value"):
        raise NotImplementedError(str(expr))
    return expr.value
