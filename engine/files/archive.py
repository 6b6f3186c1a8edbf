"""A torch archive as torch itself reads it: its members, and what is allowed in them.

torch's own reader lists the members, so no second reading of the archive can differ from this one.
The sizes that the directory declares are checked; torch's reader never unpacks more.
"""

import os
import re
from pathlib import Path
from typing import Any

import torch

from relascope.core.errors import EngineError, lines_of

MIB = 1 << 20
_MEMBERS = 100_000
_LARGEST = ((".debug_pkl", 64), (".pkl", 4), (".py", 16), (".json", 64), (".pt", 64))
"""The most MiB that a member may unpack to, by the end of its name."""
_PACKED = 256 * MIB
"""Bytes by which all members may exceed the size of the file, because torch compresses text."""
_OLD_PROGRAM = "serialized_exported_program.json"
"""A member at the top of an old program's archive, where torch's reader accepts none."""
_ENDS_HINT = "It may be truncated or damaged: download it again, or save it again."


class Archive:
    """The members of a file. Raises an EngineError of kind "file" if it is not an archive, or if
    its directory declares something that is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            str(path).encode()
        except UnicodeEncodeError as wrong:
            message = "torch cannot open this file, because its name is not UTF-8."
            raise EngineError("file", message, ascii(path.name), "Rename it.") from wrong
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                raise EngineError("file", "This file is not an archive.", path.name, _ENDS_HINT)
        try:
            reader: Any = torch._C.PyTorchFileReader(str(path))
            names = tuple(reader.get_all_records())
            sizes = [reader.get_record_size(n) for n in names]
        except UnicodeDecodeError as wrong:
            raise self.refused("", "has a member whose name is not UTF-8") from wrong
        except (RuntimeError, MemoryError) as wrong:
            if _OLD_PROGRAM in str(wrong):
                said = "PyTorch 2.7 or older saved this program; relascope cannot read its format."
                hint = "Export it again with PyTorch 2.8 or later."
                raise EngineError("file", said, path.name, hint) from wrong
            said = f"This file's directory cannot be read: {plainly(wrong)}."
            raise EngineError("file", said, path.name, _ENDS_HINT) from wrong
        self.reader, self.sizes = reader, dict(zip(names, sizes, strict=True))
        self._check()

    def _check(self) -> None:
        if len(self.sizes) > _MEMBERS:
            raise self.refused("", f"has more than {_MEMBERS:,} members")
        seen: dict[str, str] = {}
        for name, size in self.sizes.items():
            # torch ignores case in names, and may find any of those that are alike.
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise self.refused(name, f"differs from {other} only in case")
            most = next((m for end, m in _LARGEST if name.endswith(end)), None)
            if most is not None and size > most * MIB:
                raise self.refused(name, f"unpacks to {size / MIB:,.0f} MiB; the limit is {most}")
        has = os.path.getsize(self.path)
        if (whole := sum(self.sizes.values())) > has + _PACKED:
            said = f"unpacks to {whole / MIB:,.0f} MiB, too much for a file of {has / MIB:,.1f} MiB"
            raise self.refused("", said)

    def refused(self, member: str, why: str, hint: str = "") -> EngineError:
        """The refusal of this file: `why` continues a sentence about a member, or about the file
        if the member is ""."""
        what = f"its member {member[:200]!r}" if member else "it"
        message = f"{self.path.name} was refused: {what} {why}."
        where = f"{self.path.name}: {member[:200]}".rstrip(": ")
        return EngineError("file", message, where, hint or HINT)

    def read(self, name: str) -> bytes:
        """A member, unpacked; raises an EngineError of kind "file"."""
        try:
            data: bytes = self.reader.get_record(name)
        except (RuntimeError, MemoryError) as wrong:
            raise self.refused(name, f"cannot be read: {plainly(wrong)}") from wrong
        return data

    def text(self, name: str) -> str:
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as wrong:
            raise self.refused(name, "is not UTF-8") from wrong


_NOISE = re.compile(
    r"^.*INTERNAL ASSERT FAILED at [^,]*, please report a bug to PyTorch\.?"
    r"|\[enforce fail at [^]]*\]"
    r"|\(Exception raised from.*| \(Could this error message.*| This is an internal miniz error.*"
    r"| This file can still be loaded.*| \(of Python compilation unit at: \w+\)|\S+\.cpp:\d+"
    r"|\x1b\[\d*m| Did you forget to initialize.*"
)

HINT = "If you trust its author, open it with torch itself."


def plainly(error: BaseException) -> str:
    """What torch says about a file, without locations in torch's code."""
    if isinstance(error, MemoryError):
        return "it needs more memory than a file may use"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    lines = [s for s in lines_of(error) if not re.match(r"frame #|Exception raised from|\.\.\.", s)]
    said = lines[0] if lines else type(error).__name__
    said = _NOISE.sub("", said)
    said = re.sub(r"^(std::)?\w*(Error|Exception): ", "", said.strip(" .:"))
    if "can't allocate memory" in said or "bad_alloc" in said:
        return "it needs more memory than a file may use"
    return said[:300] or "an assertion in torch failed"
