"""Compositions of operators along axes and over windows that nothing else decomposes.

Each function takes its operator's arguments.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

_aten = torch.ops.aten


def traced_constant(values: Any) -> Tensor:
    with _disable_current_modes():
        return torch.from_numpy(np.asarray(values, order="C"))  # of no axes, too


# Along an axis.


def _taken(x: Tensor, index: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    values = x.gather(dim, index)
    return (values, index) if keepdim else (values.squeeze(dim), index.squeeze(dim))


def _extreme(best: Any, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _taken(x, best(x, dim, True), dim, keepdim)


def _scan(step: Callable[..., tuple[Tensor, ...]], dim: int, *lanes: Tensor) -> tuple[Tensor, ...]:
    """Running results along an axis, by doubling: `step` takes the earlier parts, then the later
    (Hillis and Steele, "Data Parallel Algorithms", CACM 29(12), 1986)."""
    size, reach = lanes[0].shape[dim], 1
    while reach < size:
        early = [t.narrow(dim, 0, size - reach) for t in lanes]
        late = [t.narrow(dim, reach, size - reach) for t in lanes]
        made = step(*early, *late)
        heads = [t.narrow(dim, 0, reach) for t in lanes]
        lanes = tuple(torch.cat(pair, dim) for pair in zip(heads, made, strict=True))
        reach *= 2
    return lanes


_MOST_COMPARED = 2**20
"""Elements of the largest table that compares each element with all others along its axis."""


def _cumulated(later: Callable[[Tensor, Tensor], Tensor], best: str) -> Callable[..., Any]:
    """Running extremes, the last of equal ones, and NaN above all. Few elements are each compared
    with all before them, because a scan becomes a long expression."""

    def step(a: Tensor, i: Tensor, b: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        takes = later(b, a)
        if b.is_floating_point():
            takes = b.isnan() | (takes & ~a.isnan())
        return torch.where(takes, b, a), torch.where(takes, j, i)

    def compared(x: Tensor, dim: int) -> Tensor:
        x = x.detach() if x.is_floating_point() else x.to(torch.int64)
        size, wide = x.shape[dim], x.movedim(dim, -1).unsqueeze(-2)
        order = np.arange(size)
        before = traced_constant(order <= order[:, None])
        limits = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
        least = limits.min if best == "amax" else limits.max
        least = math.copysign(math.inf, least) if x.is_floating_point() else least
        top = getattr(torch.where(before, wide, least), best)(-1, keepdim=True)
        hit = wide == top
        hit = hit | wide.isnan() if x.is_floating_point() else hit
        return torch.where(hit & before, traced_constant(order), -1).amax(-1).movedim(-1, dim)

    def run(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if x.numel() * x.shape[dim] <= _MOST_COMPARED:
            return _taken(x, compared(x, dim), dim, True)
        along = [1] * x.dim()
        along[dim] = x.shape[dim]
        index = traced_constant(np.arange(x.shape[dim])).reshape(along).expand(x.shape)
        return _taken(x, _scan(step, dim, x, index)[1], dim, True)

    return run


def _cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    kept = x.dtype if x.is_floating_point() else torch.int64
    return _scan(lambda a, b: (a * b,), dim, x.to(dtype or kept))[0]


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    top = x == math.inf  # whose gradient is NaN
    x = torch.where(top, torch.where(top, x, 0.0).exp().log(), x)
    return _scan(lambda a, b: (torch.logaddexp(a, b),), dim, x)[0]


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _taken(x, _aten.sort.default(x, dim, False)[1].narrow(dim, k - 1, 1), dim, keepdim)


def _topk(
    x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    values, index = _aten.sort.default(x, dim, largest)
    return values.narrow(dim, 0, k), index.narrow(dim, 0, k)


def _median(skip: bool, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median along an axis, without NaN if `skip`; otherwise one NaN makes it NaN."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size, last = x.shape[dim], torch.full_like(x, math.inf) if x.is_floating_point() else x
    lost = x.isnan() if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)
    order = _aten.sort.default(torch.where(lost, last, x), dim, False)[1]
    count = size - lost.sum(dim, keepdim=True)
    half = (count - 1).clamp(min=0) // 2 if skip else torch.full_like(count, (size - 1) // 2)
    index = order.gather(dim, half)
    first = _aten.argmax.default(lost.to(torch.int32), dim, True)
    wrong = (count == 0) if skip else (count < size)
    return _taken(x, torch.where(wrong, first, index), dim, keepdim)


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    along = [1] * x.dim()
    along[dim] = index.numel()
    places = index.to(torch.int64).reshape(along).expand(source.shape)
    return x.scatter_reduce(dim, places, source, reduce, include_self=include_self)


def _searchsorted(
    ordered: Tensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """By bisection, as PyTorch does, which gives its places even where nothing is in order."""
    if not isinstance(values, Tensor):
        values = torch.full([], values, dtype=ordered.dtype)
    if sorter is not None:
        ordered = ordered.gather(-1, sorter)
    size, right = ordered.shape[-1], right or side == "right"
    rows, wanted = ordered.reshape(-1, size), values.reshape(-1)
    wanted = values.reshape(rows.shape[0], -1) if ordered.dim() > 1 else wanted.unsqueeze(0)
    low = torch.zeros_like(wanted, dtype=torch.int64)
    high = torch.full_like(low, size)
    for _ in range(size.bit_length()):
        middle = torch.div(low + high, 2, rounding_mode="trunc")  # TVM is slow with floors
        there = rows.gather(1, middle.clamp(max=size - 1))
        above = there > wanted if right else there >= wanted
        open_still = low < high
        low = torch.where(open_still & ~above, middle + 1, low)
        high = torch.where(open_still & above, middle, high)
    return low.reshape(values.shape).to(torch.int32 if out_int32 else torch.int64)


# Pooling.


def _windows(size: list[int], sides: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """For each place of a result, the indices that its window reads in a flat image, and which of
    them exist; `sides` are (places, window) positions for each axis."""
    rank = len(size)
    flat, valid = np.zeros([1] * 2 * rank, np.int64), np.ones([1] * 2 * rank, bool)
    for axis, (extent, at) in enumerate(zip(size, sides, strict=True)):
        along = [1] * 2 * rank
        along[axis], along[rank + axis] = at.shape
        at = at.reshape(along)
        flat = flat * extent + at.clip(0, extent - 1)
        valid = valid & (at >= 0) & (at < extent)
    places = math.prod(flat.shape[:rank])
    flat, valid = flat.reshape(places, -1), valid.reshape(places, -1)
    order = np.argsort(~valid, 1, kind="stable")  # what exists comes first
    return np.take_along_axis(flat, order, 1), np.take_along_axis(valid, order, 1)


def _largest(x: Tensor, size: list[int], sides: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """The largest of each window and its index; the last NaN if there is one."""
    flat, valid = _windows(size, sides)
    lead = list(x.shape[: x.dim() - len(size)])
    taken = x.reshape([*lead, -1]).index_select(-1, traced_constant(flat.reshape(-1)))
    taken = taken.reshape([*lead, *flat.shape])
    floating = x.is_floating_point()
    lowest = -math.inf if floating else torch.iinfo(x.dtype).min
    index = _aten.argmax.default(torch.where(traced_constant(valid), taken, lowest), -1, True)
    if floating:
        order = traced_constant(np.arange(1, flat.shape[1] + 1, dtype=np.float32))
        lost = torch.where(taken.isnan() & traced_constant(valid), order, torch.zeros_like(order))
        last = _aten.argmax.default(lost, -1, True)
        index = torch.where(lost.amax([-1], True) > 0, last, index)
    where = traced_constant(flat).expand(taken.shape).gather(-1, index)
    result = [*lead, *(s.shape[0] for s in sides)]
    return taken.gather(-1, index).reshape(result), where.reshape(result)


def _max_pool(
    op: Any,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    rank = 3 if "3d" in op._schema.name else 2
    with _disable_current_modes():
        blank = torch.empty(x.shape, device="meta")
        made = op(blank, kernel, stride, padding, dilation, *rest)[0].shape[-rank:]
    given = (kernel, stride or kernel, padding, dilation)
    ways = [list(g) if isinstance(g, list | tuple) else [g] for g in given]
    ways = [w * (rank if len(w) == 1 else 1) for w in ways]
    sides = [
        np.arange(n)[:, None] * s - p + np.arange(k) * d
        for n, k, s, p, d in zip(made, *ways, strict=True)
    ]
    return _largest(x, list(x.shape[-rank:]), sides)


def _adaptive_max_pool(x: Tensor, places: list[int]) -> tuple[Tensor, Tensor]:
    size, sides = list(x.shape[-len(places) :]), []
    places = [e if p is None else p for e, p in zip(size, places, strict=True)]
    for extent, count in zip(size, places, strict=True):
        begin = np.arange(count) * extent // count
        end = -(-(np.arange(count) + 1) * extent // count)
        at = begin[:, None] + np.arange((end - begin).max())
        sides.append(np.where(at < end[:, None], at, extent))
    return _largest(x, size, sides)


def padded(x: Tensor, around: list[int], *_: Any) -> Tensor:
    """Circular padding by indexing; PyTorch writes one side after the other in place."""
    for back, sides in enumerate(zip(around[::2], around[1::2], strict=True), 1):
        if any(sides):
            before, after = sides
            kept = np.arange(max(-before, 0), x.shape[-back] + min(after, 0))
            places = np.arange(-max(before, 0), len(kept) + max(after, 0)) % len(kept)
            x = x.index_select(x.dim() - back, traced_constant(kept[places]))
    return x


def _max_unpool(x: Tensor, index: Tensor, size: list[int], *options: Any) -> Tensor:
    lead = list(x.shape[: x.dim() - len(size)])
    blank = x.new_zeros([math.prod(lead), math.prod(size)])
    flat = [t.reshape(blank.shape[0], -1) for t in (index, x)]
    return blank.scatter(1, *flat).reshape([*lead, *size])


# Elementwise functions.


def _round(x: Tensor, *, decimals: int) -> Tensor:
    if decimals == 0 or not x.is_floating_point():
        return _aten.round.default(x)
    power = 10.0 ** abs(decimals)
    if decimals > 0:
        return _aten.round.default(x * power) / power
    return _aten.round.default(x / power) * power


# Others.


def _block_diag(tensors: list[Tensor]) -> Tensor:
    """Pads each block with zeros; PyTorch joins it with zeros, some of them without elements."""
    blocks = [torch.atleast_2d(t) for t in tensors]
    wide, left, rows = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        around = [left, wide - left - block.shape[1]]
        rows.append(_aten.constant_pad_nd(block, around) if any(around) else block)
        left += block.shape[1]
    return torch.cat(rows)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    mask = mask.expand(torch.broadcast_shapes(x.shape, mask.shape))
    x = x.expand(mask.shape)
    order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    taken = source.reshape(-1).index_select(0, order.clamp(0, source.numel() - 1))
    return torch.where(mask, taken.reshape(mask.shape), x)


def _instance_norm(x: Tensor, *given: Any) -> Tensor:
    weight, bias, mean, variance, by_input, momentum, eps = given[:7]
    if by_input and mean is not None:
        raise NotImplementedError("it updates running statistics")
    if by_input:
        return torch.nn.functional.group_norm(x, x.shape[1], weight, bias, eps)
    return torch.nn.functional.batch_norm(x, mean, variance, weight, bias, False, momentum, eps)


def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """A norm below `eps` counts as `eps`, but keeps its own gradient."""
    dtype = torch.result_type(x, y)
    x, y = torch.broadcast_tensors(x.to(dtype), y.to(dtype))
    pairs = ((t, torch.linalg.vector_norm(t, 2, dim, keepdim=True)) for t in (x, y))
    x, y = (t / torch.where(s > eps, s, s - s.detach() + eps) for t, s in pairs)
    return (x * y).sum(dim)


def avg_pool3d(
    x: Tensor,
    kernel: list[int],
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Tensor:
    """By planes, then across them."""
    given = (kernel, stride or kernel, padding)
    sizes, steps, around = ([*g] * (3 // len(g)) for g in map(np.atleast_1d, given))
    sizes, steps, around = ([int(n) for n in way] for way in (sizes, steps, around))
    if divisor is not None and x.is_floating_point():  # zeros beside windows change no sum
        room: list[int] = []
        for extent, size, step, before in zip(x.shape[-3:], sizes, steps, around, strict=True):
            left = extent + 2 * before - size
            count = left // step + 1
            if ceil_mode and left % step and count * step < extent + before:
                count += 1
            room[:0] = before, before + max(0, (count - 1) * step - left)
        sums = avg_pool3d(torch.nn.functional.pad(x, room), sizes, steps) * math.prod(sizes)
        return sums / divisor
    if ceil_mode or divisor is not None or (any(around) and not count_include_pad):
        raise NotImplementedError("it averages over partial windows")
    if not x.is_floating_point():  # means of means would be rounded twice
        count = sizes[0] * sizes[1] * sizes[2]
        sums = torch.round(avg_pool3d(x.to(torch.float64), sizes, steps, around) * count)
        return torch.div(sums, count, rounding_mode="trunc").to(x.dtype)
    planes = x.reshape(-1, *x.shape[-3:])
    planes = torch.nn.functional.avg_pool2d(planes, sizes[1:], steps[1:], around[1:])
    across = planes.reshape(planes.shape[0], 1, planes.shape[1], -1)
    ways = ([sizes[0], 1], [steps[0], 1], [around[0], 0])
    made = torch.nn.functional.avg_pool2d(across, *ways)
    return made.reshape(*x.shape[:-3], made.shape[2], *planes.shape[2:])


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, ...]:
    """The rows that are looked up, each added to its bag."""
    if mode == 2:
        raise NotImplementedError("its mode is max")
    starts = offsets[:-1] if include_last_offset else offsets
    place = torch.arange(indices.shape[0], device=indices.device)
    bag = (place.reshape(1, -1) >= starts.reshape(-1, 1)).to(torch.int64).sum(0) - 1
    rows = weight.index_select(0, indices)
    kept = torch.ones_like(rows)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if padding_idx >= 0:
        read = (indices != padding_idx).reshape(-1, 1).expand(rows.shape)
        rows, kept = (torch.where(read, t, torch.zeros_like(t)) for t in (rows, kept))
    places, blank = bag.reshape(-1, 1).expand(rows.shape), indices.new_empty(0)
    empty = torch.zeros(starts.shape[0], rows.shape[1], dtype=rows.dtype, device=rows.device)
    made = empty.scatter_add(0, places, rows)
    if mode == 1:
        made = made / empty.scatter_add(0, places, kept).clamp(min=1)
    return made, blank, blank, blank


def _im2col(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """For any memory order; PyTorch's own decomposition takes a view of what it padded."""
    lead, size = x.shape[:-2], []
    for axis, (k, d, p, s) in enumerate(zip(kernel, dilation, padding, stride, strict=True), -2):
        x = torch.constant_pad_nd(x, [*[0] * (-2 * axis - 2), p, p])
        count = (x.shape[axis] - (k - 1) * d - 1) // s + 1
        places = np.arange(k)[:, None] * d + np.arange(count) * s
        x = x.index_select(axis, traced_constant(places.flatten()))
        size += places.shape
    apart = x.reshape([math.prod(lead), *size]).permute(0, 1, 3, 2, 4)
    return apart.reshape([*lead[:-1], lead[-1] * size[0] * size[2], size[1] * size[3]])


_BY_NAME = (
    *(_block_diag, _cumprod, _im2col, _index_reduce, _instance_norm, _kthvalue),
    *(_logcumsumexp, _masked_scatter, _topk),
)
"""Those that are named like their operators."""

ALONG: dict[str, Callable[..., Any]] = {
    **{made.__name__[1:]: made for made in _BY_NAME},
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _embedding_bag),
    **dict.fromkeys(("adaptive_max_pool2d", "adaptive_max_pool3d"), _adaptive_max_pool),
    **dict.fromkeys(("max_unpool2d", "max_unpool3d"), _max_unpool),
    **dict.fromkeys(("searchsorted.Scalar", "searchsorted.Tensor"), _searchsorted),
    "avg_pool3d": avg_pool3d,
    "copy": lambda x, source, *_: source.to(x.dtype).expand(x.shape).clone(),
    "cummax": _cumulated(torch.ge, "amax"),
    "cummin": _cumulated(torch.le, "amin"),
    "max.dim": partial(_extreme, _aten.argmax.default),
    "max_pool2d_with_indices": partial(_max_pool, _aten.max_pool2d_with_indices.default),
    "max_pool3d_with_indices": partial(_max_pool, _aten.max_pool3d_with_indices.default),
    "median": lambda x: _median(False, x.reshape(-1), 0)[0],
    "median.dim": partial(_median, False),
    "min.dim": partial(_extreme, _aten.argmin.default),
    "nanmedian": lambda x: _median(True, x.reshape(-1), 0)[0],
    "nanmedian.dim": partial(_median, True),
    "round.decimals": _round,
    "sort.stable": lambda x, *, stable, dim=-1, descending=False: _aten.sort(x, dim, descending),
}
