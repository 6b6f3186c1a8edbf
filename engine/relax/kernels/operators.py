"""Kernels for operators whose TVM kernels are missing or wrong.

TVM's layer norm refuses float64. Its slice_scatter reads past its source, and two in one kernel
have returned what they read there. Its index_tensor takes indices out of a tuple, from which fusion
can separate the kernel that makes them. It has no log1p: for log(1 + y), the sum moves into the
logarithm's kernel, where `engine.cpu_kernels.vector_math` sees it. For gradients of maxima over
windows, see `engine.cpu_kernels.max_pool`.
"""

import functools
import math
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, topi
from tvm.relax.transform.legalize_ops import manipulate, nn

from relascope.engine.cpu_kernels import max_pool

_CALL = tvm.ir.Op.get("relax.call_tir")


@functools.cache
def register() -> None:
    tvm.ir.register_op_attr("relax.nn.layer_norm", "FLegalize", _layer_norm, level=11)
    for name, ours in (("log", _log), ("grad.max_pool2d_backward", _max_pool_gradient)):
        theirs = tvm.ir.Op.get(f"relax.{name}").get_attr("FLegalize")
        made = functools.partial(ours, theirs)
        tvm.ir.register_op_attr(f"relax.{name}", "FLegalize", made, level=11)
    tvm.ir.register_op_attr("relax.slice_scatter", "FLegalize", _slice_scatter, level=11)
    tvm.ir.register_op_attr("relax.index_tensor", "FLegalize", _index_tensor, level=11)


def _layer_norm(builder: Any, call: Any) -> Any:
    if str(call.args[0].ty.dtype) != "float64":
        return nn._nn_layer_norm(builder, call)
    axes = [int(a) for a in call.attrs.axes]
    return builder.call_te(
        _normalised, *call.args, axes, float(call.attrs.epsilon), primfunc_name_hint="layer_norm"
    )


def _max_pool_gradient(theirs: Any, builder: Any, call: Any) -> Any:
    target = tvm.target.Target.current(allow_none=True)
    on_cpu = target is not None and target.kind.name == "llvm"
    made = max_pool.kernel(te, tvm.tirx, call.attrs, str(call.args[1].ty.dtype))
    if not on_cpu or made is None:
        return theirs(builder, call)
    return builder.call_te(made, *call.args, primfunc_name_hint="max_pool2d_backward")


def _index_tensor(builder: Any, call: Any) -> Any:
    data, indices = call.args
    if not isinstance(indices, relax.Tuple):
        return manipulate._index_tensor(builder, call)
    return builder.call_te(topi.index_tensor, data, list(indices.fields))


def _normalised(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axes: list[int], epsilon: float
) -> te.Tensor:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, over the last axes."""
    count: Any = math.prod(data.shape[axis] for axis in axes)
    number, count = tvm.tirx.const(epsilon, data.dtype), count.astype(data.dtype)
    centred = topi.subtract(data, topi.divide(topi.sum(data, axes, keepdims=True), count))
    variance = topi.divide(topi.sum(topi.multiply(centred, centred), axes, keepdims=True), count)
    scaled = topi.divide(centred, topi.sqrt(topi.add(variance, number)))
    return topi.add(topi.multiply(scaled, gamma), beta)


def _log(theirs: Any, builder: Any, call: Any) -> Any:
    (given,) = call.args
    bound = builder.lookup_binding(given) if isinstance(given, tvm.ir.Var) else None
    if (
        bound is None
        or not _CALL.same_as(getattr(bound, "op", None))
        or not _adds_one(builder, bound)
    ):
        return theirs(builder, call)
    (smaller,) = bound.args[1].fields
    return builder.call_te(_log1p, smaller, primfunc_name_hint="log1p")


def _adds_one(builder: Any, call: Any) -> bool:
    """Whether a call is of TVM's kernel that adds one to a tensor."""
    if len(call.args[1].fields) != 1 or not call.args[0].name_hint.startswith("add"):
        return False
    stored: list[Any] = []
    visit = tvm.tirx.BufferStore, lambda store: stored.append(store.value)
    tvm_ffi.structural_walk(builder.get()[call.args[0]].body, [visit], order="post")
    parts = [(v.a, v.b) for v in stored if isinstance(v, tvm.tirx.Add)]
    numbers = [n for pair in parts for n in pair if isinstance(n, tvm.tirx.FloatImm)]
    return len(stored) == len(parts) == 1 and [n.value for n in numbers] == [1.0]


def _log1p(given: te.Tensor) -> te.Tensor:
    one = tvm.tirx.const(1.0, given.dtype)
    return te.compute(given.shape, lambda *at: tvm.tirx.log(given(*at) + one), name="log1p")


def _slice_scatter(builder: Any, call: Any) -> Any:
    data, source, *bounds = call.args
    places = [getattr(b, "value", b) for b in bounds]
    if not all(str(p).isdecimal() for p in places):
        return manipulate._slice_scatter(builder, call)
    axis = int(call.attrs.axis) % len(data.ty.shape.values)
    return builder.call_te(
        _scattered, data, source, *map(int, places), axis, primfunc_name_hint="slice_scatter"
    )


def _scattered(
    data: te.Tensor, source: te.Tensor, begin: int, end: int, step: int, axis: int
) -> te.Tensor:
    """`source` at every `step`-th place of `axis` from `begin` to before `end`, else `data`."""

    def element(*place: Any) -> Any:
        past = place[axis] - begin
        inside = tvm.tirx.all(past >= 0, place[axis] < end, tvm.tirx.floormod(past, step) == 0)
        last = source.shape[axis] - 1
        nearest = tvm.tirx.max(tvm.tirx.min(tvm.tirx.floordiv(past, step), last), 0)
        taken = source(*place[:axis], nearest, *place[axis + 1 :])
        return tvm.tirx.Select(inside, taken, data(*place))

    return te.compute(data.shape, element, name="slice_scatter")
