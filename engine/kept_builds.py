"""TVM's builds, kept on disk as shared objects, so that the next process need not build again.

They are code. Engines only read them, each from the folder (its shelf) for the strangers' files
that it has opened. The app's process writes what engines hand over, so a reader that a file takes
over can harm only that file's builds. No TVM in here.
"""

import contextlib
import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from relascope.core.place import cache_folder
from relascope.engine.protocol.source import EVERYTHING, ModelSource

VARIABLE = "RELASCOPE_BUILDS"
"""Environment variable: the folder of builds, or "off" to keep none."""

LARGEST = 256 << 20
"""The most bytes of a build, or of a program's text, that are kept."""

_MOST = 1 << 30  # bytes of all builds; beyond it, the least recently used are removed
_SUM = hashlib.sha256().digest_size


def root() -> Path | None:
    """The folder, created if missing; None if no builds are kept, or others could write there."""
    named = os.environ.get(VARIABLE, "")
    if named == "off" or sys.platform != "linux":
        return None
    with contextlib.suppress(OSError, RuntimeError):  # a full or read-only disk, or no home
        folder = Path(named).absolute() if named else cache_folder() / "builds"
        folder.mkdir(0o700, parents=True, exist_ok=True)
        about = folder.lstat()
        others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not others:
            return folder
    return None


def strangers(source: ModelSource) -> frozenset[str]:
    """Digests of the strangers' files that a source opens, with "" for those without one."""
    files = {path: digest for path, digest in source.tensors}
    if source.digest:
        files[source.model] = source.digest
    others = source.files - {EVERYTHING, *files} or source.model.startswith("hf:")
    return frozenset([*files.values(), *([""] if others else [])])


def shelf(opened: Iterable[str]) -> str:
    """The name of the folder for builds of an engine that has opened strangers' files with these
    digests; "" where it keeps none."""
    digests = sorted(opened)
    return "" if "" in digests else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def keep(name: str, key: object, data: object) -> None:
    """Keep a build that an engine hands over; without data, note that it was used. `name` is the
    engine's shelf."""
    place = root()
    if not (isinstance(key, str) and re.fullmatch("[0-9a-f]{64}", key) and isinstance(data, bytes)):
        return
    if place is None or not name or len(data) > LARGEST:
        return
    with contextlib.suppress(OSError):  # it is built anew next time
        path = place / name / f"{key}.so"
        if not data:
            os.utime(path)
            return
        path.parent.mkdir(0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data + hashlib.sha256(data).digest())
        os.replace(file.name, path)
        _clear(place)


def _clear(place: Path) -> None:
    """Remove the least recently used builds until the rest fit."""
    found = [(p, p.stat()) for p in place.glob("*/*")]
    over = sum(about.st_size for _, about in found) - _MOST
    for path, about in sorted(found, key=lambda one: one[1].st_mtime):
        if over <= 0:
            break
        path.unlink(missing_ok=True)
        over -= about.st_size


@dataclass
class Shelf:
    """This process's shelf; a script keeps nothing. `name` is its folder, "" to keep nothing;
    `hand` is called with a key and a build's bytes, or none as for `keep`; `taken` counts the
    builds that were found."""

    name: str = ""
    hand: Callable[[str, bytes], None] = lambda key, data: None
    taken: int = 0

    def find(self, key: str) -> Path | None:
        """A build's file, if it is there and whole."""
        place = root()
        if place is None or not self.name:
            return None
        path = place / self.name / f"{key}.so"
        try:
            data = path.read_bytes()
        except OSError:
            return None
        return path if hashlib.sha256(data[:-_SUM]).digest() == data[-_SUM:] else None


SHELF = Shelf()
"""This process's."""
