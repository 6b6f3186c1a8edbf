"""An archive of torch as torch itself reads it: its members, and what they may be.

torch's own reader lists the members, so that there is no second reading of the archive in which
something else stands. Sizes are checked as the directory declares them, and torch's reader unpacks
no more than is declared.
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
"""MiB that a member of such a name may have unpacked."""
_PACKED = 256 * MIB
"""Bytes by which all members may be larger than the file: of text, which torch packs."""
_OLD_PROGRAM = "serialized_exported_program.json"
"""Lies at the top of an old program's archive, where torch's reader takes no member."""
_ENDS_HINT = "It may be cut short or changed: get it again, or write it again."


class Archive:
    """The members of a file; an EngineError of kind "file" where it is no archive, or what its
    directory declares is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            str(path).encode()
        except UnicodeEncodeError as wrong:
            message = "This file's name is not UTF-8, which torch cannot open."
            raise EngineError("file", message, ascii(path.name), "Rename it.") from wrong
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                raise EngineError("file", "This file is not an archive.", path.name, _ENDS_HINT)
        try:
            reader: Any = torch._C.PyTorchFileReader(str(path))
            names = tuple(reader.get_all_records())
            sizes = [reader.get_record_size(n) for n in names]
        except UnicodeDecodeError as wrong:
            raise self.refused("", "has a name that is not UTF-8") from wrong
        except (RuntimeError, MemoryError) as wrong:
            if _OLD_PROGRAM in str(wrong):
                said = "This program is of PyTorch 2.7 or older, in a format that is not read."
                hint = "Export it again with PyTorch 2.8 or later."
                raise EngineError("file", said, path.name, hint) from wrong
            said = f"This file's directory cannot be read: {plainly(wrong)}."
            raise EngineError("file", said, path.name, _ENDS_HINT) from wrong
        self.reader, self.sizes = reader, dict(zip(names, sizes, strict=True))
        self._check()

    def _check(self) -> None:
        if len(self.sizes) > _MEMBERS:
            raise self.refused("", f"is one of more than {_MEMBERS:,}")
        seen: dict[str, str] = {}
        for name, size in self.sizes.items():
            # torch looks for names without regard to case, and finds any of those that are alike.
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise self.refused(name, f"is there as {other}, too")
            most = next((m for end, m in _LARGEST if name.endswith(end)), None)
            if most is not None and size > most * MIB:
                raise self.refused(name, f"has {size / MIB:,.0f} MiB unpacked, and at most {most}")
        has = os.path.getsize(self.path)
        if (whole := sum(self.sizes.values())) > has + _PACKED:
            said = f"are {whole / MIB:,.0f} MiB unpacked in a file of {has / MIB:,.1f}"
            raise self.refused("", said)

    def refused(self, member: str, why: str, hint: str = "") -> EngineError:
        """That this file is not opened: `why` continues a sentence about a member, "" for one that
        cannot be named, or all of them."""
        what = f"its member {member[:200]!r}" if member else "a member of it"
        if not member and why.startswith("are "):
            what = "its members together"
        message = f"{self.path.name} is not opened: {what} {why}."
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

HINT = "Open it only where you trust who made it, and then with torch itself."


def plainly(error: BaseException) -> str:
    """What torch says of a file, without the places in its code."""
    if isinstance(error, MemoryError):
        return "it takes more memory than a file may"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    lines = [s for s in lines_of(error) if not re.match(r"frame #|Exception raised from|\.\.\.", s)]
    said = lines[0] if lines else type(error).__name__
    said = _NOISE.sub("", said)
    said = re.sub(r"^(std::)?\w*(Error|Exception): ", "", said.strip(" .:"))
    if "can't allocate memory" in said or "bad_alloc" in said:
        return "it takes more memory than a file may"
    return said[:300] or "an assertion of torch fails"
