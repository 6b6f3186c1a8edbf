"""Options of glibc's heap; other C libraries keep theirs as it is."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NUMBERS = dict(trim_threshold=-1, top_pad=-2, mmap_threshold=-3, mmap_max=-4, arena_max=-8)


def set_options(**options: int) -> None:
    """Set options of this process's heap, by their names in <malloc.h>."""
    for name, value in options.items():
        _call("mallopt", _NUMBERS[name], value)


@contextmanager
def kept() -> Iterator[None]:
    """Keep freed memory meanwhile, and give it back at the end. Whether a heap gives a tensor's
    pages to the system, which then provides them anew one by one, depends on what was freed before:
    a step of PyTorch's may take twice as long."""
    set_options(mmap_max=0, trim_threshold=2**31 - 1, top_pad=1 << 26)
    try:
        yield
    finally:  # the most that a heap comes to by itself
        set_options(mmap_max=1 << 16, mmap_threshold=1 << 25, trim_threshold=1 << 26, top_pad=0)
        _call("malloc_trim", 0)


def _call(function: str, *values: int) -> None:
    with suppress(AttributeError, OSError, TypeError):
        getattr(ctypes.CDLL(None), function)(*values)
