"""Temporary folders; the next process removes those of a killed one."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

_PREFIX, _HELD = "relascope-", ".held"
_OLD = 3600.0
"""Seconds after which an empty folder is unused: a new one is empty until it is locked."""


class Scratch(tempfile.TemporaryDirectory[str]):
    """A new folder among the system's temporary files, removed with this object or its process."""

    def __init__(self) -> None:
        sweep()
        super().__init__(prefix=_PREFIX, ignore_cleanup_errors=True)
        path = os.path.join(self.name, _HELD)
        self._file = open(path + "-new", "wb")  # noqa: SIM115
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.rename(path + "-new", path)  # locked before others see it


@cache
def sweep() -> None:
    """Remove the folders of processes that are gone; once in each process."""
    for held in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_HELD}"):
        with contextlib.suppress(OSError), held.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(held.parent, ignore_errors=True)
    # An engine whose app is gone empties its folder, but may not write to the one around it.
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/"):
        with contextlib.suppress(OSError):  # it is not empty, or somebody else's
            if time.time() - folder.stat().st_mtime > _OLD:
                folder.rmdir()
