"""Stand-ins for CUDA libraries that a machine does not have, written without a compiler.

A TVM built with CUDA cannot load without `libcuda.so.1` and companions, though it could compile for
the CPU. `read_needs` reads from `libtvm.so` which functions it wants of which library;
`stub_library` writes a shared object in which each says "no device".

The layout follows the System V ABI for x86-64 and the gABI chapters on dynamic linking and symbol
versioning; only what the dynamic loader reads is written (no section headers).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import ELFHashTable

NO_DEVICE = 100
"""What every stub function returns: cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE."""

MARKER = "relascope_stub"
"""A function that every stub has, and no real library: that is how to tell them apart."""

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 4, 5, 6, 10, 11, 14
_VERSYM, _VERDEF, _VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_PAGE = 0x1000


@dataclass(frozen=True)
class Symbol:
    """A function that one shared object has, or wants from another. `version` is its symbol
    version, or ""; `library`, for a wanted symbol with a version, is the soname of the library that
    should have it."""

    name: str
    version: str = ""
    library: str = ""


@dataclass(frozen=True)
class Needs:
    """What a shared object needs so that it can be loaded. `libraries` are sonames of those it
    needs, in order; `search` are folders it asks the loader to look in (RUNPATH or RPATH, $ORIGIN
    put in); `wanted` are symbols that some other library must define."""

    libraries: tuple[str, ...]
    search: tuple[str, ...]
    wanted: tuple[Symbol, ...]


def read_needs(path: Path) -> Needs:
    """Read what a 64-bit little-endian shared object needs and wants. Raises ValueError if the file
    is no such object, OSError if it cannot be read."""
    with path.open("rb") as file:
        try:
            sections: dict[str, Any] = {s["sh_type"]: s for s in ELFFile(file).iter_sections()}
            tags = {t.entry.d_tag: t for t in sections["SHT_DYNAMIC"].iter_tags()}
            libraries = tuple(t.needed for t in sections["SHT_DYNAMIC"].iter_tags("DT_NEEDED"))
            wanted = tuple(_wanted(sections))
        except (ELFError, ConstructError, UnicodeDecodeError) as wrong:
            raise ValueError(f"{path} is not an ELF file, or is cut short: {wrong}") from wrong
        except KeyError as missing:
            raise ValueError(f"{path} is not a shared object: it has no {missing}") from None
    origin, search = str(path.resolve().parent), ""
    if "DT_RUNPATH" in tags:
        search = tags["DT_RUNPATH"].runpath
    elif "DT_RPATH" in tags:
        search = tags["DT_RPATH"].rpath
    search = search.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
    return Needs(libraries, tuple(filter(None, search.split(":"))), wanted)


def _wanted(sections: dict[str, Any]) -> Iterator[Symbol]:
    """The global symbols that are not defined; weak ones may stay so."""
    symbols, versions = sections["SHT_DYNSYM"], sections.get("SHT_GNU_versym")
    named = {0: ("", ""), 1: ("", "")}  # local, and without a version
    if versions is not None and "SHT_GNU_verneed" in sections:
        for library, entries in sections["SHT_GNU_verneed"].iter_versions():
            named |= {e["vna_other"] & 0x7FFF: (e.name, library.name) for e in entries}
    count = symbols.num_symbols()
    if "SHT_GNU_HASH" in sections:  # it lists defined symbols only, and puts them after all others
        (count,) = struct.unpack_from("<I", sections["SHT_GNU_HASH"].data(), 4)
    for index in range(1, count):
        symbol = symbols.get_symbol(index)
        if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL":
            number = 0 if versions is None else versions.get_symbol(index)["ndx"]
            # The top bit only hides a symbol from the static linker.
            yield Symbol(symbol.name, *named[number & 0x7FFF if isinstance(number, int) else 0])


def stub_library(soname: str, symbols: tuple[Symbol, ...]) -> bytes:
    """A shared object named `soname` that defines `symbols`.

    Functions return `NO_DEVICE`, except the runtime's and nvrtc's `…GetErrorString` and
    `…GetErrorName`, which return a text, because a number would be read as an address; the driver's
    store it at their second argument.
    """
    symbols = (*symbols, Symbol(MARKER))
    text = f"{soname} is not on this machine".encode()
    versions = sorted({s.version for s in symbols if s.version})
    names = list(dict.fromkeys((soname, *versions, *(s.name for s in symbols))))
    strings = b"".join(n.encode() + b"\0" for n in ("", *names))
    ends = accumulate((len(n.encode()) + 1 for n in names), initial=1)
    places = dict(zip(names, ends, strict=False))

    # One readable and executable segment, then the dynamic section on a writable page, because the
    # loader writes addresses into it.
    parts: list[bytes] = []
    base = 64 + 4 * 56
    offset = base

    def add(part: bytes) -> int:
        nonlocal offset
        start = offset
        part += b"\0" * (-len(part) % 16)
        parts.append(part)
        offset += len(part)
        return start

    text_at = add(text + b"\0")
    code: dict[str, int] = {}
    code["number"] = add(_ENDBR + b"\xb8" + struct.pack("<I", NO_DEVICE) + b"\xc3")
    code["returned"] = offset
    add(_ENDBR + _lea_rax(offset + 4, text_at) + b"\xc3")
    code["stored"] = offset
    # mov [rsi], rax; xor eax, eax; ret
    add(_ENDBR + _lea_rax(offset + 4, text_at) + b"\x48\x89\x06\x31\xc0\xc3")

    table = [struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)]
    for s in symbols:
        # global function, default visibility, in some section (any number but 0 means defined)
        about = 0x12, 0, 1, code[_kind(s.name)], 16
        table.append(struct.pack("<IBBHQQ", places[s.name], *about))
    symtab = add(b"".join(table))
    strtab = add(strings)
    # The System V hash table over the symbols 1, 2, …, all in one bucket: they are few.
    count = len(symbols)
    hashes = add(struct.pack(f"<{count + 4}I", 1, count + 1, 1, 0, *range(2, count + 1), 0))
    dynamic = [
        (_SONAME, places[soname]),
        (_HASH, hashes),
        (_STRTAB, strtab),
        (_SYMTAB, symtab),
        (_STRSZ, len(strings)),
        (_SYMENT, 24),
    ]
    if versions:
        # 1 is the library itself, and what symbols without a version get.
        numbers = {v: i + 2 for i, v in enumerate(versions)}
        given = [numbers.get(s.version, 1) for s in symbols]
        dynamic.append((_VERSYM, add(struct.pack(f"<{len(symbols) + 1}H", 0, *given))))
        dynamic.append((_VERDEF, add(_version_definitions([soname, *versions], places))))
        dynamic.append((_VERDEFNUM, len(versions) + 1))
    end = offset
    table_bytes = b"".join(struct.pack("<QQ", *entry) for entry in [*dynamic, (0, 0)])
    dynamic_at = end + -end % _PAGE

    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    segments = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)
        for kind, flags, at, size, align in (
            (_PT_LOAD, 5, 0, end, _PAGE),
            (_PT_LOAD, 6, dynamic_at, len(table_bytes), _PAGE),
            (_PT_DYNAMIC, 6, dynamic_at, len(table_bytes), 8),
            # Without this one, the loader assumes that the stack must be executable.
            (_PT_GNU_STACK, 6, 0, 0, 16),
        )
    )
    body = header + segments + b"".join(parts)
    return body + b"\0" * (dynamic_at - end) + table_bytes


_ENDBR = b"\xf3\x0f\x1e\xfa"


def _kind(name: str) -> str:
    if not name.endswith(("GetErrorString", "GetErrorName")):
        return "number"
    return "returned" if name.startswith(("cuda", "nvrtc")) else "stored"


def _lea_rax(at: int, target: int) -> bytes:
    """`lea rax, [rip + …]` as an instruction at address `at`."""
    return b"\x48\x8d\x05" + struct.pack("<i", target - (at + 7))


def _version_definitions(names: list[str], places: dict[str, int]) -> bytes:
    out = b""
    for index, name in enumerate(names, start=1):
        step = 28 if index < len(names) else 0
        base = 1 if index == 1 else 0
        hashed = ELFHashTable.elf_hash(name)
        out += struct.pack("<HHHHIII", 1, base, index, 1, hashed, 20, step)
        out += struct.pack("<II", places[name], 0)
    return out
