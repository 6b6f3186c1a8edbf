"""Limits of the time and memory for opening a file; every failure is one sentence."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError, reporting
from relascope.engine import sandbox
from relascope.engine.files.archive import MIB, plainly
from relascope.engine.limits import limited
from relascope.engine.protocol.source import weights_beside

SECONDS, MEMORY = "RELASCOPE_OPEN_SECONDS", "RELASCOPE_OPEN_MEMORY"
"""Environment variables: seconds, and MiB beyond what the process has, that opening may take."""


@contextmanager
def opening(path: Path, *about: object, size: int | None = None) -> Iterator[None]:
    """Read and first run a file within limits; any other exception becomes an EngineError of kind
    "file". The limits are 7 s and 1 GiB, and more for a larger file, or a larger `size` in bytes of
    what is not a file; `about` tells this opening from others. `engine.supervisor` watches both
    from outside. Inside, RLIMIT_DATA makes an allocation beyond the limit fail at once (RLIMIT_AS
    would also count what threads and libraries reserve)."""
    sandbox.require(path.name)
    has = _bytes(path) if size is None else size
    seconds = float(os.environ.get(SECONDS) or max(7, 5 + has / (20 * MIB)))
    memory = int(float(os.environ.get(MEMORY) or 0) * MIB) or 1024 * MIB + 6 * has
    what = f"Opening {path.name}"
    most: dict[str, Any] = {"seconds": seconds, "memory": memory, "final": True}
    watched = limited(what, path.name, "file", *about, **most)
    with watched, _soft(memory, seconds):
        cannot = f"{path.name} cannot be opened: "
        hint = f"The limits are {seconds:.0f} s ({SECONDS}) and {memory // MIB:,} MiB ({MEMORY})."
        with reporting(lambda e: EngineError("file", f"{cannot}{plainly(e)}.", path.name, hint)):
            yield


def _bytes(path: Path) -> int:
    stamp = path.stat().st_mtime_ns if path.exists() else 0
    files = (path, *map(Path, weights_beside(str(path), stamp)))
    return sum(one.stat().st_size for one in files if one.is_file())


@contextmanager
def _soft(memory: int, seconds: float) -> Iterator[None]:
    """Limit this process for a while, by soft limits, which can be lifted again."""
    used = sum(os.times()[:2])
    cores = os.cpu_count() or 1
    wanted = {
        # Ends it if nobody watches the clock.
        resource.RLIMIT_CPU: int(used + 3 * cores * seconds) + 1,
        resource.RLIMIT_FSIZE: 64 * MIB,
    }
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        data = int(status.partition("VmData:")[2].split()[0]) * 1024
        wanted[resource.RLIMIT_DATA] = data + memory + cores * 8 * MIB
    before = {kind: resource.getrlimit(kind) for kind in wanted}
    for kind, most in wanted.items():
        now, hard = before[kind]
        bounds = [b for b in (most, now, hard) if b != resource.RLIM_INFINITY]
        resource.setrlimit(kind, (min(bounds), hard))
    try:
        yield
    finally:
        for kind, both in before.items():
            resource.setrlimit(kind, both)
