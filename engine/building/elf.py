"""How large the functions in an object file are: of ELF, which LLVM and NVIDIA's compilers write.

The layout is that of the System V ABI, chapter 4.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_MAGIC = b"\x7fELF"
_SYMBOLS = 2  # SHT_SYMTAB
_FUNCTION = 2  # STT_FUNC


@dataclass(frozen=True)
class _Section:
    name: int
    kind: int
    offset: int
    size: int
    link: int
    entry: int


@dataclass(frozen=True)
class Sizes:
    """Bytes of the functions and of the sections of an object file, by name."""

    functions: dict[str, int]
    sections: dict[str, int]


def sizes(data: bytes) -> Sizes | None:
    """The sizes in an object file; None where it is no ELF file, or one that is cut short."""
    if data[:4] != _MAGIC or len(data) < 52:
        return None
    try:
        return _sizes(data)
    except (struct.error, IndexError, ValueError):
        return None


def _sizes(data: bytes) -> Sizes:
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    place, form = (40, "Q") if wide else (32, "I")
    (start,) = struct.unpack_from(order + form, data, place)
    width, count, names_at = struct.unpack_from(order + "HHH", data, 58 if wide else 46)
    layout = order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII")
    found = []
    for index in range(count):
        row = struct.unpack_from(layout, data, start + index * width)
        name, kind, _, _, offset, size, link, _, _, entry = row
        found.append(_Section(name, kind, offset, size, link, entry))
    titles = found[names_at]
    sections = {_text(data, titles, s.name): s.size for s in found}
    functions: dict[str, int] = {}
    for table in found:
        if table.kind == _SYMBOLS and table.entry:
            functions |= _functions(data, table, found[table.link], order, wide)
    return Sizes(functions, sections)


def _functions(
    data: bytes, table: _Section, names: _Section, order: str, wide: bool
) -> dict[str, int]:
    sized: dict[str, int] = {}
    for at in range(table.offset, table.offset + table.size, table.entry):
        if wide:
            name, info, _, _, _, size = struct.unpack_from(order + "IBBHQQ", data, at)
        else:
            name, _, size, info, _, _ = struct.unpack_from(order + "IIIBBH", data, at)
        if info & 0xF == _FUNCTION and size:
            sized[_text(data, names, name)] = size
    return sized


def _text(data: bytes, table: _Section, at: int) -> str:
    begin = table.offset + at
    return data[begin : data.index(b"\0", begin)].decode("utf-8", "replace")
