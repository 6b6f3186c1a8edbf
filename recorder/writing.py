"""The file of a recording: a line of JSON for each event, written at once.

What was written before a crash or a kill can be read; a last line that is cut short is left out.
What functions hold is written once, named by its hash, and of a module only in what it differs from
one before:

    {"relascope_recording": 1, "tvm": …, "level": …}    first: of the whole
    {"text": HASH, "zlib": …}                            content, before the event that names it
    {"begin": N, "depth": …, "name": …, "opt_level": …, "module": [OF, {NAME: HASH}, [GONE]]}
    {"end": N, "seconds": …, "module": M}
    {"failed": N, "seconds": …, "message": …}

Modules are numbered as they come; "module" is the number of one before, or a new one: the number
of that which it is like (None: of none), functions that are new or other, and those that are gone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import zlib
from pathlib import Path
from typing import Any

VERSION = 1

LEVELS = ("names", "text")
"""What is kept of each pass: its name and time; the text of every function as well."""


class Writer:
    """Writes one recording.

    Args:
        path: of the file, which is begun anew.
        about: of the whole: versions, arguments, level.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._file = os.open(path, flags, 0o644)
        self._lock, self._known = threading.Lock(), set[str]()
        self.line({"relascope_recording": VERSION, **about})

    def line(self, fields: dict[str, Any]) -> None:
        """Write an event."""
        data = (json.dumps(fields, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        with self._lock:
            while data:
                data = data[os.write(self._file, data) :]

    def text(self, text: str) -> str:
        """Write a text, unless it is there, and name it."""
        data = text.encode("utf-8", "replace")
        name = hashlib.blake2b(data, digest_size=10).hexdigest()
        if name not in self._known:
            self._known.add(name)
            self.line({"text": name, "zlib": base64.b64encode(zlib.compress(data, 1)).decode()})
        return name

    def close(self) -> None:
        """Nothing is written after this."""
        os.close(self._file)
