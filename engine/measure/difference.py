"""How far two tensors are apart, in parts that reuse memory, because fresh memory is slow."""

import numpy as np
import torch

from relascope.engine.protocol.accuracy import Spread

_PART = 1 << 20


def scale_of(tensor: torch.Tensor) -> float:
    """The largest finite magnitude; 0.0 if there is none."""
    if not tensor.numel():
        return 0.0
    if tensor.is_floating_point():
        least, most = (float(x) for x in tensor.aminmax())
        if abs(least) + abs(most) < float("inf"):
            return max(-least, most)
    numbers = tensor if tensor.is_floating_point() else tensor.to(torch.float64)
    return float(numbers.abs().nan_to_num(nan=0.0, posinf=0.0).max())


def deviation(
    ours: torch.Tensor, theirs: torch.Tensor, unit: float, spread: bool
) -> tuple[float, Spread]:
    """The largest |ours - theirs|, in float64, of tensors of one shape that are not empty; with
    `spread`, which takes longest, the rest, too. Relative errors are relative to `unit`. NaN is
    infinitely far from all but NaN; infinities of one sign are equal."""
    ours, theirs = ours.to(theirs.device).reshape(-1), theirs.reshape(-1)
    worst, total, nans, infinities = 0.0, 0.0, 0, 0
    found = np.empty(theirs.numel() if spread else 0)
    for start in range(0, theirs.numel(), _PART):
        a, b = (t[start : start + _PART] for t in (ours, theirs))
        part = _apart(a, b)
        largest = float(part.max())
        worst = max(worst, largest)
        if not spread:
            continue
        total += float(part.sum())
        found[start : start + _PART] = part.detach().cpu()
        if not largest < _FAR:
            nans += int((a.isnan() & ~b.isnan()).sum())
            infinities += int((a.isinf() & ~b.isinf()).sum())
    if not spread:
        return worst, Spread()
    middle = (len(found) - 1) // 2
    found.partition(middle)
    mean, median = total / len(found), float(found[middle])
    return worst, Spread(mean, mean / unit, median, median / unit, nans, infinities)


_FAR = 1e300
"""Differences between finite float32 numbers are smaller; others may come from a NaN."""


def _apart(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    a, b = ours.to(torch.float64), theirs.to(torch.float64)
    difference = (a - b).abs_()
    if not (ours.is_floating_point() or theirs.is_floating_point()):
        return difference.maximum((ours != theirs).to(torch.float64))  # beyond 2**53 float64 rounds
    if not float(difference.max()) < float("inf"):
        difference = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, difference)
        difference = difference.nan_to_num(nan=float("inf"))
    return difference
