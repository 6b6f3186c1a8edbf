"""Sampling images at places that a grid names, composed of what every frontend knows."""

from itertools import product
from typing import Any

import torch
from torch import Tensor


def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, aligned: bool) -> Tensor:
    """An image's elements at places between them, with PyTorch's values and gradients.

    What lies outside is 0, or is at the border, or is mirrored. A place that is no number has the
    values and gradients that PyTorch's kernels for the CPU give it.

    Args:
        x: of shape (batch, channels, *size), with two or three axes of size.
        grid: of shape (batch, *places, axes), from -1 to 1, the last axis of x first.
        mode: 0 between the nearest elements along each axis, 1 the nearest; no others.
        padding: 0 zeros, 1 the border, 2 mirrored; the latter two for mode 0 in images only.
        aligned: -1 and 1 are the middles of the outermost elements, not their edges.
    """
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
    # What is no number is at 0, as PyTorch documents it. At the border itself no gradient flows.
    within = (at > 0) & (at < size - 1)
    beyond = torch.where(at.isnan(), 0.0, at).detach().clamp(0, size - 1)
    free = torch.where(at.isinf() | at.isnan(), 0.0, at) * within.to(at.dtype)  # may be 0 by NaN
    return free + torch.where(within, 0.0, beyond)


def _elements(x: Tensor, places: list[Tensor]) -> Tensor:
    """Of the image, at whole places of which the last axis' come first; 0 outside."""
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
