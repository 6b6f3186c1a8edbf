"""Operators that are written with others for certain arguments, even if an importer knows them.

With these arguments, importers would take them for something else, or have no gradient.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from relascope.engine.pytorch import draws
from relascope.engine.pytorch.attention import fused_attention
from relascope.engine.pytorch.operators.along_axes import avg_pool3d, cosine_similarity, padded
from relascope.engine.pytorch.operators.compositions import name_of, times_log
from relascope.engine.pytorch.operators.recurrent import recurrent

_aten = torch.ops.aten
Form = Callable[..., Any]
"""A PyTorch function that takes its operator's arguments."""
Arguments = Mapping[str, Any]
"""An operator's arguments, by name; tensors may be without memory."""

_NEED_AXES = (
    "_log_softmax _softmax amax amin argmax argmin argsort cummax cummin cumprod cumsum flip "
    "gather index_add index_copy index_select kthvalue linalg_vector_norm log_softmax "
    "logcumsumexp logsumexp max min prod roll scatter scatter_add scatter_reduce softmax sort topk"
)


_RECURRENT = ("gru", "lstm", "rnn_relu", "rnn_tanh")
_CONVOLUTIONS = ("conv3d", "convolution", "_convolution")


def given_to(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """An operator's arguments by name, with the defaults of those that are not given."""
    given = {a.name: a.default_value for a in schema.arguments}
    return given | dict(zip(given, args, strict=False)) | dict(kwargs)


def in_form(op: Any) -> Form:
    def run(*args: Any, **kwargs: Any) -> Any:
        form = form_of(name_of(op), given_to(op._schema, args, kwargs), True)
        return NotImplemented if form is None else form(*args, **kwargs)

    return run


def form_of(name: str, given: Arguments, training: bool) -> Form | None:
    """What an operator, such as "add.Tensor", is written as with these arguments; None if it stays.
    In `training`, a gradient may be taken."""
    base, _, overload = name.partition(".")
    op = getattr(getattr(_aten, base, None), overload, None)
    if name in draws.COMPOSED:
        return draws.COMPOSED[name]
    if _lacks_axes(name, given):
        return partial(_with_an_axis, op)
    if base in _IN_TRAINING:
        return _IN_TRAINING[base] if training else None
    if base.startswith("upsample"):
        return op if _is_resampled(base, given) else None
    if base.startswith("max_pool") or base == "einsum":
        apart = _is_dilated(given) or "..." in given.get("equation", "")
        return op if apart and training else None
    if base in _CONVOLUTIONS:
        return _in_layers(given) if training else None
    if base in _RECURRENT:
        return partial(recurrent, base) if overload == "input" else None
    if base in _BY_OPTIONS:
        return _BY_OPTIONS[base](op, given)
    if base == "embedding":
        return _embedding(given, training)
    return _FORMS[base](given) if base in _FORMS else None


def _lacks_axes(name: str, given: Arguments) -> bool:
    """Whether an operator along an axis is given a tensor that has none."""
    first = given.get("self", given.get("input"))
    if name.partition(".")[0] not in _NEED_AXES.split() or not isinstance(first, Tensor):
        return False
    whole = name in ("max.default", "min.default", "max.other", "min.other", "prod.default")
    return not whole and not first.dim()


def _with_an_axis(op: Any, *args: Any, **options: Any) -> Any:
    """An operator's results, with tensors of no axes passed as tensors of one element."""
    raised = (a.reshape(1) if isinstance(a, Tensor) and not a.dim() else a for a in args)
    made = op(*raised, **options)
    return tuple(m.reshape(()) for m in made) if isinstance(made, tuple) else made.reshape(())


def _is_dilated(given: Arguments) -> bool:
    """Whether windows are dilated: no engine has the gradient of such maxima."""
    dilation = given.get("dilation", 1)
    return any(d != 1 for d in (dilation if isinstance(dilation, list | tuple) else [dilation]))


def _in_layers(given: Arguments) -> Form | None:
    """A 3D convolution as the sum of 2D ones, one for each layer of its kernel."""
    if given["input"].dim() != 5 or given.get("transposed") or isinstance(given["padding"], str):
        return None
    ways = [
        [int(v) for v in (way if isinstance(way, list | tuple) else [way])]
        for way in (given["stride"], given["padding"], given["dilation"])
    ]
    (step, *stride), (around, *padding), (apart, *dilation) = (w * (3 // len(w)) for w in ways)

    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
        x = _aten.constant_pad_nd.default(x, [0, 0, 0, 0, around, around]) if around else x
        batch, channels, deep, *size = x.shape
        layers = weight.shape[2]
        places = (deep - (layers - 1) * apart - 1) // step + 1
        parts = []
        for layer in range(layers):
            begin = layer * apart
            taken = x[:, :, begin : begin + (places - 1) * step + 1 : step].transpose(1, 2)
            image = taken.reshape(batch * places, channels, *size)
            how = (None if layer else bias, stride, padding, dilation, given["groups"])
            parts.append(torch.conv2d(image, weight[:, :, layer], *how))
        made = reduce(torch.add, parts)
        return made.reshape(batch, places, *made.shape[1:]).transpose(1, 2)

    return run


def _is_resampled(base: str, given: Arguments) -> bool:
    """Whether an image is resized by a factor other than the ratio of sizes, which engines use.

    Relay's bicubic operator supports only float32.
    """
    image = given["input" if "input" in given else "self"]
    if "bicubic" in base and image.dtype == torch.float64:
        return True
    factors = given.get("scale_factors") or [v for n, v in given.items() if n.startswith("scales")]
    if given.get("align_corners") or not factors or None in factors:
        return False
    sizes = zip(image.shape[2:], factors, strict=True)
    return any(math.floor(n * f) / n != f for n, f in sizes)


def _number(value: Any) -> Any:
    """A number, or the value of a constant of no dimensions; None for anything else."""
    if type(value) is Tensor and not value.dim() and value.device.type == "cpu":
        return value.item()
    return value if isinstance(value, int | float) else None


def _floats(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _scaled(sign: int, given: Arguments) -> Form | None:
    """A sum or difference with `alpha`, which TVM ignores."""
    times = sign * given.get("alpha", 1)
    return None if times == sign else lambda x, y, *_, **__: x + y * times


def _product(given: Arguments) -> Form | None:
    """With 0: infinity and NaN give NaN, but 0 in TVM."""
    x, y = given["self"], given["other"]
    zeros = [_number(v) == 0 for v in (x, y)]
    if not any(zeros) or not _floats(y if zeros[0] else x):
        return None
    place, dtype = (1 if zeros[0] else 0), torch.result_type(x, y)
    return lambda *pair: torch.where(pair[place].isfinite(), 0.0, math.nan).to(dtype)


def _quotient(given: Arguments) -> Form | None:
    """By 0, which TVM cannot build."""
    x, divisor = given["self"], _number(given["other"])
    if divisor != 0 or not isinstance(x, Tensor) or given.get("rounding_mode"):
        return None
    infinity, dtype = math.copysign(math.inf, divisor), torch.result_type(x, given["other"])
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    return lambda x, _: x.to(dtype) * infinity


def _power(given: Arguments) -> Form | None:
    """Roots, as in PyTorch: a power of minus infinity or of -0 differs."""
    roots: dict[float, Form] = {0: torch.ones_like, 0.5: torch.sqrt, -0.5: torch.rsqrt}
    root = roots.get(_number(given["exponent"])) if _floats(given["self"]) else None
    return None if root is None else lambda x, _: root(x)


def _linear(given: Arguments) -> Form | None:
    """With a vector."""
    if given["input"].dim() > 1 and given["weight"].dim() > 1:
        return None

    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        made = x.matmul(weight.t())
        return made if bias is None else made + bias

    return run


def _scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Without `include_self`, elements are first overwritten by what changes no result."""
    if x.dtype == torch.bool:
        whole = x.int(), dim, index, source.int(), reduce
        return _scatter_reduce(*whole, include_self=include_self).bool()
    limits = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
    least, most = (-math.inf, math.inf) if _floats(x) else (limits.min, limits.max)
    counts = torch.ones_like(x)
    if not include_self:
        nothing = {"amax": least, "amin": most, "prod": 1}.get(reduce, 0)
        x = x.scatter(dim, index, torch.full(index.shape, nothing, dtype=x.dtype))
        counts = counts.scatter(dim, index, torch.zeros(index.shape, dtype=x.dtype))
    if reduce != "mean":
        return _aten.scatter_reduce.two(x, dim % max(x.dim(), 1), index, source, reduce)
    for axis, size in enumerate(index.shape):
        source = source.narrow(axis, 0, size)
    total = x.scatter_add(dim, index, source)
    counts = counts.scatter_add(dim, index, torch.ones_like(source)).clamp(min=1)
    return total / counts if _floats(x) else torch.div(total, counts, rounding_mode="floor")


def _index(given: Arguments) -> Form | None:
    """Along several axes at once; or by a mask, where the shape depends on values."""
    places = [p for p in given["indices"] if p is not None]
    if any(p.dtype == torch.bool for p in places):
        return _aten.index.Tensor
    return None if len(places) < 2 else _index_flat


def _index_flat(x: Tensor, indices: list[Tensor | None]) -> Tensor:
    """Indexes the indexed axes, which are moved to the front, as one."""
    places = {axis: index for axis, index in enumerate(indices) if index is not None}
    axes, rest = [*places], [i for i in range(x.dim()) if i not in places]
    flat = torch.zeros([], dtype=torch.int64)
    for axis, index in places.items():
        index = index.to(torch.int64) % x.shape[axis]
        flat = index if axis == axes[0] else flat * x.shape[axis] + index
    kept = [x.shape[i] for i in rest]
    front = x if axes == [*range(len(axes))] else x.permute(*axes, *rest)
    rows = front.reshape(-1, *kept).index_select(0, flat.flatten())
    made, rank = rows.reshape(*flat.shape, *kept), flat.dim()
    if axes[0] and axes[-1] - axes[0] + 1 == len(axes):  # adjacent ones stay in place
        return made.movedim([*range(rank)], [*range(axes[0], axes[0] + rank)])
    return made


def _reduction(given: Arguments) -> Form | None:
    plain = given["include_self"] and given["reduce"] != "mean" and given["dim"] >= 0
    return None if plain and given["self"].dtype != torch.bool else _scatter_reduce


def _index_put(
    x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """By places in the flat tensor."""
    mask = indices[0]
    if any(i is not None and i.dtype == torch.bool for i in indices):
        if mask is None or len(indices) > 1 or accumulate or values.numel() > 1:
            raise NotImplementedError("the number of values that a mask selects is unknown")
        mask = mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim()))
        return torch.where(mask, values.to(x.dtype), x)
    if accumulate and x.dtype == torch.bool:
        return _index_put(x.int(), indices, values.int(), True).bool()
    size, inner = x.shape[: len(indices)], math.prod(x.shape[len(indices) :])
    rows = _aten.index.Tensor(torch.arange(math.prod(size)).view(size), indices)
    places = rows.unsqueeze(-1) * inner + torch.arange(inner)
    # Traced tensors have another memory order than those that run, which no view could flatten.
    places = places.clone(memory_format=torch.contiguous_format)
    values = values.expand(*rows.shape, *x.shape[len(indices) :])
    return x.flatten().index_put([places.flatten()], values.flatten(), accumulate).view(x.shape)


def _put(given: Arguments) -> Form | None:
    """Everything but one integer index into one axis."""
    x, indices = given["self"], given["indices"]
    single = x.dim() == 1 and len(indices) == 1 and indices[0].dtype != torch.bool
    plain = single and indices[0].shape == given["values"].shape
    return None if plain and not (given["accumulate"] and x.dtype == torch.bool) else _index_put


def _cast_first(op: Any, given: Arguments) -> Form | None:
    """In the given dtype, integers in int64, and over all axes if none is named."""
    x, axes = given["self"], given.get("dim", ())
    whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.int64)
    if given["dtype"] is None and not whole and axes not in (None, []):
        return None

    def run(x: Tensor, *more: Any, dtype: torch.dtype | None = None, **how: Any) -> Tensor:
        named = [dtype, *(m for m in more if isinstance(m, torch.dtype))]
        wanted = next(filter(None, named), torch.int64 if whole else x.dtype)
        rest = [m for m in more if not isinstance(m, torch.dtype)]
        if axes in (None, []):
            if not x.dim():
                return x.to(wanted).clone()
            rest[:1] = [list(range(x.dim()))]
        return op(x.to(wanted), *rest, **how)

    return run


def _from_first(op: Any, given: Arguments) -> Form | None:
    """Along an axis counted from the last."""
    if given["dim"] >= 0:
        return None
    return lambda x, dim, *more, **how: op(x, dim % x.dim(), *more, **how)


def _spread(op: Any, given: Arguments) -> Form | None:
    """With a divisor other than all elements, or all but one; over all axes if none is named."""
    x, named = given["self"], given.get("dim")
    axes = list(named or range(x.dim()))
    correction = given.get("correction", int(given.get("unbiased", True)))
    count = math.prod(x.shape[a] for a in axes)
    correction = 1 if correction is None else correction
    known = correction == 0 or (correction == 1 and count > 1)
    if known and given.get("correction", 0) is not None and (named or "dim" not in given):
        return None
    share = count / (count - correction) if count > correction else math.inf

    def run(x: Tensor, *_: Any, **__: Any) -> Tensor:
        if known:
            return op._overloadpacket(x, axes, correction=correction, keepdim=given["keepdim"])
        found = torch.var(x, axes, correction=0, keepdim=given.get("keepdim", False)) * share
        return found.sqrt() if op._schema.name == "aten::std" else found

    return run


def _embedding(given: Arguments, training: bool) -> Form | None:
    """The padding's row gets no gradient; the other options change only gradients, too."""
    padding = given["padding_idx"]
    if padding < 0 and not given["sparse"] and not given["scale_grad_by_freq"]:
        return None

    def run(weight: Tensor, indices: Tensor, *_: Any, **__: Any) -> Tensor:
        rows = _aten.embedding.default(weight, indices)
        if padding < 0 or not training:
            return rows
        return torch.where((indices == padding).unsqueeze(-1), rows.detach(), rows)

    return run


def _arange(given: Arguments) -> Form | None:
    """As a constant, if the numbers are not integers or fall."""
    numbers = [given[n] for n in ("start", "end", "step") if n in given]
    rising = given.get("step") is None or given["step"] > 0
    if rising and all(isinstance(n, int) for n in numbers):
        return None

    def run(*numbers: float, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        with _disable_current_modes():
            return torch.arange(*numbers, dtype=dtype)

    return run


_BY_OPTIONS: dict[str, Callable[[Any, Arguments], Form | None]] = {
    **dict.fromkeys(("log_softmax", "mean", "softmax"), _cast_first),
    **dict.fromkeys(("cumprod", "cumsum", "prod", "sum"), _cast_first),
    **dict.fromkeys(("scatter", "scatter_add"), _from_first),
    **dict.fromkeys(("std", "var"), _spread),
}
_IN_TRAINING: dict[str, Form] = {
    "xlogy": partial(times_log, torch.log, 0.0),
    "special_xlog1py": partial(times_log, torch.log1p, -1.0),
}

_FORMS: dict[str, Callable[[Arguments], Form | None]] = {
    "add": partial(_scaled, 1),
    "arange": _arange,
    "avg_pool3d": lambda given: None if given["divisor_override"] is None else avg_pool3d,
    "cat": lambda given: (lambda parts, *_: parts[0]) if len(given["tensors"]) == 1 else None,
    "cosine_similarity": lambda given: cosine_similarity,
    "div": _quotient,
    "index": _index,
    "index_put": _put,
    "linear": _linear,
    "mul": _product,
    "pad": lambda given: padded if given["mode"] == "circular" else None,
    "permute": lambda given: None if given["dims"] else lambda x, _: x,
    "pow": _power,
    "rrelu": lambda given: (
        None
        if given["training"]
        else lambda x, *_: _aten.leaky_relu(x, (given["lower"] + given["upper"]) / 2)
    ),
    "scaled_dot_product_attention": lambda given: fused_attention,
    "scatter_reduce": _reduction,
    "sub": partial(_scaled, -1),
    "topk": lambda given: None if given["sorted"] else lambda *args: _aten.topk.default(*args[:4]),
}
"""By an operator's name."""
