"""Remembering the last few results, and forgetting the oldest."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Memo(Generic[T]):
    """The last `size` values by key, least recently used dropped first; `size` may be changed.
    Threads may share one: if two miss a key at once, both make its value, and one is kept."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value for a key; if unknown, it is made and remembered."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        self.put(key, value)
        return value

    def __contains__(self, key: Hashable) -> bool:
        """Whether there is a value for a key; does not count as a use."""
        with self._lock:
            return key in self._values

    def put(self, key: Hashable, value: T) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self.size:
                self._values.popitem(last=False)
