"""Stand-ins for CUDA libraries that a machine does not have, written without a compiler.

A TVM built with CUDA cannot be loaded at all where `libcuda.so.1` or its companions are missing,
although it could compile for the CPU perfectly well. So we read from `libtvm.so` which functions it
wants of which library (`read_needs`), and write a small shared object in which each of them says
"no device" (`stub_library`). TVM then sees a machine without a GPU, which is the truth.

The layout follows the System V ABI for x86-64 and the gABI chapters on dynamic linking and symbol
versioning; only what the dynamic loader reads is written (no section headers).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NO_DEVICE = 100
"""What every stub function returns: cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE."""

MARKER = "relascope_stub"
"""A function that every stub has, and no real library: that is how to tell them apart."""

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME, _RPATH = 1, 4, 5, 6, 10, 11, 14, 15
_RUNPATH, _GNU_HASH, _VERSYM, _VERDEF, _VERDEFNUM = (
    29,
    0x6FFFFEF5,
    0x6FFFFFF0,
    0x6FFFFFFC,
    0x6FFFFFFD,
)
_VERNEED, _VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_PAGE = 0x1000


@dataclass(frozen=True)
class Symbol:
    """A function that one shared object has, or wants of another.

    Args:
        version: its symbol version, "" where it has none.
        library: for a wanted symbol with a version, the soname of the library it is wanted of.
    """

    name: str
    version: str = ""
    library: str = ""


@dataclass(frozen=True)
class Needs:
    """The dynamic section of a shared object, as far as loading it is concerned.

    Args:
        soname: what it calls itself, "" where it does not.
        libraries: sonames of the libraries it needs, in order.
        search: folders it asks the loader to look in (RUNPATH or RPATH, $ORIGIN put in).
        wanted: symbols that some other library must define.
        defined: symbols that it defines; filled in only for objects with a System V hash table.
    """

    soname: str
    libraries: tuple[str, ...]
    search: tuple[str, ...]
    wanted: tuple[Symbol, ...]
    defined: tuple[Symbol, ...]


def read_needs(path: Path) -> Needs:
    """Read what a 64-bit little-endian shared object needs, wants and defines.

    Raises:
        ValueError: when the file is no such shared object.
        OSError: when it cannot be read.
    """
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            raise ValueError(f"{path} is empty") from None
    with data:
        try:
            return _Reader(data, path).needs()
        except struct.error:
            raise ValueError(f"{path} ends before its tables do") from None


class _Reader:
    def __init__(self, data: mmap.mmap, path: Path) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        self.data, self.path = data, path
        (offset,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        headers = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
        # (virtual address, offset in the file, bytes in the file)
        self.segments = [(h[3], h[2], h[5]) for h in headers if h[0] == _PT_LOAD]
        dynamic = next((h for h in headers if h[0] == _PT_DYNAMIC), None)
        if dynamic is None:
            raise ValueError(f"{path} is no shared object: it has no dynamic section")
        self.tags: dict[int, int] = {}
        self.needed: list[int] = []
        for at in range(dynamic[2], dynamic[2] + dynamic[5], 16):
            tag, value = struct.unpack_from("<QQ", data, at)
            if tag == 0:
                break
            if tag == _NEEDED:
                self.needed.append(value)
            self.tags.setdefault(tag, value)

    def at(self, address: int) -> int:
        for start, offset, size in self.segments:
            if start <= address < start + size:
                return offset + address - start
        raise ValueError(f"{self.path}: address {address:#x} lies in no segment")

    def unpack(self, form: str, address: int) -> tuple[Any, ...]:
        return struct.unpack_from(form, self.data, self.at(address))

    def text(self, index: int) -> str:
        start = self.at(self.tags[_STRTAB]) + index
        return self.data[start : self.data.find(b"\0", start)].decode()

    def needs(self) -> Needs:
        wanted_of, own = self.needed_versions(), self.own_versions()
        wanted, defined = [], []
        for index in range(1, self.symbol_count()):
            name, info, _, section, _, _ = self.unpack("<IBBHQQ", self.tags[_SYMTAB] + 24 * index)
            version = 0
            if _VERSYM in self.tags:
                # The top bit only hides a symbol from the static linker.
                version = self.unpack("<H", self.tags[_VERSYM] + 2 * index)[0] & 0x7FFF
            if section:
                defined.append(Symbol(self.text(name), own.get(version, "")))
            elif info >> 4 == 1:  # global: a weak one may stay undefined
                library, label = wanted_of.get(version, ("", ""))
                wanted.append(Symbol(self.text(name), label, library))
        search = self.tags.get(_RUNPATH, self.tags.get(_RPATH))
        folders = [] if search is None else self.text(search).split(":")
        origin = str(self.path.resolve().parent)
        return Needs(
            self.text(self.tags[_SONAME]) if _SONAME in self.tags else "",
            tuple(self.text(i) for i in self.needed),
            tuple(f.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for f in folders if f),
            tuple(wanted),
            tuple(defined),
        )

    def symbol_count(self) -> int:
        """How many symbols to read: all of them, or, with a GNU hash table, those not in it.

        That table lists defined symbols only, and puts them after all others.
        """
        if _HASH in self.tags:
            return self.unpack("<II", self.tags[_HASH])[1]
        if _GNU_HASH in self.tags:
            return self.unpack("<II", self.tags[_GNU_HASH])[1]
        return 0

    def needed_versions(self) -> dict[int, tuple[str, str]]:
        """Version index to (soname of the library, name of the version)."""
        found = {}
        at = self.tags.get(_VERNEED, 0)
        for _ in range(self.tags.get(_VERNEEDNUM, 0)):
            _, count, file, first, step = self.unpack("<HHIII", at)
            entry = at + first
            for _ in range(count):
                _, _, index, name, next_entry = self.unpack("<IHHII", entry)
                found[index & 0x7FFF] = (self.text(file), self.text(name))
                entry += next_entry
            at += step
        return found

    def own_versions(self) -> dict[int, str]:
        found = {}
        at = self.tags.get(_VERDEF, 0)
        for _ in range(self.tags.get(_VERDEFNUM, 0)):
            _, flags, index, _, _, first, step = self.unpack("<HHHHIII", at)
            if not flags & 1:  # the base definition names the file itself
                found[index] = self.text(self.unpack("<I", at + first)[0])
            at += step
        return found


def stub_library(soname: str, symbols: tuple[Symbol, ...]) -> bytes:
    """A shared object named `soname` that defines `symbols` (their `library` is not looked at).

    Every function returns `NO_DEVICE`, except those that TVM asks for the text of an error, which
    hand out a readable one (a number there would be read as an address): `…GetErrorString` and
    `…GetErrorName` of the runtime and of nvrtc return it, those of the driver store it where their
    second argument points.
    """
    symbols = (*symbols, Symbol(MARKER))
    text = f"{soname} is not on this machine".encode()
    strings = _Strings()
    versions = sorted({s.version for s in symbols if s.version})
    for name in (soname, *versions, *(s.name for s in symbols)):
        strings.index(name)

    # One readable and executable segment, then the dynamic section on a writable page, for the
    # loader puts addresses into it.
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
        table.append(
            struct.pack("<IBBHQQ", strings.index(s.name), 0x12, 0, 1, code[_kind(s.name)], 16)
        )
    symtab = add(b"".join(table))
    strtab = add(strings.data())
    hashes = add(_hash_table([s.name for s in symbols]))
    dynamic = [
        (_SONAME, strings.index(soname)),
        (_HASH, hashes),
        (_STRTAB, strtab),
        (_SYMTAB, symtab),
        (_STRSZ, len(strings.data())),
        (_SYMENT, 24),
    ]
    if versions:
        # 1 is the library itself, and what symbols without a version get.
        numbers = {v: i + 2 for i, v in enumerate(versions)}
        dynamic.append(
            (
                _VERSYM,
                add(
                    struct.pack(
                        f"<{len(symbols) + 1}H", 0, *(numbers.get(s.version, 1) for s in symbols)
                    )
                ),
            )
        )
        dynamic.append((_VERDEF, add(_version_definitions([soname, *versions], strings))))
        dynamic.append((_VERDEFNUM, len(versions) + 1))
    end = offset
    table_bytes = b"".join(struct.pack("<QQ", *entry) for entry in [*dynamic, (0, 0)])
    dynamic_at = end + -end % _PAGE

    header = (
        b"\x7fELF\x02\x01\x01"
        + b"\0" * 9
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    )
    segments = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)
        for kind, flags, at, size, align in (
            (_PT_LOAD, 5, 0, end, _PAGE),
            (_PT_LOAD, 6, dynamic_at, len(table_bytes), _PAGE),
            (_PT_DYNAMIC, 6, dynamic_at, len(table_bytes), 8),
            # Without this one, the loader takes it that the stack must be executable.
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


def _elf_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def _hash_table(names: list[str]) -> bytes:
    """The System V hash table over the symbols 1, 2, …"""
    buckets = [0] * max(1, len(names))
    chain = [0] * (len(names) + 1)
    for index, name in enumerate(names, start=1):
        bucket = _elf_hash(name) % len(buckets)
        chain[index], buckets[bucket] = buckets[bucket], index
    return struct.pack(
        f"<{2 + len(buckets) + len(chain)}I", len(buckets), len(chain), *buckets, *chain
    )


def _version_definitions(names: list[str], strings: _Strings) -> bytes:
    out = b""
    for index, name in enumerate(names, start=1):
        step = 28 if index < len(names) else 0
        base = 1 if index == 1 else 0
        out += struct.pack("<HHHHIII", 1, base, index, 1, _elf_hash(name), 20, step)
        out += struct.pack("<II", strings.index(name), 0)
    return out


class _Strings:
    """A string table that grows; `index` of a text never changes."""

    def __init__(self) -> None:
        self.table = bytearray(b"\0")
        self.known: dict[str, int] = {}

    def index(self, text: str) -> int:
        if text not in self.known:
            self.known[text] = len(self.table)
            self.table += text.encode() + b"\0"
        return self.known[text]

    def data(self) -> bytes:
        return bytes(self.table)
