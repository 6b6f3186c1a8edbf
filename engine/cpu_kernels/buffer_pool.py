"""Memory that is written to again and again.

Memory that is fresh from the system costs more than many a kernel: it gives every page when it is
first written to, and an allocator gives large pieces back to it. So the memory of a large tensor
is kept here, and used again once nobody has that tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence

import numpy as np
import torch

_LARGE = 1 << 17  # bytes, from which an allocator takes pages from the system
_OWNER = {0: np.empty(0)}
_UNUSED = sys.getrefcount(_OWNER[0])  # of what only a dictionary has


class Room:
    """Memory of large tensors on the CPU, by what they are called."""

    def __init__(self) -> None:
        self._arrays: dict[Hashable, np.ndarray] = {}

    @property
    def nbytes(self) -> int:
        """What is kept."""
        return sum(a.nbytes for a in self._arrays.values())

    def again(self, key: Hashable) -> torch.Tensor | None:
        """The tensor that `fresh` gave last under this name; None if somebody has it still."""
        if key in self._arrays and sys.getrefcount(self._arrays[key]) == _UNUSED:
            return torch.from_numpy(self._arrays[key])
        return None

    def fresh(
        self, key: Hashable, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """A tensor, of no values yet; a large one on the CPU is kept in place of the last."""
        made = torch.empty(tuple(shape), dtype=dtype, device=device)
        known = hasattr(np, str(dtype).removeprefix("torch."))
        if device.type == "cpu" and known and made.nbytes >= _LARGE:
            self._arrays[key] = made.numpy()
            made = torch.from_numpy(self._arrays[key])
        return made
