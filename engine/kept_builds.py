"""What TVM built, kept on disk as shared objects, so that the next process need not build it.

They are code. Engines only read, each from the folder (its shelf) of the strangers' files that it
has opened; the app's process writes what they hand over, so a file's reader that is taken over can
harm builds of that file alone. No TVM in here.
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
"""Bytes of a build, and of a program's text, that are kept at most."""

_MOST = 1 << 30  # bytes of all builds; those used longest ago go
_SUM = hashlib.sha256().digest_size


def root() -> Path | None:
    """The folder, made if need be; None if none are kept, or where others could write to it."""
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
    """Digests of the strangers' files that a source opens, "" for any that has none."""
    files = {path: digest for path, digest in source.tensors}
    if source.digest:
        files[source.model] = source.digest
    others = source.files - {EVERYTHING, *files} or source.model.startswith("hf:")
    return frozenset([*files.values(), *([""] if others else [])])


def shelf(opened: Iterable[str]) -> str:
    """The name of the folder for what an engine builds that has opened strangers' files, by their
    digests; "" where it keeps nothing."""
    digests = sorted(opened)
    return "" if "" in digests else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def keep(name: str, key: object, data: object) -> None:
    """Keep a build that an engine hands over; without data, note that it was used. `name` is of the
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
    """Remove builds used longest ago, as far as all take more than they may."""
    found = [(p, p.stat()) for p in place.glob("*/*")]
    over = sum(about.st_size for _, about in found) - _MOST
    for path, about in sorted(found, key=lambda one: one[1].st_mtime):
        if over <= 0:
            break
        path.unlink(missing_ok=True)
        over -= about.st_size


@dataclass
class Shelf:
    """This process's part; a script keeps nothing. `name` is of its folder, "" keeps nothing;
    `hand` is called with a key, and a build's bytes or none, as of `keep`; `taken` counts the
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
