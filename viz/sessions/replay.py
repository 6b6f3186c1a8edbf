"""A session as one file: a ZIP archive of `session.json`, the model's file, if any, saved inputs,
and `page.json`, the data of a page for the viewer, if any.

Reading is bounded, and nothing is unpickled, or unpacked under a name from the archive.
"""

import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from relascope.core.errors import EngineError, refusing
from relascope.engine.protocol.source import file_digest
from relascope.viz.sessions.state import Session, from_text

_SESSION, _MODEL = "session.json", "model"
_LIMITS = {_SESSION: 32 << 20, _MODEL: 1 << 30}
_TENSORS, _PAGE = "tensors/", "page.json"
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError),
    *(RuntimeError, ValueError, LookupError, ArithmeticError, MemoryError),
)
"""The exceptions of zipfile for archives, and of invalid file names."""


def write(
    file: str | Path | IO[bytes],
    session: Session,
    model: str | Path | None,
    tensors: Iterable[str | Path] = (),
    page: Mapping[str, Any] | None = None,
) -> None:
    """Write a session's file with its model's (None: a sample), saved inputs, and page's data."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_SESSION, session.text())
        if model is not None:
            archive.write(model, _MODEL)
        for digest, one in zip(session.model.tensors, tensors, strict=True):
            archive.write(one, f"{_TENSORS}{digest}")
        if page is not None:  # not deflated again, so that the viewer can read it
            archive.writestr(_PAGE, json.dumps(page), zipfile.ZIP_STORED)


def read(file: str | Path | IO[bytes], folder: Path) -> tuple[Session, str]:
    """The session of a file, and the path of its model's file, unpacked into `folder`; "" if the
    model is a sample or its file is not in the archive. Raises EngineError of kind "session" if it
    is not such a file, is too large, or has another model."""
    named = "" if not isinstance(file, str | Path) else str(file)
    about = "session", "This is not a replay file of relascope: {:.200}.", named
    with refusing(*about, "Export the session again.", *_BROKEN), zipfile.ZipFile(file) as archive:
        members = {entry.filename: entry for entry in archive.infolist()}
        known = *_LIMITS, _PAGE
        others = [n for n in members if n not in known and not n.startswith(_TENSORS)]
        if _SESSION not in members or others:
            raise ValueError(f"it holds {', '.join(sorted(members))[:80] or 'nothing'}")
        with archive.open(_SESSION) as stream:
            session = from_text(b"".join(_blocks(stream, _SESSION)))
        for digest in session.model.tensors:
            (folder / _TENSORS).mkdir(exist_ok=True)
            if (name := f"{_TENSORS}{digest}") in members:
                _unpack(archive, name, folder / name, digest)
        if not session.model.digest or _MODEL not in members:
            return session, ""
        path = folder / (Path(session.model.name).name or "model.pt")
        _unpack(archive, _MODEL, path, session.model.digest)
    return session, str(path)


def whole(file: Path, folder: Path) -> tuple[Session, str]:
    """The same for a session to run; also raises EngineError if the model is not in the file."""
    session, path = read(file, folder)
    if session.model.digest and not path:
        hint = "Export the session again where its model is."
        raise EngineError("session", "The model is not in the file.", session.model.name, hint)
    return session, path


def _unpack(archive: zipfile.ZipFile, name: str, path: Path, digest: str) -> None:
    """Unpack a member to a path. Raises ValueError if it is not the file that the session names."""
    with archive.open(name) as stream, path.open("wb") as out:
        out.writelines(_blocks(stream, name))
    if file_digest(path) != digest:
        path.unlink()
        what = "model is" if name == _MODEL else "saved inputs are"
        raise ValueError(f"its {what} not what the session names")


def _blocks(stream: Any, name: str) -> Iterator[bytes]:
    most = left = _LIMITS.get(name, _LIMITS[_MODEL])
    while block := stream.read(1 << 20):
        left -= len(block)
        if left < 0:
            raise ValueError(f"{name} has more than {most >> 20} MiB")
        yield block
