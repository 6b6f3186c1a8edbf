"""Whose turn it is on this machine: engines work side by side, and what is timed runs alone.

Engines of one user take turns by locks on a file that the app opens and hands to each. A lock goes
with its process, however that ends. Whoever waits to run alone stops what would begin after it.
"""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

SETTING = "RELASCOPE_ALONE"
"""Environment variable: "0" to time while other engines work."""

_GATE, _ROOM = range(2)  # bytes of the file


@dataclass
class Turns:
    """This process's turns; a script takes none, and has no file with locks (-1). `tell` is called
    with what it waits for, then with ""."""

    file: int = -1
    tell: Callable[[str], None] = lambda text: None
    alone: bool = False

    def take(self, byte: int, kind: int, why: str) -> None:
        """Lock a byte of the file, however long that takes."""
        try:
            fcntl.lockf(self.file, kind | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            self.tell(why)
            fcntl.lockf(self.file, kind, 1, byte)
            self.tell("")

    def enter(self, kind: int, why: str) -> None:
        """Enter after all who came earlier."""
        self.take(_GATE, fcntl.LOCK_EX, why)
        self.take(_ROOM, kind, why)
        fcntl.lockf(self.file, fcntl.LOCK_UN, 1, _GATE)


TURNS = Turns()


@contextmanager
def beside() -> Iterator[None]:
    """Work while no engine runs alone; wait for one that does."""
    if TURNS.file < 0:
        yield
        return
    TURNS.enter(fcntl.LOCK_SH, "waiting: another engine is timing, alone on this machine")
    try:
        yield
    finally:
        fcntl.lockf(TURNS.file, fcntl.LOCK_UN, 1, _ROOM)


@contextmanager
def alone() -> Iterator[None]:
    """Within `beside`, work while no other engine does."""
    if TURNS.file < 0 or TURNS.alone:
        yield
        return
    fcntl.lockf(TURNS.file, fcntl.LOCK_UN, 1, _ROOM)  # else two could wait for each other
    TURNS.enter(fcntl.LOCK_EX, "waiting until other engines are done: timing runs alone")
    TURNS.alone = True
    try:
        yield
    finally:
        TURNS.alone = False
        fcntl.lockf(TURNS.file, fcntl.LOCK_SH, 1, _ROOM)


@cache
def shared_file() -> int:
    """A descriptor of this user's file, for an engine's process; -1 where timing is not alone."""
    if os.environ.get(SETTING) == "0":
        return -1
    path = os.path.join(tempfile.gettempdir(), f"relascope-{os.getuid()}.turns")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o600)
        if os.fstat(file).st_uid == os.getuid():
            return file
        os.close(file)
    except OSError:  # nothing can be written there
        pass
    # Turns among our own engines.
    return os.memfd_create("turns") if hasattr(os, "memfd_create") else -1
