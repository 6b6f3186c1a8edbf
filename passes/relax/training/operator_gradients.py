"""Gradients of operators that TVM's table lacks, or has in a form that is not PyTorch's."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from relascope.core.errors import no_gradient
from relascope.passes.gradients import adaptive_share, of_means, of_tile, reached_windows
from relascope.passes.relax.ir.rewrite import dtype, is_floating, op_name, shape
from relascope.passes.relax.training.conv_gradient import conv2d, of_images
from relascope.passes.relax.training.recorder import Gradient, operator_of


def number(value: float, like: Any) -> Any:
    return relax.const(value, dtype(like))


def fitted(gradient: Any, to: Any, builder: Any) -> Any:
    """A gradient summed over the axes along which its operand was broadcast."""
    if shape(builder.normalize(gradient)) == shape(to):
        return gradient
    return op.collapse_sum_to(gradient, list(shape(to)))


_TVMS_MATMUL = tvm.ir.Op.get("relax.matmul").get_attr("FPrimalGradient")


def _matmul(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """A matrix for a whole batch has one product over all rows; TVM's own adds one per element."""
    a, b = call.args
    left, right = shape(a), shape(b)
    if len(left) > 2 and len(right) == 2:
        rows = math.prod(left[:-1])
        flat, flat_grad = op.reshape(a, [rows, left[-1]]), op.reshape(grad, [rows, right[1]])
        return [
            op.matmul(grad, op.permute_dims(b, [1, 0])),
            op.matmul(op.permute_dims(flat, [1, 0]), flat_grad),
        ]
    return list(_TVMS_MATMUL(variable, call, grad, builder))


def _nn_leakyrelu(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    (x,) = call.args
    slope = number(float(call.attrs.alpha), x)
    return [op.where(op.greater(x, number(0.0, x)), grad, grad * slope)]


def _clip(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """PyTorch's clamp passes the gradient on at its bounds; hardtanh, hardsigmoid and hardswish do
    not. Hardtanh and relu6 pass it on at NaN; they compare the result, so that their operand need
    not be kept."""
    x, low, high = call.args[0], *(float(getattr(b, "value", b)) for b in call.args[1:])
    operator = operator_of(variable)
    if any(n in operator for n in ("hardtanh", "relu6")):
        ends = op.less_equal(variable, number(low, x)), op.greater_equal(variable, number(high, x))
        return [op.where(op.logical_or(*ends), number(0.0, x), grad), *none(call, 1)]
    strict = any(n in operator for n in ("hardsigmoid", "hardswish"))
    above, below = (op.greater, op.less) if strict else (op.greater_equal, op.less_equal)
    inside = op.logical_and(above(x, number(low, x)), below(x, number(high, x)))
    return [op.where(inside, grad, number(0.0, x)), *none(call, 1)]


def _nn_softplus(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    (x,) = call.args
    scaled = x * number(float(call.attrs.beta), x)
    linear = op.greater(scaled, number(float(call.attrs.threshold), x))
    return [op.where(linear, grad, grad * op.sigmoid(scaled))]


def _of_one(formula: Callable[[Any, Any, Any, Callable[[float], Any]], Any]) -> Gradient:
    """The gradient of an elementwise function, by a formula of x, the result y, y's gradient, and a
    maker of constants."""

    def gradient(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
        (x,) = call.args
        return [formula(x, variable, grad, lambda value: number(value, x))]

    return gradient


def _by_slope(slope: Callable[[Any, Any, Callable[[float], Any]], Any]) -> Gradient:
    return _of_one(lambda x, y, grad, n: grad * slope(x, y, n))


def _where(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """Each side's part, summed if that side was broadcast, which TVM's own omits."""
    condition, x, y = call.args
    zero = number(0.0, grad)
    by_x, by_y = op.where(condition, grad, zero), op.where(condition, zero, grad)
    return [op.grad.no_grad(condition), fitted(by_x, x, builder), fitted(by_y, y, builder)]


def _extremum(other: Callable[[Any, Any], Any], x: Any, y: Any, grad: Any) -> list[Any]:
    """As PyTorch's: ties are shared evenly between both sides, and NaN passes to both."""
    tie, half, zero = op.equal(x, y), op.multiply(grad, number(0.5, grad)), number(0.0, grad)
    return [op.where(tie, half, op.where(other(*pair), zero, grad)) for pair in ((x, y), (y, x))]


def _extremum_along(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """Shared evenly among all extreme elements; in PyTorch's max and min also among NaN, but not in
    amax and amin."""
    (x,), given, size = call.args, call.attrs.axis, list(shape(call.args[0]))
    axes = list(range(len(size))) if given is None else [int(a) % len(size) for a in given]
    kept = [1 if i in axes else d for i, d in enumerate(size)]
    hit = op.equal(x, op.reshape(variable, kept))
    if operator_of(variable) in ("aten::max", "aten::min"):
        hit = op.logical_or(hit, op.isnan(x))
    hit = op.astype(hit, dtype(x))
    return [op.multiply(hit, op.divide(op.reshape(grad, kept), op.sum(hit, axes, keepdims=True)))]


def _ints(expr: Any) -> list[int]:
    """Whole numbers among a call's arguments."""
    fields = expr.fields if isinstance(expr, relax.Tuple) else expr.values
    return [int(getattr(f, "value", f)) for f in fields]


def _strided_slice(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """Zeros around the gradient, and between its elements if the slice had steps."""
    x, *rest = call.args
    size, places = list(shape(x)), list(shape(variable))
    rest = [_ints(r) for r in rest]
    axes, begin = [a % len(size) for a in rest[0]], rest[1]
    steps = rest[3] if len(rest) > 3 else [1] * len(axes)
    if min(steps) < 1:
        of = "a slice with a negative step"
        raise no_gradient("strided_slice", "is not known", "use flip", of)
    widths = [(0, 0)] * len(size)
    for axis, first, step in zip(axes, begin, steps, strict=True):
        first = max(0, first + size[axis]) if first < 0 else min(first, size[axis])
        if step == 1:
            widths[axis] = (first, size[axis] - first - places[axis])
        else:
            end = first + step * (places[axis] - 1) + 1
            places[axis] = size[axis]
            grad = op.slice_scatter(op.zeros(places, dtype(x)), grad, first, end, step, axis)
    return [_around(grad, widths), *none(call, 1)]


def _around(data: Any, widths: list[tuple[int, int]]) -> Any:
    if not any(w for pair in widths for w in pair):
        return data
    return op.nn.pad(data, [w for pair in widths for w in pair])


_PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""Paddings that repeat elements, with numpy's names."""


def _nn_pad(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    attrs, size = call.attrs, shape(call.args[0])
    mode = _PAD_MODES.get(str(attrs.pad_mode))
    if mode:
        widths = [int(p) for p in attrs.pad_width]
        for axis, extent in enumerate(size):
            before, after = widths[2 * axis : 2 * axis + 2]
            if before < 0 or after < 0:
                raise no_gradient("nn.pad", f"by {mode} is not known for negative widths")
            if before or after:
                places = np.pad(np.arange(extent), (before, after), mode)  # type: ignore[call-overload]
                grad = builder.normalize(grad)
                taken = [*shape(grad)[:axis], extent, *shape(grad)[axis + 1 :]]
                like = op.zeros(taken, dtype(grad))
                grad = op.grad.take_backward(grad, like, relax.const(places, "int64"), axis)
        return [grad, *none(call, 1)]
    widths = [int(p) for p in attrs.pad_width]
    begin = [max(b, 0) for b in widths[::2]]
    end = [n - max(a, 0) for n, a in zip(shape(grad), widths[1::2], strict=True)]
    kept = op.strided_slice(grad, list(range(len(size))), begin, end)
    if min(widths) < 0:  # the gradient of the cut-off part is 0
        kept = op.nn.pad(builder.normalize(kept), [max(-w, 0) for w in widths])
    return [kept, *none(call, 1)]


def _reshaped(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    return [op.reshape(grad, list(shape(call.args[0]))), *none(call, 1)]


def _stack(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    given = call.args[0]
    count = len(given.fields if isinstance(given, relax.Tuple) else given.ty.fields)
    axis, pieces = int(call.attrs.axis or 0) % len(shape(variable)), [grad]
    if count > 1:
        split = builder.emit(op.split(grad, count, axis))
        pieces = [relax.TupleGetItem(split, i) for i in range(count)]
    return [relax.Tuple([op.squeeze(p, [axis]) for p in pieces])]


def _repeat(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    size, times = list(shape(call.args[0])), int(call.attrs.repeats)
    if call.attrs.axis is None:
        return [op.reshape(op.sum(op.reshape(grad, [-1, times]), [1]), size)]
    axis = int(call.attrs.axis) % len(size)
    return [op.sum(op.reshape(grad, [*size[: axis + 1], times, *size[axis + 1 :]]), [axis + 1])]


def _tile(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    return [of_tile(op, grad, shape(call.args[0]), [int(r) for r in call.attrs.repeats])]


def _astype(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    (x,) = call.args
    if not (is_floating(x) and is_floating(variable)):
        return none(call)
    return [op.astype(grad, dtype(x))]


def _gather_elements(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    data, indices = call.args
    zeros, axis = op.zeros(list(shape(data)), dtype(data)), int(call.attrs.axis)
    return [op.scatter_elements(zeros, indices, grad, axis, "add"), *none(call, 1)]


def _take(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """Sums the gradients of equal indices; TVM's own supports one axis of indices only."""
    data, indices = call.args
    size = list(shape(data))
    if call.attrs.axis is None:
        raise no_gradient("take", "is known along an axis only")
    axis = int(call.attrs.axis) % len(size)
    if isinstance(indices, tvm.ir.GenericConst) and indices.value.numpy().ndim == 0:
        # One slice: unlike a scatter, zeros around it fuse.
        index, widths = int(indices.value.numpy()) % size[axis], [(0, 0)] * len(size)
        widths[axis] = (index, size[axis] - 1 - index)
        return [_around(op.expand_dims(grad, axis), widths), *none(call, 1)]
    count = math.prod(shape(indices))
    flat = op.reshape(indices, [count])
    rows = op.reshape(grad, [*size[:axis], count, *size[axis + 1 :]])
    return [op.grad.take_backward(rows, data, flat, axis), *none(call, 1)]


def _index_tensor(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """As along one axis: the indexed axes of the data, which come first, become one."""
    data, indices = call.args
    size, count = list(shape(data)), len(indices.fields)
    places: Any = None
    for index, extent in zip(indices.fields, size, strict=False):
        index = op.astype(index, "int64")
        if places is not None:
            index = op.add(op.multiply(places, relax.const(extent, "int64")), index)
        places = index
    taken = list(shape(variable))[: len(shape(variable)) - (len(size) - count)]
    flat = op.reshape(op.broadcast_to(places, taken), [math.prod(taken)])
    rows = op.reshape(grad, [math.prod(taken), *size[count:]])
    whole = op.reshape(data, [math.prod(size[:count]), *size[count:]])
    by_row = op.grad.take_backward(rows, whole, flat, 0)
    return [op.reshape(by_row, size), relax.Tuple([op.grad.no_grad(f) for f in indices.fields])]


def _einsum(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """For each operand, the einsum of the gradient with the other operands."""
    given, operands = call.args[0], list(call.args[0].fields)
    left, arrow, result = str(call.attrs.subscripts).replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in left or any(len(set(t)) < len(t) for t in terms):
        why = f"is not known for {call.attrs.subscripts!r}"
        raise no_gradient("einsum", why, "write the product with matmul")
    found = []
    for place, (term, operand) in enumerate(zip(terms, operands, strict=True)):
        others = operands[:place] + operands[place + 1 :]
        names = [result, *terms[:place], *terms[place + 1 :]]
        known = set("".join(names))
        kept = "".join(a for a in term if a in known)
        by = op.einsum([grad, *others], f"{','.join(names)}->{kept}")
        size = dict(zip(term, shape(operand), strict=True))
        if kept != term:  # einsum summed over an axis that only this operand has
            by = op.reshape(by, [size[a] if a in known else 1 for a in term])
            by = op.broadcast_to(by, list(shape(operand)))
        found.append(by)
    return [relax.Tuple(found)] if len(given.fields) else []


def _nn_conv1d(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """As a 2D convolution of an image with one row."""
    attrs = call.attrs
    if str(attrs.data_layout) != "NCW" or str(attrs.kernel_layout) != "OIW":
        raise no_gradient("nn.conv1d", "is known in the layouts NCW and OIW only")
    data, weight = (builder.emit(op.expand_dims(a, 2)) for a in call.args)
    how = (*of_images(attrs, "strides", "padding", "dilation"), int(attrs.groups))
    image = builder.normalize(op.nn.conv2d(data, weight, *how))
    return [op.squeeze(g, [2]) for g in conv2d(image, image, op.expand_dims(grad, 2), builder)]


def _resize2d(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """The sum over the copies of each pixel, if their number is whole."""
    data, attrs = call.args[0], call.attrs
    batch, channels, *size = shape(data)
    _, _, *places = shape(variable)
    whole = not any(p % s for s, p in zip(size, places, strict=True))
    if str(attrs.method) != "nearest_neighbor" or str(attrs.layout) != "NCHW" or not whole:
        why = f"by {attrs.method} from {size} to {places} is not known"
        raise no_gradient("image.resize2d", why, "resize by copying pixels a whole number of times")
    down, across = (p // s for s, p in zip(size, places, strict=True))
    apart = op.reshape(grad, [batch, channels, size[0], down, size[1], across])
    return [op.sum(apart, [3, 5]), *none(call, 1)]


def _scatter_elements(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    data, indices, updates = call.args
    axis, kind = int(call.attrs.axis), str(call.attrs.reduction)

    def taken(values: Any) -> Any:
        return op.gather_elements(values, indices, axis)

    none = op.grad.no_grad(indices)
    if kind == "add":
        return [grad, none, taken(grad)]
    if kind == "update":
        zeros = op.zeros(list(shape(updates)), dtype(updates))
        return [op.scatter_elements(grad, indices, zeros, axis), none, taken(grad)]
    if kind not in ("max", "min"):
        raise no_gradient("scatter_elements", f"by {kind} is not known")
    # Shared evenly among all elements that equal the result.
    hit = op.astype(op.equal(data, variable), dtype(data))
    hits = op.astype(op.equal(updates, taken(variable)), dtype(data))
    share = builder.emit(op.divide(grad, op.scatter_elements(hit, indices, hits, axis, "add")))
    return [op.multiply(hit, share), none, op.multiply(hits, taken(share))]


def _index_put(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    _, indices, values = call.args
    none = relax.Tuple([op.grad.no_grad(f) for f in indices.fields])
    by_values = fitted(op.index_tensor(grad, indices), values, builder)
    if not bool(call.attrs.accumulate):
        zeros = op.zeros(list(shape(values)), dtype(values))
        grad = op.index_put(grad, indices, zeros, accumulate=False)
    return [grad, none, by_values]


def _slice_scatter(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    _, source, *place = call.args
    begin, end, step = (int(getattr(p, "value", p)) for p in place)
    axis, zeros = int(call.attrs.axis), op.zeros(list(shape(source)), dtype(source))
    by_data = op.slice_scatter(grad, zeros, begin, end, step, axis)
    return [by_data, op.strided_slice(grad, [axis], [begin], [end], [step]), *none(call, 2)]


def _of_two(formula: Callable[[Any, Any, Any], list[Any]]) -> Gradient:
    """The gradient of a function of two tensors, by a formula of both and the result's gradient."""

    def gradient(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
        x, y = call.args
        return [fitted(f, a, builder) for f, a in zip(formula(x, y, grad), (x, y), strict=True)]

    return gradient


def _atan2(y: Any, x: Any, grad: Any) -> list[Any]:
    square = x * x + y * y
    zero, one = number(0.0, x), number(1.0, x)
    none = op.equal(square, zero)
    share = op.where(none, zero, op.divide(grad, op.where(none, one, square)))
    return [share * x, op.negative(share * y)]


def _nn_prelu(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    x, weight = call.args
    rank = len(shape(x))
    along, axis = [1] * rank, int(call.attrs.axis) % rank
    along[axis] = shape(weight)[0]
    above, zero = op.greater(x, number(0.0, x)), number(0.0, x)
    by_x = op.where(above, grad, grad * op.reshape(weight, along))
    by_weight = builder.normalize(op.where(above, zero, grad * x))
    others = [i for i in range(rank) if along[i] == 1 and i != axis]
    others += [axis] if along[axis] == 1 else []
    summed = op.sum(by_weight, others) if others else by_weight
    return [by_x, op.reshape(summed, list(shape(weight)))]


def _conv_transpose(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """The adjoint is a convolution with the same weight; the weight's gradient is the
    convolution's. In one dimension, the image has one row."""
    attrs, given = call.attrs, (*call.args, grad)
    layouts = str(attrs.data_layout), str(attrs.kernel_layout)
    if layouts not in (("NCW", "IOW"), ("NCHW", "IOHW")):
        raise no_gradient(op_name(call), "is known in the layouts NCHW and IOHW only")
    flat = layouts[0] == "NCW"
    data, weight, grad = (builder.emit(op.expand_dims(a, 2)) for a in given) if flat else given
    how = (*of_images(attrs, "strides", "padding", "dilation"), int(attrs.groups))
    by_data = builder.emit(op.nn.conv2d(grad, weight, *how))
    convolved = builder.normalize(op.nn.conv2d(grad, weight, *how))
    found = [by_data, conv2d(by_data, convolved, data, builder)[1]]
    return [op.squeeze(g, [2]) for g in found] if flat else found


def _pooled(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    (data,), attrs = call.args, call.attrs
    sizes = [*zip(shape(data)[2:], shape(variable)[2:], strict=True)]
    layout = str(getattr(attrs, "layout", ""))
    if not layout.startswith("NC") or len(layout) != len(sizes) + 2:
        raise no_gradient("pooling", "is known with channels second only")
    shares = [_share(attrs, axis, len(sizes), *size) for axis, size in enumerate(sizes)]
    return [of_means(op, relax.const, grad, shares, dtype(data))]


def _power(x: Any, y: Any, grad: Any) -> list[Any]:
    """As PyTorch's: zero for the base if the exponent is 0, and for the exponent if the base is 0
    and the exponent not negative."""
    if isinstance(y, tvm.ir.GenericConst) and not shape(y) and (times := float(y.value.numpy())):
        rest = x if times == 2.0 else op.power(x, number(times - 1.0, y))
        return [grad * y * rest, number(0.0, y)]
    zero = number(0.0, x)
    by_base = grad * y * op.power(x, y - number(1.0, y))
    nothing = op.logical_and(op.equal(x, zero), op.greater_equal(y, zero))
    by_exponent = grad * op.power(x, y) * op.log(x)
    return [op.where(op.equal(y, zero), zero, by_base), op.where(nothing, zero, by_exponent)]


def _avg_pool(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """TVM's, except if a last window extends over the edge, whose missing elements TVM counts. In
    one dimension, the image has one row."""
    attrs, data, flat = call.attrs, call.args[0], str(call.attrs.layout) == "NCW"
    if (attrs.ceil_mode and attrs.count_include_pad) or not (flat or len(shape(data)) == 4):
        return _pooled(variable, call, grad, builder)
    grad, data = (op.expand_dims(t, [2]) if flat else t for t in (grad, data))
    window = of_images(attrs, "pool_size", "strides", "padding", "dilation")
    layouts = ("NCHW", "NCHW") if flat else (attrs.layout, attrs.out_layout)
    how = (bool(attrs.ceil_mode), bool(attrs.count_include_pad), *layouts)
    made = op.grad.avg_pool2d_backward(grad, data, *window, *how)
    return [op.squeeze(made, [2]) if flat else made]


def _nn_max_pool2d(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """TVM's, whose kernel does not support dilation."""
    attrs = call.attrs
    if any(int(d) != 1 for d in attrs.dilation):
        raise no_gradient("nn.max_pool2d", "is not known with dilation")
    height = str(attrs.layout).index("H")
    sizes, counts = (shape(t)[height : height + 2] for t in (call.args[0], grad))
    window, strides = ([int(v) for v in w] for w in (attrs.pool_size, attrs.strides))
    padding, gained = reached_windows(sizes, counts, window, strides, attrs.padding)
    if any(gained):
        around = [0] * (2 * len(shape(grad)))
        around[2 * height + 1], around[2 * height + 3] = gained
        grad = op.nn.pad(grad, around)
    how = (False, bool(attrs.count_include_pad), attrs.layout, attrs.out_layout)
    given = (window, strides, padding, attrs.dilation)
    return [op.grad.max_pool2d_backward(grad, call.args[0], *given, *how)]


def _share(attrs: Any, axis: int, rank: int, extent: int, count: int) -> Any:
    """(count, extent): each element's weight in each mean along one axis."""
    if not hasattr(attrs, "pool_size"):
        return adaptive_share(extent, count)
    places = np.arange(count)
    window, stride = int(attrs.pool_size[axis]), int(attrs.strides[axis])
    padding, after = int(attrs.padding[axis]), int(attrs.padding[axis + rank])
    begin = places * stride - padding
    at = begin[:, None] + np.arange(window) * int(attrs.dilation[axis])
    valid = (at >= 0) & (at < extent)
    inside = valid.sum(1)
    if bool(attrs.count_include_pad):
        inside = np.minimum(begin + window, extent + after) - begin
    share = np.zeros((count, extent))
    np.add.at(share, (np.broadcast_to(places[:, None], at.shape)[valid], at[valid]), 1)
    return share / np.maximum(inside, 1)[:, None]


def none(call: Any, first: int = 0) -> list[Any]:
    """No gradient for the arguments from `first` on."""
    return [op.grad.no_grad(a) for a in call.args[first:]]


def _flat(variable: Any, call: Any, grad: Any, builder: Any) -> list[Any]:
    """Zeros, for an operator that is constant almost everywhere."""
    no_grad = op.grad.no_grad
    return [op.zeros(list(shape(a)), dtype(a)) if is_floating(a) else no_grad(a) for a in call.args]


_BY_NAME = (
    *(_astype, _clip, _einsum, _gather_elements, _index_put, _index_tensor, _matmul, _repeat),
    *(_scatter_elements, _slice_scatter, _stack, _strided_slice, _take, _tile, _where),
    *(_nn_conv1d, _nn_leakyrelu, _nn_max_pool2d, _nn_pad, _nn_prelu, _nn_softplus),
)
OWN: dict[str, Gradient] = {
    **{made.__name__[1:].replace("nn_", "nn."): made for made in _BY_NAME},
    "grad.no_grad": lambda variable, call, grad, builder: [op.grad.no_grad(call.args[0])],
    "nn.conv2d": conv2d,
    # PyTorch's gradients of relu and abs are 0 where x is 0; TVM's are not.
    "nn.relu": _of_one(lambda x, y, grad, n: op.where(op.less_equal(y, n(0.0)), n(0.0), grad)),
    **dict.fromkeys(("nn.batch_flatten", "squeeze", "flatten"), _reshaped),
    "image.resize2d": _resize2d,
    "abs": _by_slope(lambda x, y, n: op.sign(x)),
    "erf": _of_one(lambda x, y, grad, n: grad * op.exp(-(x * x)) * n(2 / math.sqrt(math.pi))),
    "rsqrt": _of_one(lambda x, y, grad, n: grad * n(-0.5) * (y * y * y)),
    "square": _of_one(lambda x, y, grad, n: grad * x * n(2.0)),
    "tril": lambda variable, call, grad, builder: [op.tril(grad, call.args[1]), *none(call, 1)],
    "triu": lambda variable, call, grad, builder: [op.triu(grad, call.args[1]), *none(call, 1)],
    "tan": _by_slope(lambda x, y, n: y * y + n(1.0)),
    "sinh": _by_slope(lambda x, y, n: op.cosh(x)),
    "cosh": _by_slope(lambda x, y, n: op.sinh(x)),
    "asin": _by_slope(lambda x, y, n: op.rsqrt(n(1.0) - x * x)),
    "acos": _by_slope(lambda x, y, n: -op.rsqrt(n(1.0) - x * x)),
    "atan": _by_slope(lambda x, y, n: n(1.0) / (x * x + n(1.0))),
    "asinh": _by_slope(lambda x, y, n: op.rsqrt(x * x + n(1.0))),
    "acosh": _by_slope(lambda x, y, n: op.rsqrt(x * x - n(1.0))),
    "atanh": _by_slope(lambda x, y, n: n(1.0) / (n(1.0) - x * x)),
    "maximum": _of_two(partial(_extremum, op.less)),
    "minimum": _of_two(partial(_extremum, op.greater)),
    **dict.fromkeys(("max", "min"), _extremum_along),
    "flip": lambda variable, call, grad, builder: [op.flip(grad, int(call.attrs.axis))],
    **dict.fromkeys(("nn.avg_pool1d", "nn.avg_pool2d"), _avg_pool),
    "power": _of_two(_power),
    **dict.fromkeys(("nn.conv1d_transpose", "nn.conv2d_transpose"), _conv_transpose),
    "floor_mod": _of_two(lambda x, y, g: [g, op.negative(g * op.floor(op.divide(x, y)))]),
    "mod": _of_two(lambda x, y, g: [g, op.negative(g * op.trunc(op.divide(x, y)))]),
    "log_add_exp": _of_two(lambda x, y, g: [g * op.sigmoid(x - y), g * op.sigmoid(y - x)]),
    "atan2": _of_two(_atan2),
    **{f"nn.adaptive_avg_pool{rank}d": _pooled for rank in (1, 2, 3)},
    "nn.avg_pool3d": _pooled,
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "sign", "floor_divide"), _flat),
}
