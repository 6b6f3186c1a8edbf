"""How far two tensors are apart, in parts that reuse memory, as fresh memory is slow."""

import torch

from relascope.engine.protocol.accuracy import Spread

_PART = 1 << 20
_SAMPLE = 1 << 14
_WIDTH = 4
"""Half of the bracket around the median, in standard deviations of a sample's median, about."""


def scale_of(tensor: torch.Tensor) -> float:
    """The largest finite magnitude; 0.0 where there is none."""
    if not tensor.numel():
        return 0.0
    if tensor.is_floating_point():
        least, most = (float(x) for x in tensor.aminmax())
        if abs(least) + abs(most) < float("inf"):
            return max(-least, most)
    numbers = tensor if tensor.is_floating_point() else tensor.to(torch.float64)
    return float(numbers.abs().nan_to_num(nan=0.0, posinf=0.0).max())


class Deviation:
    """|ours - theirs| in float64, element by element, for tensors of one shape with an element.

    NaN is infinitely far except from NaN; infinities of one sign are equal.
    """

    def __init__(self, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        self._ours, self._theirs = ours.to(theirs.device).reshape(-1), theirs.reshape(-1)
        self.count = theirs.numel()

    def worst(self) -> float:
        return max(float(self._part(start).max()) for start in self._starts)

    def spread(self, unit: float) -> tuple[float, Spread]:
        """The largest; then the rest. `unit`: what relative errors are relative to."""
        worst, total, nans, infinities = 0.0, 0.0, 0, 0
        rank = _Rank((self.count - 1) // 2, *self._bracket())
        for start in self._starts:
            part = self._part(start)
            largest = float(part.max())
            worst, total = max(worst, largest), total + float(part.sum())
            rank.add(part)
            if not largest < _FAR:
                a, b = self._both(start)
                nans += int((a.isnan() & ~b.isnan()).sum())
                infinities += int((a.isinf() & ~b.isinf()).sum())
        mean, median = total / self.count, rank.found()
        if median is None:
            median = float(torch.cat([self._part(start) for start in self._starts]).median())
        return worst, Spread(mean, mean / unit, median, median / unit, nans, infinities)

    @property
    def _starts(self) -> range:
        return range(0, self.count, _PART)

    def _both(self, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._ours[start : start + _PART], self._theirs[start : start + _PART]

    def _part(self, start: int) -> torch.Tensor:
        return _apart(*self._both(start))

    def _bracket(self) -> tuple[float, float]:
        """Two values that the median is between, almost surely: from every n-th element."""
        step = self.count // _SAMPLE | 1
        found = _apart(self._ours[::step], self._theirs[::step]).sort().values
        middle, width = found.numel() // 2, int(_WIDTH * found.numel() ** 0.5)
        last = found.numel() - 1
        return float(found[max(middle - width, 0)]), float(found[min(middle + width, last)])


class _Rank:
    """The value with `rank` smaller ones, over parts that come one after the other; keeps only what
    is between `lower` and `upper`."""

    def __init__(self, rank: int, lower: float, upper: float) -> None:
        self._rank, self._lower, self._upper = rank, lower, upper
        self._below, self._lowest = 0, 0
        self._kept: list[torch.Tensor] = []

    def add(self, part: torch.Tensor) -> None:
        """Count what is below `lower`, and what is equal to it, and keep what is above."""
        self._below += int(torch.count_nonzero(part < self._lower))
        self._lowest += int(torch.count_nonzero(part == self._lower))
        if self._lower < self._upper:
            self._kept.append(part[(part > self._lower) & (part <= self._upper)])

    def found(self) -> float | None:
        rank = self._rank - self._below
        if 0 <= rank < self._lowest:
            return self._lower
        near, rank = torch.cat(self._kept or [torch.empty(0)]), rank - self._lowest
        return float(near.kthvalue(rank + 1).values) if 0 <= rank < near.numel() else None


_FAR = 1e300
"""A difference between finite float32 numbers is less; what is not may be of a NaN."""


def _apart(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    a, b = ours.to(torch.float64), theirs.to(torch.float64)
    difference = (a - b).abs_()
    if not (ours.is_floating_point() or theirs.is_floating_point()):
        return difference.maximum((ours != theirs).to(torch.float64))  # beyond 2**53 float64 rounds
    if not float(difference.max()) < float("inf"):
        difference = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, difference)
        difference = difference.nan_to_num(nan=float("inf"))
    return difference
