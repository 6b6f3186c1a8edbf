"""Memory of large tensors, which is reused once nobody holds the tensor or a view of it.

Fresh memory is slow: the system provides each page when it is first written to.
"""

import threading
import weakref
from collections.abc import Hashable, Sequence

import numpy as np
import torch

_LARGE = 1 << 17  # bytes, from which an allocator takes pages from the system


class BufferPool:
    def __init__(self) -> None:
        self._arrays: dict[Hashable, np.ndarray] = {}
        self._lent: dict[Hashable, weakref.ref[np.ndarray]] = {}
        self._turn = threading.Lock()  # else two threads' calls may get the same memory

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._arrays.values())

    def again(self, key: Hashable) -> torch.Tensor | None:
        """The tensor that `fresh` gave last under this name; None if it is still in use."""
        with self._turn:
            return self._lend(key) if key in self._lent and self._lent[key]() is None else None

    def fresh(
        self, key: Hashable, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """An uninitialised tensor; a large one on the CPU replaces the last one in the pool."""
        made = torch.empty(tuple(shape), dtype=dtype, device=device)
        small = made.nbytes < _LARGE or not hasattr(np, str(dtype).removeprefix("torch."))
        if device.type != "cpu" or small:
            return made
        with self._turn:
            self._arrays[key] = made.numpy()
            return self._lend(key)

    def _lend(self, key: Hashable) -> torch.Tensor:
        view = self._arrays[key].view()  # every tensor on this memory keeps it alive
        self._lent[key] = weakref.ref(view)
        return torch.from_numpy(view)
