"""Remembering the last few results, and forgetting the oldest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """The last `size` values by key, least recently used dropped first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value for a key; made, and remembered, where it is not known."""
        if key not in self._values:
            self.put(key, make())
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: Hashable, value: T) -> None:
        """Remember a value, in place of another."""
        self._values[key] = value
        while len(self._values) > self._size:
            self._values.popitem(last=False)
