"""Memory of large tensors, which is reused once nobody holds the tensor or a view of it.

Fresh memory is slow: the system provides each page when it is first written to.
"""

import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
import torch

LARGE = 1 << 17  # bytes, from which an allocator takes pages from the system
_FREED = 1 << 28
"""Bytes freed by backwards from which idle memory goes back to the system."""


class BufferPool:
    """Keeps memory for the next tensor of the same shape and dtype. Threads may share it: a deque
    takes and gives an item at once. Tensors of fewer than `least` bytes are PyTorch's."""

    def __init__(self, least: float = LARGE) -> None:
        self._least = least
        self._idle: defaultdict[object, deque[np.ndarray]] = defaultdict(deque)
        self._made: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        """Bytes of its memory, idle or not."""
        return sum(a.nbytes for a in self._made.values())

    def take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """An uninitialised tensor, from the pool if it is large and on the CPU."""
        key, array = (tuple(shape), dtype), None
        if device.type == "cpu" and self._idle.get(key):
            with suppress(IndexError):  # another thread has taken it
                array = self._idle[key].pop()
        if array is None:
            made = torch.empty(key[0], dtype=dtype, device=device)
            small = made.nbytes < self._least or not hasattr(np, str(dtype).removeprefix("torch."))
            if device.type != "cpu" or small:
                return made
            array = self._made[made.data_ptr()] = made.numpy()
        view = array.view()  # every tensor on this memory keeps it alive
        weakref.finalize(view, self._idle[key].append, array).atexit = False
        return torch.from_numpy(view)

    def release(self) -> None:
        """Free what is idle."""
        for arrays in [*self._idle.values()]:
            arrays.clear()


class SavedBytes:
    """Bytes that a forward has saved for its backward, until nobody has this object."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class SharedMemory:
    """The pools of all modules that a process has dispatched. What a backward frees serves the next
    step, unless it is much."""

    def __init__(self) -> None:
        self.pool = BufferPool()
        self._releases: list[Callable[[], object]] = [self.pool.release]
        self._held = weakref.WeakSet[SavedBytes]()
        self._most, self._enough = 0, _FREED  # the rest of a step goes after much of it went

    def provide(self, release: Callable[[], object]) -> None:
        """Provide a function that frees what is idle in an engine's own pool."""
        self._releases.append(release)

    def hold(self, nbytes: int) -> SavedBytes:
        held = SavedBytes(nbytes)
        self._held.add(held)
        self._most = max(self._most, sum(h.nbytes for h in self._held))
        return held

    def settle(self, saved: SavedBytes) -> None:
        """A backward has freed what was held for it."""
        self._held.discard(saved)
        left = sum(h.nbytes for h in self._held)
        if self._most - left >= (_FREED if left else self._enough):
            self._most, self._enough = left, 1 if left else _FREED
            self.release()

    def release(self) -> None:
        for release in self._releases:
            release()


SHARED = SharedMemory()
