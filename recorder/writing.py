"""The file of a recording: a line of JSON for each event, written at once.

Lines written before a crash or a kill can be read; an incomplete last line is left out. The content
of a function is written once, named by its hash, and a module as the difference from an earlier
one:

    {"relascope_recording": 1, "tvm": …, "level": …}    first: of the whole
    {"text": HASH, "constants": [[DTYPE, SHAPE, DIGEST]], "zlib": …}
                                                         content, before the event that names it
    {"graph": HASH, "zlib": …} or {"graph": HASH, "why": …}
                                                         its graph, or why there is none
    {"context": K, "opt_level": …, "required": […], "disabled": […], "config": {…}}
    {"begin": N, "kind": …, "depth": …, "name": …, "opt_level": …, "required": […], "context": K,
     "thread": …, "at": …, "module": [OF, {NAME: HASH}, [GONE]]}
    {"end": N, "seconds": …, "module": M, "code": [[LANGUAGE, HASH]]}
    {"failed": N, "seconds": …, "message": …}
    {"stopped": …}                                       why nothing follows; the compile went on
    {"json": M, "zlib": …}                               TVM's JSON of a module, without its blobs
    {"blob": HASH, "zlib": …}                            a long text in such JSON: a constant
    {"blob": "page", "relascope_page": …, "digest": …, "blocks": …}
                                                         all that a page shows of it

Modules are numbered in order; "module" is the number of an earlier one, or a new one: the number of
the one that it resembles (None: of none), functions that are new or changed, and removed ones."""

import base64
import hashlib
import json
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSION = 1

LEVELS = ("names", "text", "graphs", "modules")
"""What to keep of each pass. "names": its name, time and parameters. "text": also the text of every
function, the sizes of constants, and generated code. "graphs": also the graph of every Relay or
Relax function. "modules": also TVM's own JSON of every module, with the values of constants."""


class Writer:
    """Writes one recording. Raises OSError where it cannot be written. `path` is the file, which is
    overwritten; `about` describes the whole: versions, arguments, level. With `claim`, it creates
    the file only when there is something to write, and does not overwrite one that another process
    has begun meanwhile: see `sibling`."""

    def __init__(self, path: Path, about: dict[str, Any], claim: bool = False) -> None:
        self.path, self._about = path, about
        self._file: int | None = None
        self._lock, self._known = threading.Lock(), set[tuple[str, str]]()
        if not claim:
            self._open(path, os.O_TRUNC)

    def line(self, fields: dict[str, Any]) -> None:
        """Write an event."""
        with self._lock:
            if self._file is None:
                try:
                    self._open(self.path, os.O_EXCL)
                except FileExistsError:
                    self._open(sibling(self.path, os.getpid()), os.O_TRUNC)
            self._write(fields)

    def content(self, kind: str, name: str, about: Callable[[], dict[str, Any]]) -> None:
        """Write a content named by its hash, unless it is there, its field "zlib" compressed."""
        if (kind, name) not in self._known:
            self._known.add((kind, name))
            fields = {kind: name, **about()}
            if "zlib" in fields:
                data = zlib.compress(fields["zlib"].encode("utf-8", "replace"), 1)
                fields["zlib"] = base64.b64encode(data).decode()
            self.line(fields)

    def forked(self) -> None:
        """Start a new file in a copy of the process; the process goes on with the old one."""
        self._lock, self._known = threading.Lock(), set()
        if self._file is not None:
            os.close(self._file)
        self._file = None
        self._about = {**self._about, "process": os.getpid(), "parent": os.getppid()}

    def close(self) -> None:
        """Write nothing after this."""
        if self._file is not None:
            os.close(self._file)

    def _open(self, path: Path, flags: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | flags, 0o644)
        self._write({"relascope_recording": VERSION, **self._about})

    def _write(self, fields: dict[str, Any]) -> None:
        assert self._file is not None
        data = (json.dumps(fields, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        while data:
            data = data[os.write(self._file, data) :]


def sibling(path: Path, process: int | str) -> Path:
    """The file of another process of the same program."""
    return path.with_name(f"{path.stem}.{process}{path.suffix}")


def hashed(*parts: str) -> str:
    """The name of a content."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=10).hexdigest()
