"""Gradients of single operators, relascope's and TVM's, and a record of their use.

TVM's table (`FPrimalGradient`) is global. `prepare` completes it, and wraps the gradients of one
program's operators in a layer that calls the active `Recorder`, if any.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from tvm import relay
from tvm.topi.nn.utils import get_pad_tuple

from relascope.core.errors import EngineError, no_gradient
from relascope.passes import gradients
from relascope.passes.relay.ir.rewrite import op_name, shape, spanned
from relascope.passes.relay.ir.spans import key
from relascope.passes.relay.training import weight_gradient

Gradient = Callable[[Any, Any], Sequence[Any]]
"""From a call (with types) and the gradient of its result to the gradients of its arguments."""

_OURS = 11  # TVM's own are at 10
_LAYER = 12


def _take(call: Any, grad: Any) -> list[Any]:
    """Sums the gradients of equal indices, where TVM loops over the indices. The gradient of
    take(data, indices, axis) has the indices' axes at `axis`; they move to the front, and are
    scattered into zeros of data's shape."""
    data, indices = call.args
    if call.attrs.axis is None or int(call.attrs.batch_dims):
        raise no_gradient("take", "is known for one axis and no batch axes")
    size, places = shape(data), shape(indices)
    axis, dtype = int(call.attrs.axis) % len(size), data.checked_type.dtype
    constant = constant_value(call, 1)
    if constant is not None and constant.ndim == 0:
        # One slice: unlike a scatter, zeros around it fuse.
        index, around = int(constant) % size[axis], [(0, 0)] * len(size)
        around[axis] = (index, size[axis] - 1 - index)
        return [relay.nn.pad(relay.expand_dims(grad, axis), around), relay.zeros_like(indices)]
    before, middle = list(range(axis)), list(range(axis, axis + len(places)))
    after = list(range(axis + len(places), axis + len(places) + len(size) - axis - 1))
    updates = relay.transpose(grad, [*middle, *before, *after]) if before else grad
    rest = [d for i, d in enumerate(size) if i != axis]
    if str(call.attrs.mode) == "wrap":
        n = relay.const(size[axis], indices.checked_type.dtype)
        indices_in = relay.mod(relay.add(relay.mod(indices, n), n), n)
    else:
        indices_in = relay.clip(indices, 0, size[axis] - 1)
    zeros, places_in = relay.zeros([size[axis], *rest], dtype), relay.expand_dims(indices_in, 0)
    scattered = relay.scatter_nd(zeros, places_in, updates, mode="add")
    if before:
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(size))]
        scattered = relay.transpose(scattered, order)
    return [scattered, relay.zeros_like(indices)]


def _adv_index(call: Any, grad: Any) -> list[Any]:
    """Sums the gradients of equal indices; the argument is a tuple of data and indices."""
    kinds = [f for f in call.args[0].checked_type.fields]
    data, *indices = (relay.TupleGetItem(call.args[0], i) for i in range(len(kinds)))
    flat = [relay.zeros_like(i) for i in indices]
    if "float" not in kinds[0].dtype:
        return [relay.Tuple([relay.zeros_like(data), *flat])]
    size = [int(d) for d in kinds[0].shape]
    rank = len(call.checked_type.shape) - (len(size) - len(indices))
    places = [int(d) for d in call.checked_type.shape][:rank]
    rows = [
        relay.broadcast_to(_counted_from_front(index, size[axis], kind.dtype), places)
        for axis, (index, kind) in enumerate(zip(indices, kinds[1:], strict=True))
    ]
    zeros = relay.zeros(size, kinds[0].dtype)
    return [relay.Tuple([relay.scatter_nd(zeros, relay.stack(rows, 0), grad, mode="add"), *flat])]


def _counted_from_front(index: Any, size: int, dtype: str) -> Any:
    """Indices without negative ones, which count from the back."""
    below = relay.less(index, relay.const(0, dtype))
    return relay.where(below, relay.add(index, relay.const(size, dtype)), index)


def _window(attrs: Any) -> dict[str, Any]:
    return {name: getattr(attrs, name) for name in ("strides", "padding", "dilation", "groups")}


def _conv2d(call: Any, grad: Any) -> list[Any]:
    """The transposed convolution for the data, and TVM's operator for the weight. TVM imports a
    depthwise weight with (groups, out / groups) channels. Its own gradient infers too few channels
    with groups."""
    attrs = call.attrs
    data, weight = call.args
    groups = int(attrs.groups)
    if str(attrs.data_layout) != "NCHW" or str(attrs.kernel_layout) != "OIHW":
        known = "is known in the layouts NCHW and OIHW only"
        raise no_gradient("nn.conv2d", known, "take the gradient before layouts are changed")
    channels, given = shape(data)[1], shape(weight)
    kernels = [shape(call)[1], channels // groups, *given[2:]]
    if kernels != list(given):
        weight = relay.reshape(weight, kernels)
    padding = get_pad_tuple([int(p) for p in attrs.padding], given[2:])
    window = [[int(v) for v in way] for way in (attrs.strides, padding, attrs.dilation)]
    sizes = shape(data)[2:], shape(call)[2:], given[2:]
    size = {"channels": channels, "kernel_size": given[2:]}
    more = {"output_padding": gradients.beyond(*sizes, *window), **size, **_window(attrs)}
    by_data = relay.nn.conv2d_transpose(grad, weight, **more)
    by_weight = weight_gradient.of(grad, data, (shape(call), shape(data), kernels), attrs)
    return [by_data, by_weight if kernels == list(given) else relay.reshape(by_weight, given)]


def _conv2d_transpose(call: Any, grad: Any) -> list[Any]:
    """As for the convolution whose gradient it is, with data and gradient exchanged."""
    attrs = call.attrs
    data, weight = call.args
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NCHW", "IOHW"):
        raise no_gradient("nn.conv2d_transpose", "is known in the layouts NCHW and IOHW only")
    size = {"channels": shape(data)[1], "kernel_size": shape(weight)[2:]}
    by_data = relay.nn.conv2d(grad, weight, **size, **_window(attrs))
    sizes = shape(data), shape(call), shape(weight)
    return [by_data, weight_gradient.of(data, grad, sizes, attrs)]


def _repeat(call: Any, grad: Any) -> list[Any]:
    size = list(shape(call.args[0]))
    axis = int(call.attrs.axis) % len(size)
    apart = [*size[: axis + 1], int(call.attrs.repeats), *size[axis + 1 :]]
    return [relay.sum(relay.reshape(grad, apart), axis=[axis + 1])]


def _split(call: Any, grad: Any) -> list[Any]:
    parts = [relay.TupleGetItem(grad, i) for i in range(len(call.checked_type.fields))]
    return [relay.concatenate(parts, int(call.attrs.axis))]


def _concatenate(call: Any, grad: Any) -> list[Any]:
    """As TVM's, but also for parts without elements."""
    axis, kinds = int(call.attrs.axis), call.args[0].checked_type.fields
    lengths = [int(k.shape[axis]) for k in kinds]
    ends = list(accumulate(n for n in lengths if n))
    pieces = iter(relay.split(grad, ends[:-1], axis) if len(ends) > 1 else [grad])
    zeros = (relay.zeros(list(map(int, k.shape)), k.dtype) for k in kinds)
    return [relay.Tuple([next(pieces) if n else z for n, z in zip(lengths, zeros, strict=True)])]


def _power(call: Any, grad: Any) -> list[Any]:
    (x, y), known = call.args, constant_value(call, 1)
    square = known is not None and (known == 2.0).all()
    less = y - relay.const(1.0, y.checked_type.dtype)
    by_base = grad * y * (x if square else relay.power(x, less))
    if known is not None:  # log(x), which may not exist, is not needed
        return [relay.collapse_sum_like(by_base, x), relay.zeros_like(y)]
    zero = relay.zeros_like(call)
    by_base = relay.where(relay.equal(y, relay.zeros_like(y)), zero, by_base)
    by_base = relay.collapse_sum_like(by_base, x)
    nothing = relay.logical_and(relay.equal(x, relay.zeros_like(x)), y >= relay.zeros_like(y))
    by_exponent = relay.where(nothing, zero, grad * call * relay.log(x))
    return [by_base, relay.collapse_sum_like(by_exponent, y)]


def _extremum(other: Callable[[Any, Any], Any], call: Any, grad: Any) -> list[Any]:
    # As PyTorch: ties are shared evenly between both sides, and NaN passes to both.
    x, y = call.args
    half = grad * relay.const(0.5, x.checked_type.dtype)
    tie, zero = relay.equal(x, y), relay.zeros_like(grad)
    by_x = relay.where(tie, half, relay.where(other(x, y), zero, grad))
    by_y = relay.where(tie, half, relay.where(other(y, x), zero, grad))
    return [relay.collapse_sum_like(by_x, x), relay.collapse_sum_like(by_y, y)]


def _pad(call: Any, grad: Any) -> list[Any]:
    if str(call.attrs.pad_mode) != "constant":
        raise no_gradient("nn.pad", "is known for constant padding only")
    widths = [[int(w) for w in pair] for pair in call.attrs.pad_width]
    begin = [max(b, 0) for b, _ in widths]
    end = [n - max(a, 0) for n, (_, a) in zip(shape(call), widths, strict=True)]
    kept = relay.strided_slice(grad, begin, end)
    if min(map(min, widths)) < 0:  # the gradient of the cut-off part is 0
        kept = relay.nn.pad(kept, [[max(-w, 0) for w in pair] for pair in widths])
    return [kept, *map(relay.zeros_like, call.args[1:])]


def _strided_slice(call: Any, grad: Any) -> list[Any]:
    """The gradient among zeros; TVM's own reads bounds and compares each index with them."""
    attrs, size = call.attrs, shape(call.args[0])
    if 0 in shape(call):
        return [relay.zeros(list(size), call.checked_type.dtype)]
    begins = [int(b) for b in attrs.begin]
    axes = [int(a) % len(size) for a in attrs.axes or range(len(begins))]
    strides = [] if str(attrs.slice_mode) == "size" else [int(s) for s in attrs.strides or ()]
    steps, widths = [1] * len(size), [[0, n - k] for n, k in zip(size, shape(call), strict=True)]
    for axis, begin, step in zip(axes, begins, [*strides, *[1] * len(axes)], strict=False):
        last = size[axis] - 1
        ends = [min(max(begin + (begin < 0) * size[axis], 0), last)]
        ends.append(ends[0] + (shape(call)[axis] - 1) * step)
        if step < 0:
            grad = relay.reverse(grad, axis)
        steps[axis], widths[axis] = abs(step), [min(ends), last - max(ends)]
    if max(steps) > 1:
        grad = relay.nn.dilate(grad, steps)
    return [relay.nn.pad(grad, widths)]


def _leaky_relu(call: Any, grad: Any) -> list[Any]:
    x = call.args[0]
    dtype = x.checked_type.dtype
    slope = relay.const(float(call.attrs.alpha), dtype)
    return [relay.where(relay.greater(x, relay.const(0.0, dtype)), grad, grad * slope)]


def _adaptive_avg_pool(call: Any, grad: Any) -> list[Any]:
    if str(call.attrs.layout) not in ("NCW", "NCHW", "NCDHW"):
        raise no_gradient(op_name(call), "is known in the layout NCHW only")
    sizes = zip(shape(call.args[0])[2:], shape(call)[2:], strict=True)
    shares = [gradients.adaptive_share(extent, count) for extent, count in sizes]
    return [gradients.of_means(relay, relay.const, grad, shares, call.checked_type.dtype)]


def _max_pool2d(call: Any, grad: Any) -> list[Any]:
    """TVM's own ignores dilation."""
    if any(int(d) != 1 for d in call.attrs.dilation):
        raise no_gradient("nn.max_pool2d", "is not known with dilation")
    options = {k: getattr(call.attrs, k) for k in _POOLING}
    height = str(call.attrs.layout).index("H")
    sizes, counts = (shape(t)[height : height + 2] for t in (call.args[0], call))
    window, strides = ([int(v) for v in options[k]] for k in ("pool_size", "strides"))
    begins = ([int(p) for p in options["padding"]] * 2)[:2]
    padding, gained = gradients.reached_windows(sizes, counts, window, strides, begins)
    if any(gained):
        around = [(0, 0)] * len(shape(call))
        around[height : height + 2] = [(0, n) for n in gained]
        grad = relay.nn.pad(grad, around)
    options |= {"padding": padding, "ceil_mode": False}
    return [relay.nn.max_pool2d_grad(grad, call.args[0], **options)]


def _relu(call: Any, grad: Any) -> list[Any]:
    zero = relay.const(0.0, call.checked_type.dtype)
    return [relay.where(relay.less_equal(call, zero), relay.zeros_like(grad), grad)]


def _clip(call: Any, grad: Any) -> list[Any]:
    """PyTorch's clamp passes the gradient on at its bounds; hardtanh, hardsigmoid and hardswish do
    not. Hardtanh and relu6 pass it on at NaN; they compare the result, so that their operand need
    not be kept."""
    low, high = call.attrs.a_min, call.attrs.a_max
    operator = _operator(call)
    inside = (relay.greater_equal, relay.less_equal)
    if operator in _CLIPS_OPEN:
        inside = (relay.greater, relay.less)
    outside = (relay.less_equal, relay.greater_equal) if operator in _CLIPS_NAN else None
    zeros, compared = relay.zeros_like(grad), call if outside else call.args[0]
    for here, limit in zip(outside or inside, (low, high), strict=True):
        sides = (zeros, grad) if outside else (grad, zeros)
        bound = relay.const(limit, call.checked_type.dtype)
        grad = relay.where(here(compared, bound), *sides)
    return [grad]


def _operator(call: Any) -> str:
    """PyTorch's operator behind a call, such as "relu6", without the "_" of in-place operators."""
    source = RECORDING.current.current if RECORDING.current else call
    operator = key(source).rpartition("|")[0].rpartition("|")[2]
    return str(operator.removeprefix("aten::").removesuffix("_"))


def _largest(call: Any, grad: Any) -> list[Any]:
    """Shared evenly among all extreme elements; in PyTorch's max and min also among NaN, but not in
    amax and amin."""
    x, dtype = call.args[0], call.checked_type.dtype
    size, axes = shape(x), call.attrs.axis
    axes = range(len(size)) if axes is None else [int(a) % len(size) for a in axes]
    kept = [1 if i in axes else d for i, d in enumerate(size)]
    hit = relay.equal(x, relay.reshape(call, kept))
    if _operator(call) in ("max", "min"):
        hit = relay.logical_or(hit, relay.isnan(x))
    hit = relay.cast(hit, dtype)
    return [hit * relay.reshape(grad, kept) / relay.sum(hit, list(axes), keepdims=True)]


def _cast(call: Any, grad: Any) -> list[Any]:
    """No gradient flows through integers; TVM's own does."""
    kinds = call.checked_type.dtype, call.args[0].checked_type.dtype
    floating = all("float" in k for k in kinds)
    return [relay.cast(grad, kinds[1]) if floating else relay.zeros_like(call.args[0])]


def _remainder(rounded: Callable[[Any], Any], call: Any, grad: Any) -> list[Any]:
    x, y = call.args
    by_y = relay.negative(grad * rounded(relay.divide(x, y)))
    return [relay.collapse_sum_like(grad, x), relay.collapse_sum_like(by_y, y)]


def _flat(call: Any, grad: Any) -> list[Any]:
    """Zeros, for an operator that is constant almost everywhere, or computes integers."""
    return [_zeros(a, a.checked_type) for a in call.args]


def _zeros(expr: Any, kind: Any) -> Any:
    if isinstance(kind, relay.TupleType):
        fields = enumerate(kind.fields)
        return relay.Tuple([_zeros(relay.TupleGetItem(expr, i), f) for i, f in fields])
    return relay.zeros_like(expr)


def _gather(call: Any, grad: Any) -> list[Any]:
    data, indices = call.args
    if "float" not in data.checked_type.dtype:
        return _flat(call, grad)
    axis, zeros = int(call.attrs.axis), relay.zeros(list(shape(data)), data.checked_type.dtype)
    return [relay.scatter_elements(zeros, indices, grad, axis, "add"), relay.zeros_like(indices)]


def _like(call: Any, grad: Any) -> list[Any]:
    value, like = call.args
    return [relay.cast_like(relay.sum(grad), value), relay.zeros_like(like)]


def _tile(call: Any, grad: Any) -> list[Any]:
    return [gradients.of_tile(relay, grad, shape(call.args[0]), [int(r) for r in call.attrs.reps])]


def _cumsum(call: Any, grad: Any) -> list[Any]:
    axis = int(call.attrs.axis)
    return [relay.reverse(relay.cumsum(relay.reverse(grad, axis), axis), axis)]


def _scatter_nd(call: Any, grad: Any) -> list[Any]:
    """The update gets the gradient at its indices; the elements that it replaced get none."""
    _, indices, updates = call.args
    by_updates = relay.gather_nd(grad, indices)
    if str(call.attrs.mode) == "add":
        return [grad, relay.zeros_like(indices), by_updates]
    if str(call.attrs.mode) != "update":
        raise no_gradient("scatter_nd", "is known for the modes update and add")
    left = relay.scatter_nd(grad, indices, relay.zeros_like(updates), "update")
    return [left, relay.zeros_like(indices), by_updates]


def _scatter_elements(call: Any, grad: Any) -> list[Any]:
    """As `_scatter_nd`, along one axis."""
    _, indices, updates = call.args
    axis = int(call.attrs.axis)
    begin, end = [0] * len(shape(indices)), list(shape(indices))
    end[axis] = shape(call)[axis]
    by_updates = relay.gather(relay.strided_slice(grad, begin, end), axis, indices)
    around = [(0, b - s) for s, b in zip(shape(indices), shape(updates), strict=True)]
    if any(after for _, after in around):
        by_updates = relay.nn.pad(by_updates, around)
    if str(call.attrs.reduction) == "add":
        return [grad, relay.zeros_like(indices), by_updates]
    if str(call.attrs.reduction) != "update":
        raise no_gradient("scatter_elements", "is known for the modes update and add")
    none = relay.zeros(list(shape(indices)), updates.checked_type.dtype)
    left = relay.scatter_elements(grad, indices, none, axis, "update")
    return [left, relay.zeros_like(indices), by_updates]


_CONSTANT_ALMOST_EVERYWHERE = (
    "less greater greater_equal equal logical_and logical_or logical_not logical_xor floor "
    "ceil round trunc sign floor_divide argmax argmin"
)
_CLIPS_OPEN, _CLIPS_NAN = ("hardsigmoid", "hardswish"), ("hardtanh", "relu6")
_POOLING = ("pool_size", "strides", "padding", "layout", "ceil_mode")

_OWN: dict[str, Gradient] = {
    **dict.fromkeys(_CONSTANT_ALMOST_EVERYWHERE.split(), _flat),
    "broadcast_to": lambda call, grad: [relay.collapse_sum_like(grad, call.args[0])],
    "collapse_sum_to": lambda call, grad: [relay.broadcast_to_like(grad, call.args[0])],
    "take": _take,
    "adv_index": _adv_index,
    **{f"nn.adaptive_avg_pool{rank}d": _adaptive_avg_pool for rank in (1, 2, 3)},
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d_transpose,
    "max": _largest,
    "min": _largest,
    "cast": _cast,
    "gather": _gather,
    "repeat": _repeat,
    "split": _split,
    "concatenate": _concatenate,
    "rsqrt": lambda call, grad: [
        grad * relay.const(-0.5, call.checked_type.dtype) * call * call * call
    ],
    # TVM's is 0 at minus infinity instead of NaN.
    "sqrt": lambda call, grad: [grad * relay.const(0.5, call.checked_type.dtype) / call],
    "power": _power,
    "maximum": partial(_extremum, relay.less),
    "minimum": partial(_extremum, relay.greater),
    "nn.pad": _pad,
    "strided_slice": _strided_slice,
    "nn.leaky_relu": _leaky_relu,
    "full": lambda call, grad: [relay.cast_like(relay.sum(grad), call.args[0])],
    "full_like": _like,
    "broadcast_to_like": lambda call, grad: [
        relay.collapse_sum_like(grad, call.args[0]),
        relay.zeros_like(call.args[1]),
    ],
    "tile": _tile,
    "reverse": lambda call, grad: [relay.reverse(grad, int(call.attrs.axis))],
    "cumsum": _cumsum,
    "scatter_nd": _scatter_nd,
    "scatter_elements": _scatter_elements,
    "nn.relu": _relu,
    "clip": _clip,
    "abs": lambda call, grad: [relay.multiply(grad, relay.sign(call.args[0]))],
    "floor_mod": partial(_remainder, relay.floor),
    "trunc_mod": partial(_remainder, relay.trunc),
    "nn.max_pool2d": _max_pool2d,
}


class Recorder:
    """Assigns every use of an operator's gradient to a call of the program: TVM asks for gradients
    in the reverse order of calls, and each use is checked. `calls` are the program's, producers
    first; `span_of` gives the span for the gradient of a call, or None."""

    def __init__(self, calls: Sequence[Any], span_of: Callable[[Any], Any]) -> None:
        self._expected, self._span_of = list(calls), span_of
        self.forward: dict[int, tuple[Any, Any]] = {}
        """By handle of TVM's copy of a call: the copy, and the call of the program."""

    def use(self, gradient: Gradient, copy: Any, grad: Any) -> list[Any]:
        """Take one gradient, record its call, and give the result a span."""
        original = self._expected.pop() if self._expected else None
        if original is None or original.op != copy.op:
            name = op_name(original) if original is not None else "nothing"
            message = f"TVM asked for the gradient of {op_name(copy)} where {name} was expected"
            hint = "this TVM walks programs in an order that relascope does not expect"
            raise EngineError("pass", message, op_name(copy), hint)
        self.forward[copy.handle.value] = (copy, original)
        self.current, ends = original, [copy, grad, *copy.args]
        span = self._span_of(original)
        return [spanned(g, span, ends) for g in gradient(copy, grad)]


RECORDING = gradients.Active[Recorder]()  # the recorder of every gradient that TVM takes

_layered: set[str] = set()
_without: set[str] = set()


def constant_value(call: Any, index: int) -> Any:
    """The value (numpy.ndarray) of a call's constant argument, or None; read from the program's
    call, as TVM passes let variables to gradient functions."""
    recorder = RECORDING.current
    argument = (recorder.current if recorder else call).args[index]
    return argument.data.numpy() if isinstance(argument, relay.Constant) else None


def prepare(calls: Sequence[Any], where: Callable[[Any], str]) -> None:
    """Complete TVM's table for the operators of typed calls, and wrap them with the recording
    layer. Operators whose results are not floating need no gradient. `where` names the place of a
    call for an error. Raises EngineError of kind "pass" if an operator has no gradient, and names
    it and its module."""
    for call in calls:
        name = op_name(call)
        if name not in _layered and name:
            if name in _OWN:
                relay.op.register_gradient(name, _OWN[name], level=_OURS)
            gradient = call.op.get_attr("FPrimalGradient")
            if gradient is None:
                _without.add(name)
            layer = partial(RECORDING.layer, gradient or _flat)
            relay.op.register_gradient(name, layer, level=_LAYER)
            _layered.add(name)
        if not name or (name in _without and _is_floating(call)):
            raise gradients.unknown("relay", name, where(call))


def _is_floating(call: Any) -> bool:
    kind = call.checked_type
    return any("float" in f.dtype for f in getattr(kind, "fields", [kind]))
