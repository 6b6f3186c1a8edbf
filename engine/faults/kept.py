"""The memory that stays in this process when something is done."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from relascope.core.graph import Graph, Kind

_LOOKED_AT = 16 << 20  # bytes; what is less is not worth the time of collecting garbage


def since() -> Callable[[], int]:
    """Begin; what is returned says how many bytes have stayed since then.

    Garbage is collected first where that may matter, and what the allocator holds free is given
    back to the system.
    """
    before = _resident()

    def stayed() -> int:
        if _resident() - before > _LOOKED_AT:
            gc.collect()
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
            if trim is not None:
                trim(0)
        return _resident() - before

    return stayed


def beyond(stayed: int, before: Graph, after: Graph) -> int:
    """Bytes that stayed over a pass, without those of new constants of the program."""
    constants = [
        sum(n.bytes or 0 for n in graph if n.kind is Kind.CONSTANT) for graph in (before, after)
    ]
    return max(stayed - max(constants[1] - constants[0], 0), 0)


def _resident() -> int:
    """Bytes of memory that this process has; on macOS, the most that it had."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
