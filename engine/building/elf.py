"""Sizes of the functions in an ELF object file, as LLVM and NVIDIA's tools write it."""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection


@dataclass(frozen=True)
class Sizes:
    """Bytes of the functions and of the sections of an object file, by name."""

    functions: dict[str, int]
    sections: dict[str, int]


def sizes(data: bytes) -> Sizes | None:
    """The sizes in an object file; None if it is not an ELF file, or is cut short."""
    try:
        sections = list(ELFFile(io.BytesIO(data)).iter_sections())
        tables = [s for s in sections if isinstance(s, SymbolTableSection)]
        functions = {
            s.name: s["st_size"]
            for table in tables
            for s in table.iter_symbols()
            if s["st_info"]["type"] == "STT_FUNC" and s["st_size"]
        }
    except (ELFError, ConstructError):
        return None
    return Sizes(functions, {s.name: s["sh_size"] for s in sections})


@dataclass(frozen=True)
class RegisterUse:
    """What a kernel needs: registers per thread, and bytes that a thread spills to memory."""

    count: int
    spilled_bytes: int


_REGISTERS, _STACK = 0x2F, 0x12  # EIATTR_REGCOUNT and EIATTR_MIN_STACK_SIZE of NVIDIA's tools
_PAIR = 0x04  # EIFMT_SVAL: the bytes that follow are counted


def registers(cubin: bytes) -> dict[str, RegisterUse]:
    """The register use of each kernel in NVIDIA's object file, by name; empty for other files."""
    try:
        file = ELFFile(io.BytesIO(cubin))
        section, table = file.get_section_by_name(".nv.info"), file.get_section_by_name(".symtab")
        if section is None or not isinstance(table, SymbolTableSection):
            return {}
        values = {(what, symbol): value for what, symbol, value in _pairs(section.data())}
        names = {symbol: table.get_symbol(symbol).name for _, symbol in values}
    except (ELFError, ConstructError):
        return {}
    return {
        name: RegisterUse(values[_REGISTERS, symbol], values.get((_STACK, symbol), 0))
        for symbol, name in names.items()
        if (_REGISTERS, symbol) in values
    }


def _pairs(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Attribute, symbol and value of each of a kernel's records in `.nv.info`."""
    at = 0
    while at + 4 <= len(data):
        form, what, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _PAIR:  # its value stands in place of the size
            continue
        if size == 8 and at + 8 <= len(data):
            yield what, *struct.unpack_from("<II", data, at)
        at += size
