"""Sampling images at a grid's places, composed of operators that every frontend knows."""

from collections.abc import Callable
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._decomp.decompositions import _upsample_get_cubic_coefficients
from torch.utils._python_dispatch import _disable_current_modes

from relascope.engine.pytorch.operators.along_axes import traced_constant


def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, aligned: bool) -> Tensor:
    """An image interpolated at places between its elements, with PyTorch's values and gradients.

    Outside is 0, the border, or mirrored. NaN places give what PyTorch's kernels for the CPU give.

    `x` is of shape (batch, channels, *size), with two or three axes of size, and `grid` of shape
    (batch, *places, axes), from -1 to 1, the last axis of x first. `mode` is 0 (linear along each
    axis) or 1 (nearest); `padding` is 0 (zeros), 1 (the border) or 2 (mirrored), the latter two
    only for mode 0 and images; others are NotImplemented. If `aligned`, -1 and 1 are the middles of
    the outermost elements, not their edges."""
    sizes = x.shape[:1:-1]
    if mode > 1 or (padding and (mode == 1 or len(sizes) > 2)):
        return NotImplemented
    at = [_along(grid[..., i], size, padding, aligned) for i, size in enumerate(sizes)]
    if mode == 1:
        return _elements(x, [a.detach().round() for a in at])
    first = [a.detach().floor() for a in at]
    made: Any = 0
    for far in product((0, 1), repeat=len(at)):
        weight: Any = 1
        for a, begin, step in zip(at, first, far, strict=True):
            weight = weight * (a - begin if step else begin + 1 - a)
        corner = [begin + step for begin, step in zip(first, far, strict=True)]
        made = made + _elements(x, corner) * weight.unsqueeze(1)
    return made


def _along(grid: Tensor, size: int, padding: int, aligned: bool) -> Tensor:
    """Places along one axis, in elements."""
    at = (grid + 1) * ((size - 1) / 2) if aligned else ((grid + 1) * size - 1) / 2
    if padding == 2:
        low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
        at = (at - low).abs()
        turns = (at / max(span, 1.0)).floor().detach()
        rest = at - turns * span
        at = torch.where((turns / 2).floor() * 2 != turns, span - rest, rest) + low
        at = at if span else at * 0
    if not padding:
        return at
    # NaN is at 0, as PyTorch documents. At the border itself no gradient flows.
    within = (at > 0) & (at < size - 1)
    beyond = torch.where(at.isnan(), 0.0, at).detach().clamp(0, size - 1)
    free = torch.where(at.isinf() | at.isnan(), 0.0, at) * within.to(at.dtype)  # may be 0 by NaN
    return free + torch.where(within, 0.0, beyond)


def _elements(x: Tensor, places: list[Tensor]) -> Tensor:
    """The image's elements at whole places, the last axis' first; 0 outside."""
    sizes = x.shape[:1:-1]
    limits = zip(places, sizes, strict=True)
    inside = torch.stack([(p >= 0) & (p <= size - 1) for p, size in limits]).all(0)
    index: Any = 0
    for place, size in zip(reversed(places), reversed(sizes), strict=True):
        # Within the image, even where a compiler rounds the two uses of a place otherwise.
        index = index * size + torch.where(inside, place, 0.0).long().clamp(0, size - 1)
    batch, channels = x.shape[:2]
    wide = index.reshape(batch, 1, -1).expand(batch, channels, -1)
    found = x.flatten(2).gather(2, wide).reshape(batch, channels, *index.shape[1:])
    return torch.where(inside.unsqueeze(1), found, 0.0)


Taps = tuple[Any, Any]
"""The elements that make up each element of an axis, and their shares: both (elements, taps)."""


def _places(extent: int, wanted: int, aligned: bool, factor: float | None, kind: Any) -> Any:
    at = np.arange(wanted, dtype=kind)
    if aligned:
        return at * kind((extent - 1) / (wanted - 1) if wanted > 1 else 0)
    return kind(1 / factor if factor else extent / wanted) * (at + kind(0.5)) - kind(0.5)


def _linear(extent: int, wanted: int, aligned: bool, factor: float | None, kind: Any) -> Taps:
    """A mean of two elements; PyTorch's composition adds a difference, NaN for infinities."""
    at = np.maximum(_places(extent, wanted, aligned, factor, kind), kind(0))
    first = np.minimum(at.astype(np.int64), extent - 1)
    second = first if wanted == extent else np.minimum(first + 1, extent - 1)
    share = (at - first).clip(0, 1).astype(kind)
    return np.stack([first, second], 1), np.stack([1 - share, share], 1)


def _cubic(extent: int, wanted: int, aligned: bool, factor: float | None, kind: Any) -> Taps:
    at = _places(extent, wanted, aligned, factor, kind)
    first = np.floor(at)
    shares = _upsample_get_cubic_coefficients(torch.from_numpy(at - first))
    places = first.astype(np.int64)[:, None] + np.arange(-1, 3)
    return places.clip(0, extent - 1), torch.stack(shares, 1).numpy()


def _smoothed(
    op: Any, extent: int, wanted: int, aligned: bool, factor: float | None, kind: Any
) -> Taps:
    """Shares are the operator's result for a unit matrix. Where others have more taps, the last is
    repeated, with its share divided.
    """
    unit = torch.from_numpy(np.eye(extent, dtype=kind))[None, None]
    share = op(unit, [wanted, extent], aligned, factor, None)[0, 0].numpy()
    first = (share != 0).argmax(1)[:, None]
    last = extent - 1 - (share[:, ::-1] != 0).argmax(1)[:, None]
    places = np.minimum(first + np.arange((last - first).max() + 1), last)
    alike = (places[:, :, None] == places[:, None]).sum(2)
    return places, np.take_along_axis(share, places, 1) / alike


def _resized(
    taps: Callable[..., Taps], x: Tensor, size: list[int], aligned: bool, *factors: float | None
) -> Tensor:
    """Resizing as a weighted sum of elements along each axis in turn."""
    if not x.is_floating_point():
        return NotImplemented
    kind = np.float64 if x.dtype == torch.float64 else np.float32
    given = (*factors, *[None] * len(size))
    for place in reversed(range(len(size))):
        axis = x.dim() - len(size) + place
        with _disable_current_modes():
            places, shares = taps(x.shape[axis], size[place], aligned, given[place], kind)
        along = [-1] + [1] * (x.dim() - axis - 1)
        parts = [
            x.index_select(axis, traced_constant(at))
            * traced_constant(share.astype(kind)).to(x.dtype).reshape(along)
            for at, share in zip(places.T, shares.T, strict=True)
        ]
        x = reduce(torch.add, parts)
    return x


def _by_factors(
    run: Callable[..., Any], x: Tensor, size: list[int] | None, aligned: bool, factors: Any = None
) -> Tensor:
    """The form of the same operator that takes sizes or factors."""
    given = factors or []
    size = size or [int(n * f) for n, f in zip(x.shape[2:], given, strict=True)]
    return run(x, size, aligned, *given)


def _resizing() -> dict[str, Callable[..., Any]]:
    names, aten = ("linear1d", "bilinear2d", "trilinear3d"), torch.ops.aten
    by: dict[str, Callable[..., Any]] = {"upsample_bicubic2d": partial(_resized, _cubic)}
    by |= {f"upsample_{n}": partial(_resized, _linear) for n in names}
    for name in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
        by[name] = partial(_resized, partial(_smoothed, getattr(aten, name).default))
    return by | {f"{name}.vec": partial(_by_factors, run) for name, run in by.items()}


RESIZED = _resizing()
"""Functions by the ATen operators that they stand in for."""
