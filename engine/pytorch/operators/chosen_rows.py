"""Rows that a mask selects, equally many per part of a tensor: `x[mask].view(parts, -1, n)[:, -1]`.

Their number depends on values, but the shape of what is read of them in the end does not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from relascope.engine.pytorch.flat_trace import TraceOrigin


@dataclass(frozen=True)
class ChosenRows:
    """The rows of a tensor that a mask over its first axes selects, before their number is known.
    `parts` is the length of a first axis that splits the rows evenly, else 0."""

    tensor: Any
    mask: Any
    origin: TraceOrigin
    parts: int = 0

    def then(self, name: str, given: list[Any]) -> "ChosenRows | Callable[..., Tensor] | None":
        """What an operator, such as "view.default", makes of them with further arguments: chosen
        rows, a function of tensor and mask, or None."""
        axes = self.mask.meta["val"].dim()
        row = [*self.tensor.meta["val"].shape[axes:]]
        if name in ("view.default", "reshape.default") and not self.parts:
            first, *rest = given[0]
            return replace(self, parts=first) if first > 0 and rest == [-1, *row] else None
        if name == "slice.Tensor":
            begin, end, step = (*given[1:], *[None] * 3)[:3]
            whole = not begin and (end is None or end >= 2**62) and step in (None, 1)
            return self if whole else None
        if name == "select.int" and self.parts and given[0] == 1:
            return partial(_of_each, self.parts, given[1])
        return None


def chosen_rows(name: str, given: list[Any], origin: TraceOrigin) -> ChosenRows | None:
    """The rows that an index by a mask takes; None for another operator."""
    if name != "index.Tensor" or len(given[1]) != 1:
        return None
    mask = given[1][0]
    if not isinstance(mask, torch.fx.Node) or mask.meta["val"].dtype != torch.bool:
        return None
    return ChosenRows(given[0], mask, origin)


def _of_each(parts: int, place: int, x: Tensor, mask: Tensor) -> Tensor:
    """The row at a place in each part, counted from the end if negative."""
    flat = mask.flatten()
    count = torch.div(flat.sum(), parts, rounding_mode="floor")
    wanted = torch.arange(parts) * count + (place + 1 if place >= 0 else count + place + 1)
    found = (flat.to(torch.int64).cumsum(0) == wanted.unsqueeze(1)) & flat
    row = x.shape[mask.dim() :]
    rows = x.reshape(flat.shape[0], math.prod(row))
    made = rows.index_select(0, found.to(torch.int64).argmax(1))
    return made.reshape(parts, *row)
