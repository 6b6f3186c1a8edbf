"""Compositions, in PyTorch, of operators that TVM's frontends do not know.

PyTorch's core ATen decompositions, others of PyTorch's, and ours below, which keep PyTorch's
values, including NaN and infinity, and its gradients. A view is composed as a copy: a write through
it is refused elsewhere.
"""

import math
from collections.abc import Callable
from functools import cache, partial, reduce
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.utils._python_dispatch import _disable_current_modes

from relascope.engine.pytorch.operators.along_axes import ALONG, traced_constant
from relascope.engine.pytorch.operators.sampling import RESIZED, grid_sampler

_MORE = (
    "_batch_norm_with_update _native_batch_norm_legit any clamp clamp_max clamp_min dist fmod "
    "narrow_copy native_batch_norm native_group_norm native_layer_norm "
    "permute_copy slice_scatter unbind_copy view_copy"
)
"""What PyTorch decomposes into core operators, though not among its core decompositions."""


Axes = list[int] | None
Dtype = torch.dtype | None
Supports = Callable[[str], bool]
"""Whether a frontend has an operator, by its name."""


@cache
def name_of(op: Any) -> str:
    """Such as "add.Tensor" or "relu.default"."""
    name = op._schema.name.removeprefix("aten::")
    return f"{name}.{op._schema.overload_name or 'default'}"


def composing(op: Any, supports: Supports, apart: bool) -> dict[Any, Callable[..., Any]]:
    """PyTorch functions by the ATen operators that they compose. What the frontend knows stays
    whole, except, if `apart`, the operator itself and the max pools that it is made of."""
    pools = name_of(op).startswith("max_pool")
    table = {
        o: made
        for o, made in compositions().items()
        if not supports(name_of(o)) or (apart and (o is op or (pools and "max_pool" in name_of(o))))
    }
    if op in decomposition_table and (apart or not supports(name_of(op))):
        table.setdefault(op, decomposition_table[op])
    return table


@cache
def compositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    more = [getattr(aten, name) for name in _MORE.split()]
    forms = [getattr(packet, o) for packet in more for o in packet.overloads()]
    table = {op: decomposition_table[op] for op in forms if op in decomposition_table}
    table |= core_aten_decompositions()
    for name, made in (_OURS | ALONG | RESIZED).items():
        packet, _, overload = name.partition(".")
        table[getattr(getattr(aten, packet), overload or "default")] = made
    return table


def stays(op: Any, args: list[Any]) -> bool:
    """Whether an operator stays whole though a frontend does not know it: division of integers."""
    made = compositions().get(op)
    return made in (_divide, _floor_divide, _remainder) and not _in_floats(*args[:2])


def _in_floats(x: Any, y: Any) -> bool:
    return torch.result_type(x, y).is_floating_point


def _floating(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def _both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the floating-point dtype that PyTorch computes in."""
    dtype = torch.result_type(x, y)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    return x.to(dtype), y.to(dtype)


# Arithmetic.


def _signbit(x: Tensor) -> Tensor:
    x = x.detach()  # zero times an infinite slope is NaN
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


def _copysign(x: Tensor, sign: Tensor) -> Tensor:
    x, sign = _both(x, sign)
    return torch.where(_signbit(sign), -x.abs(), x.abs())


def _copysign_scalar(x: Tensor, sign: float) -> Tensor:
    size = _floating(x).abs()
    return -size if math.copysign(1, sign) < 0 else size


def _but_nan(takes: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    taken = takes(x, y)
    return torch.where(taken | y.isnan() if y.is_floating_point() else taken, x, y)


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    root = (x * x + y * y).sqrt()
    return torch.where(x.isinf() | y.isinf(), math.inf, root)


def _angle(x: Tensor) -> Tensor:
    turned = (x < 0).to(_floating(x).dtype) * math.pi
    return torch.where(x.isnan(), x, turned) if x.is_floating_point() else turned


def _expm1(x: Tensor) -> Tensor:
    x = _floating(x)
    near = x.clamp(-1.0, 1.0)  # elsewhere, nothing is lost by subtracting 1
    return torch.where(x.abs() < 1, (near / 2).tanh() * (near.exp() + 1), x.exp() - 1)


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    bent = x <= 0  # at 0, too, the slope is the curve's
    below = torch.where(bent, x, 0.0)  # powers of large numbers would make NaN of gradients
    curve = _expm1(below if input_scale == 1 else below * input_scale)
    curve = curve if alpha * scale == 1 else curve * (alpha * scale)
    return torch.where(bent, curve, x if scale == 1 else x * scale)


def _hyperbolic(x: Tensor, odd: int) -> Tensor:
    """sinh, or cosh if `odd` is 0: by their series below 1, whose gradients keep all digits."""
    x = _floating(x)
    size = torch.where(x < 0, -x, x)
    half = (size / 2).exp()  # whose square overflows where they do
    rest = 0.5 / half / half
    near = torch.where(size < 1, x, 0.0)
    square, series = near * near, torch.ones_like(near)
    for step in range(9, 0, -1):
        series = series * square / (2 * step * (2 * step + 2 * odd - 1)) + 1
    far = half * (half / 2) + (-rest if odd else rest)
    if odd:
        series, far = near * series, torch.where(x < 0, -far, far)
    return torch.where(size < 1, series, far)


def _asinh(x: Tensor) -> Tensor:
    x = _floating(x)
    size = torch.where(x < 0, -x, x)
    near, far = torch.where(size > 1e9, 1e9, size), size.clamp(min=1.0)
    found = (near + near * near / (1 + (near * near + 1).sqrt())).log1p()
    found = torch.where(size > 1e9, far.log() + math.log(2), found)
    return torch.where(x < 0, -found, found)


def _acosh(x: Tensor) -> Tensor:
    x = _floating(x)
    near = torch.where(x > 1e9, 1e9, x)
    found = (near + ((near - 1) * (near + 1)).sqrt()).log()
    return torch.where(x > 1e9, x.clamp(min=1.0).log() + math.log(2), found)


def _atanh(x: Tensor) -> Tensor:
    x = _floating(x)
    return 0.5 * (x.log1p() - (-x).log1p())


def _atan2(y: Tensor, x: Tensor) -> Tensor:
    y, x = _both(y, x)
    steep = y.abs() > x.abs()
    above, below = torch.where(steep, x, y), torch.where(steep, y, x)
    neither = (x == 0) & (y == 0)
    slope = torch.where(neither, 0.0, above) / torch.where(neither, 1.0, below)
    slope = torch.where(x.isinf() & y.isinf(), x.sign() * y.sign(), slope)
    half = torch.where(_signbit(y), -1.0, 1.0).to(y.dtype) * (math.pi / 2)
    flat = torch.where(_signbit(x), 2 * half, 0.0)
    found = torch.where(steep, half - slope.atan(), slope.atan() + flat)
    return found + _no_slope(y, x.isinf()) + _no_slope(x, y.isinf())


def _no_slope(x: Tensor, where: Tensor) -> Tensor:
    """Zeros, whose gradient is NaN at finite elements of x that `where` selects."""
    return (torch.where(where & x.isfinite(), x, 1.0) / math.inf).sqrt()


@cache
def _erfc_fit() -> list[float]:
    """A polynomial in (x - 3) / (x + 3) for (x + 3) exp(x²) erfc(x), highest power first; relative
    error below 5e-15 for x >= 0."""

    def scaled(place: Any) -> Any:
        x = 3 * (1 + place) / (1 - place)
        return torch.special.erfcx(torch.from_numpy(x)).numpy() * (x + 3)

    with _disable_current_modes():
        return list(chebyshev.cheb2poly(chebyshev.chebinterpolate(scaled, 20))[::-1])


def _erfc(x: Tensor) -> Tensor:
    """A Chebyshev fit: 1 - erf(x) loses all digits of large x."""
    x = _floating(x)
    size = torch.where(x < 0, -x, x)
    size = torch.where(size > 28, 28.0, size)  # beyond that it is 0 even in float64
    place = (size - 3) / (size + 3)
    power = torch.zeros_like(size)
    for factor in _erfc_fit():
        power = power * place + factor
    found = (-size * size).exp() * power / (size + 3)
    return torch.where(x < 0, 2 - found, found)


_LANCZOS = (
    *(676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059),
    *(12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7),
)


def _lgamma(x: Tensor) -> Tensor:
    """Lanczos's sum from 0.5 on, and its reflection below that."""
    if not x.is_floating_point():
        return torch.where((x == 1) | (x == 2), 0.0, _lgamma(_floating(x)))
    mirrored = x < 0.5
    wide = torch.where(mirrored, 1 - x, x).clamp(max=1e15)
    total = torch.full_like(wide, 0.99999999999980993)
    for index, factor in enumerate(_LANCZOS):
        total = total + factor / (wide + index)
    top = wide + 6.5
    found = 0.5 * math.log(2 * math.pi) + (wide - 0.5) * top.log() - top + total.log()
    sine = ((x - x.round()) * math.pi).sin().abs()
    sine = torch.where(mirrored, sine, 1.0)
    found = torch.where(mirrored, math.log(math.pi) - sine.log() - found, found)
    return torch.where(x.isinf(), math.inf, found)


def _floating_pair(x: Tensor, y: Any) -> tuple[Tensor, Tensor]:
    dtype = torch.result_type(x, y)
    x = x.to(dtype)
    return x, y.to(dtype) if isinstance(y, Tensor) else torch.full_like(x, y)


def _divide(x: Tensor, y: Any, *, rounding_mode: str | None) -> Tensor:
    """A rounded quotient has no gradient. One rounded down comes from the exact remainder, as in
    PyTorch, because the quotient itself may round up to a whole number."""
    if rounding_mode is None:
        return x / y
    if not _in_floats(x, y):
        return NotImplemented
    x, y = _floating_pair(x.detach(), y.detach() if isinstance(y, Tensor) else y)
    if rounding_mode == "trunc":
        return (x / y).trunc()
    rest = torch.fmod(x, y)
    quotient = (x - rest) / y
    quotient = torch.where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    whole = quotient.floor()
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)
    return torch.where(y == 0, x / y, whole)


def _floor_divide(x: Tensor, y: Any) -> Tensor:
    return _divide(x, y, rounding_mode="floor")


def _remainder(x: Tensor, y: Any) -> Tensor:
    if not _in_floats(x, y):
        return NotImplemented
    x, y = _floating_pair(x, y)
    rest = torch.fmod(x, y)
    rest = torch.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)
    return rest + _no_slope(y, x.isinf() & (y != 0))


# Activations and losses, whose gradients are PyTorch's at edges, too.


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Its exponential does not overflow: it has a gradient even where it is not selected."""
    scaled = x * beta if beta != 1 else x
    far = scaled > threshold
    curve = torch.where(far, 0.0, scaled).exp().log1p()
    return torch.where(far, x, curve / beta if beta != 1 else curve)


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    return (loss, loss.mean(), loss.sum())[reduction] if reduction else loss


def _bent(far: Tensor, bound: float, by: float) -> Tensor:
    """by * far² / 2 up to a bound, and a straight line from there on."""
    beyond = far > bound
    near = torch.where(beyond, 0.0, far)
    return torch.where(beyond, by * bound * (far - 0.5 * bound), 0.5 * by * near * near)


def _huber(x: Tensor, y: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    return _reduced(_bent((x - y).abs(), delta, 1.0), reduction)


def _smooth_l1(x: Tensor, y: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    far = (x - y).abs()
    return _reduced(_bent(far, beta, 1 / beta) if beta else far, reduction)


def _hinge(z: Tensor) -> Tensor:
    return torch.where(z > 0, z, 0.0)  # PyTorch's losses turn NaN into 0


def _multi_margin(
    x: Tensor,
    target: Tensor,
    p: float = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    single = target.dim() == 0
    x, target = torch.atleast_2d(x), torch.atleast_1d(target).unsqueeze(1)
    z = _hinge(margin - x.gather(1, target) + x)
    z = z if p == 1 else z * z
    if weight is not None:  # 0 times an infinite weight stays 0
        z = z * torch.where(z > 0, torch.atleast_1d(weight)[target], 0.0)
    z = torch.where(torch.arange(x.shape[1]) != target, z, 0.0).sum(1) / x.shape[1]
    return _reduced(z[0] if single and not reduction else z, reduction)


def _multilabel_margin(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    size, rank = target.shape, x.dim()
    x, target = torch.atleast_2d(x), torch.atleast_2d(target)
    labels = x.shape[1]
    places = torch.arange(labels)
    end = torch.where(target == -1, places, labels).amin(-1, keepdim=True)
    given = places < end  # what stands before the first -1
    hit = (torch.where(given, target, -1).unsqueeze(-1) == places).any(1)
    found = x.gather(-1, torch.where(given, target, 0))
    z = _hinge(1.0 - found.unsqueeze(-1) + x.unsqueeze(1)) / labels
    z = torch.where(hit.unsqueeze(1) | ~given.unsqueeze(-1), 0.0, z).sum((1, 2))
    z = z[0] if rank < 2 and not reduction else z
    return _reduced(z, reduction), hit.to(x.dtype).reshape(size)


def _nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Only what is taken of x is weighted: an infinite weight would make other gradients NaN."""
    classes = min(x.dim() - 1, 1)
    seen = target != ignore_index
    label = torch.where(seen, target, 0)
    loss, each = -x.gather(classes, label.unsqueeze(classes)).squeeze(classes), seen.to(x.dtype)
    if weight is not None:
        each = torch.where(seen, weight[label], 0.0)
        loss = loss * each
    loss, total = torch.where(seen, loss, 0.0), each.sum()
    if not reduction:
        return loss, torch.zeros_like(total)
    return loss.sum() / total if reduction == 1 else loss.sum(), total


def _layer_norm(
    x: Tensor, size: list[int], weight: Tensor | None, bias: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """No gradient flows through the mean and the deviation that it returns."""
    axes = list(range(x.dim() - len(size), x.dim()))
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    spread = (centred * centred).mean(axes, keepdim=True)
    deviation = (spread + epsilon).rsqrt()
    made = centred * deviation
    made = made if weight is None else made * weight
    made = made if bias is None else made + bias
    lost = torch.where(spread.isnan(), spread, mean)
    return made, lost.detach(), deviation.detach()


def moved_batch_norm(
    x: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    momentum: float,
    epsilon: float,
) -> tuple[Tensor, ...]:
    """Batch norm in train mode: the result, and the new running statistics, if it has some, in
    their own dtypes."""
    axes, along = [i for i in range(x.dim()) if i != 1], [x.shape[1]] + [1] * (x.dim() - 2)
    middle = x.mean(axes, keepdim=True)
    centred = x - middle
    spread = (centred * centred).mean(axes, keepdim=True)
    deviation = (spread + epsilon).sqrt()
    # One factor a channel, as in PyTorch: the gradient sums over the images once.
    scale = deviation.reciprocal() if gamma is None else gamma.reshape(along) / deviation
    made = centred * scale if beta is None else centred * scale + beta.reshape(along)
    if mean is None or variance is None:
        return (made,)
    count = x.numel() // x.shape[1]
    unbiased = spread * (count / (count - 1))
    pairs = ((mean, middle), (variance, unbiased))
    moved = ((o.to(x.dtype), n.reshape(o.shape), o.dtype) for o, n in pairs)
    return made, *((o * (1 - momentum) + n * momentum).to(kind) for o, n, kind in moved)


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    """A slope that is not finite does not make gradients above 0 NaN."""
    above = x > 0
    return torch.where(above, x, torch.where(above, 0.0, x) * torch.where(above, 1.0, slope))


# Products, sums and distances.


def _solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """By the inverse, built from the diagonal's in blocks of twice the size each time: that of [[A,
    0], [C, B]] has -B^-1 C A^-1 below.
    """
    if not left:
        options = {"upper": not upper, "unitriangular": unitriangular}
        return _solve_triangular(a.mT, b.mT, **options).mT
    if upper:
        options = {"upper": False, "unitriangular": unitriangular}
        return _solve_triangular(a.flip(-2, -1), b.flip(-2), **options).flip(-2)
    size = a.shape[-1]
    row, column = np.indices((size, size))
    found = traced_constant(np.eye(size)).to(a.dtype)
    if not unitriangular:
        found = found / a.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    for block in (2**k for k in range((size - 1).bit_length())):
        below = (row // block == column // block + 1) & (row // block % 2 == 1)
        found = found - found @ torch.where(traced_constant(below), a, 0.0) @ found
    return found @ b


def _addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = alpha * a.bmm(b).sum(0)
    return beta * x + product if beta else product


def _cdist(x: Tensor, y: Tensor, p: float, mode: int | None) -> Tensor:
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)
    if p == 0:  # NaN stays NaN, where a norm would count it as 1
        return apart.abs().ceil().clamp(max=1).sum(-1)
    if p == 1:  # whose gradient is NaN where a difference is
        slope = torch.where(apart < 0, -1.0, torch.where(apart > 0, 1.0, apart)).detach()
        return (apart * slope).sum(-1)
    return _vector_norm(apart, p, [-1])


def _vector_norm(
    x: Tensor, p: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: Dtype = None
) -> Tensor:
    """Its gradient is 0 where the norm is 0, and where the norm of infinite order is NaN."""
    x = x if dtype is None else x.to(dtype)
    axes = dim or list(range(x.dim()))
    if p == 0:
        return (x != 0).to(x.dtype).sum(axes, keepdim)
    if p == 1:
        return x.abs().sum(axes, keepdim)
    if math.isinf(p):
        lost = x.isnan().any(axes, True)
        size = torch.where(lost, 0.0, x).abs()
        found = (size.amax if p > 0 else size.amin)(axes, keepdim)
        return torch.where(lost if keepdim else lost.squeeze(axes), math.nan, found)
    total = (x * x if p == 2 else x.abs() ** p).sum(axes, keepdim)
    nothing = total == 0
    total = torch.where(nothing, 1.0, total)
    return torch.where(nothing, 0.0, total.sqrt() if p == 2 else total ** (1 / p))


def _clamp(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Without a gradient where the result is NaN."""
    made = x if low is None else torch.where((x >= low) | x.isnan(), x, low)
    made = made if high is None else torch.where((made <= high) | made.isnan(), made, high)
    return torch.where(made.isnan(), made.detach(), made) if made.is_floating_point() else made


def _sinc(x: Tensor) -> Tensor:
    """By its series near 0, where the gradient of the quotient loses digits."""
    x = _floating(x) * math.pi
    close = x.abs() < 0.5
    square, series = torch.where(close, x * x, 0.0), torch.ones_like(x)
    for step in range(6, 0, -1):
        series = 1 - series * square / (2 * step * (2 * step + 1))
    return torch.where(close, series, x.sin() / torch.where(close, 1.0, x))


def _softmax_gradient(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Subtracts the sum first, as PyTorch's kernels do, so that infinity stays."""
    return ((grad - (grad * output).sum(dim, True)) * output).to(dtype)


def times_log(log: Callable[[Tensor], Tensor], edge: float, x: Any, y: Any) -> Tensor:
    """xlogy or xlog1py, with PyTorch's gradients at the edge, where the logarithm is minus
    infinity, beyond it, and for NaN. The value has the second argument's gradient; the first's is
    the slope of a difference that is zero. An infinite or NaN slope is made of quotients, which
    leave a zero gradient zero."""
    given = (v if isinstance(v, Tensor) else torch.full([], v) for v in (x, y))
    x, y = torch.broadcast_tensors(*_both(*given))  # gradients are added up in the end
    factor, at = x.detach(), y.detach()
    of, dtype = torch.finfo(at.dtype), str(at.dtype).removeprefix("torch.")
    bounds = (np.full([1] * at.dim(), v, dtype) for v in (of.max, of.tiny))
    most, least = map(traced_constant, bounds)
    nothing, far = factor == 0, (at <= edge) | at.isinf()
    slope = torch.where(far, torch.where(at == edge, -most, most), log(at))
    none = torch.where(at < edge, math.inf, 1.0)  # infinity by which makes NaN
    tiny = torch.where(far, least, 1.0)  # of two factors, a compiler would make their square
    moved = x - torch.where(factor.isfinite(), factor, 0.0)
    moved = torch.where(nothing & (at <= edge), 0.0, moved)
    value = torch.where(nothing & far, 0.0, factor * log(y))
    return value + moved * slope / none / tiny / tiny


def _safe_softmax(x: Tensor, dim: int, dtype: Dtype = None) -> Tensor:
    """Without NaN in rows of only minus infinity, or in their gradients."""
    hidden = (x == -math.inf).all(dim, keepdim=True)
    return torch.where(hidden, 0.0, torch.softmax(torch.where(hidden, 0.0, x), dim, dtype=dtype))


def _trilinear(x: Tensor, y: Tensor, z: Tensor, *axes: Any) -> Tensor:
    more_x, more_y, more_z, summed = axes[:4]
    given = ((x, more_x), (y, more_y), (z, more_z))
    x, y, z = (reduce(torch.unsqueeze, axes, tensor) for tensor, axes in given)
    before = [a for a in summed if a in more_z]
    product = (x * y).sum(before, keepdim=True) if before else x * y
    return (product * z).sum(summed) if summed else product * z


def _var_mean(
    x: Tensor, dim: Axes = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    axes = dim or list(range(x.dim()))
    return torch.var(x, axes, correction=correction, keepdim=keepdim), x.mean(axes, keepdim)


# Parts of tensors.


def _diagonal_scatter(
    x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    x = x.movedim((dim1, dim2), (-2, -1))
    numbers = np.arange(x.shape[-2] * x.shape[-1]).reshape(x.shape[-2:])
    places = traced_constant(numbers.diagonal(offset).copy())
    made = x.flatten(-2).index_copy(-1, places, source).view(x.shape)
    return made.movedim((-2, -1), (dim1, dim2))


def _in_memory(
    x: Tensor, size: list[int], stride: list[int], offset: int | None
) -> tuple[list[int], Tensor] | None:
    """A tensor's axes in the order of its memory, and the places there of a view's elements; None
    if the tensor is a part of other memory, or has gaps."""
    axes = sorted(range(x.dim()), key=x.stride, reverse=True)
    if not x.permute(axes).is_contiguous() or x.storage_offset():
        return None
    places = torch.full([1], offset or 0)
    for length, step in zip(size, stride, strict=True):
        places = (places.unsqueeze(-1) + torch.arange(length) * step).flatten()
    most = (offset or 0) + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return (axes, places) if most < x.numel() else None


def _as_strided(
    x: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Tensor:
    found = _in_memory(x, size, stride, storage_offset)
    if found is None:
        return NotImplemented
    return x.permute(found[0]).flatten().index_select(0, found[1]).view(size)


def _as_strided_scatter(
    x: Tensor, source: Tensor, size: list[int], stride: list[int], storage_offset: Any = None
) -> Tensor:
    found = _in_memory(x, size, stride, storage_offset)
    if found is None or not x.is_contiguous() or not size:
        return NotImplemented  # PyTorch has another gradient for a single element
    return x.flatten().index_copy(0, found[1], source.flatten()).view(x.shape)


def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if not x.dim():
        return x.expand(size).clone()
    dim %= x.dim()
    count = (x.shape[dim] - size) // step + 1
    places = torch.arange(count).unsqueeze(-1) * step + torch.arange(size)
    return x.index_select(dim, places.flatten()).unflatten(dim, (count, size)).movedim(dim + 1, -1)


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    return x.flatten().index_put([index.flatten()], source.flatten(), accumulate).view(x.shape)


def _histogram(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    low, high = float(min), float(max)
    if low >= high:
        raise NotImplementedError("its limits depend on values")
    flat = x.detach().reshape(-1, 1)
    place = ((flat - low) * bins / (high - low)).clamp(max=bins - 1).trunc()
    among = (flat >= low) & (flat <= high)
    numbers = torch.arange(bins, device=x.device, dtype=x.dtype)
    return ((place == numbers) & among).to(x.dtype).sum(0)


def _grouped_product(
    x: Tensor,
    y: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Dtype = None,
) -> Tensor:
    """Multiplies rows of x by the matrix of their group; `offs` are the groups' ends.

    Each group's product is computed for all rows, because the groups are not known before. Rows
    after the last end are zero; PyTorch leaves them uninitialized.
    """
    if bias is not None or out_dtype not in (None, x.dtype):
        raise NotImplementedError("it has a bias or another output dtype")
    if offs is None:
        return torch.matmul(x, y)
    if (x.dim(), y.dim()) != (2, 3):
        raise NotImplementedError("its groups are not along the rows")
    row = torch.arange(x.shape[0], device=x.device).reshape(1, -1)
    ends = offs.reshape(-1, 1)
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    inside = ((row >= starts) & (row < ends)).unsqueeze(-1)
    products = torch.matmul(x, y)
    return torch.where(inside, products, torch.zeros_like(products)).sum(0)


_BY_NAME = (
    *(_acosh, _addbmm, _angle, _as_strided, _as_strided_scatter, _asinh, _atan2, _atanh),
    *(_diagonal_scatter, _elu, _erfc, _expm1, _hypot, _lgamma, _put, _signbit, _sinc, _softplus),
)
"""Those that are named like their operators."""

_OURS: dict[str, Callable[..., Any]] = {
    **{made.__name__[1:]: made for made in _BY_NAME},
    **dict.fromkeys(("clamp.Tensor", "clamp_min.Tensor"), _clamp),
    **dict.fromkeys(("div.Scalar_mode", "div.Tensor_mode"), _divide),
    **dict.fromkeys(("floor_divide", "floor_divide.Scalar"), _floor_divide),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), grid_sampler),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _nll_loss),
    **dict.fromkeys(("remainder.Scalar", "remainder.Tensor"), _remainder),
    **dict.fromkeys(("unfold", "unfold_copy"), _unfold),
    "_cdist_forward": _cdist,
    "_grouped_mm": _grouped_product,
    "_prelu_kernel": _prelu,
    "_safe_softmax": _safe_softmax,
    "_softmax_backward_data": _softmax_gradient,
    "_trilinear": _trilinear,
    "bucketize.Scalar": lambda x, ends, **how: torch.searchsorted(ends, x, **how),
    "bucketize.Tensor": lambda x, ends, **how: torch.searchsorted(ends, x, **how),
    "celu": lambda x, alpha=1.0: _elu(x, alpha, 1.0, 1 / alpha),
    "clamp_max.Tensor": lambda x, high: _clamp(x, high=high),
    "copysign.Scalar": _copysign_scalar,
    "copysign.Tensor": _copysign,
    "cosh": partial(_hyperbolic, odd=0),
    "exp2": lambda x: torch.pow(2.0, _floating(x)),
    "fmax": partial(_but_nan, torch.ge),
    "fmin": partial(_but_nan, torch.le),
    "histc": _histogram,
    "huber_loss": _huber,
    "linalg_solve_triangular": _solve_triangular,
    "linalg_vector_norm": _vector_norm,
    "log_sigmoid": lambda x: -_softplus(-x, 1, 40),
    "log_sigmoid_forward": lambda x: (-_softplus(-x, 1, 40), x.new_empty(0)),
    "multi_margin_loss": _multi_margin,
    "multilabel_margin_loss_forward": _multilabel_margin,
    "native_layer_norm": _layer_norm,
    "sinh": partial(_hyperbolic, odd=1),
    "smooth_l1_loss": _smooth_l1,
    "softshrink": lambda x, size=0.5: x - x.clamp(-size, size),
    "var_mean.correction": _var_mean,
}
