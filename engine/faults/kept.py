"""The memory that stays in this process after something has run."""

import ctypes
import gc
import os
from collections.abc import Callable

from relascope.core.graph import Graph, Kind
from relascope.engine.faults.show import resident

_LOOKED_AT = 16 << 20  # bytes; less is not worth the time of collecting garbage


def since() -> Callable[[], int]:
    """Begin to measure. The result, when called, returns how many bytes have stayed since.

    Garbage is collected first where it may matter, and the allocator returns free memory.
    """
    before = resident(os.getpid())

    def stayed() -> int:
        if resident(os.getpid()) - before > _LOOKED_AT:
            gc.collect()
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
            if trim is not None:
                trim(0)
        return resident(os.getpid()) - before

    return stayed


def beyond(stayed: int, before: Graph, after: Graph) -> int:
    """Bytes that stayed over a pass, without those of new constants of the program."""
    was, now = (sum(n.bytes or 0 for n in g if n.kind is Kind.CONSTANT) for g in (before, after))
    return max(stayed - max(now - was, 0), 0)
