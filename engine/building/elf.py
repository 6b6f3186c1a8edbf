"""How large the functions in an object file are: in ELF, which LLVM and NVIDIA's tools write."""

from __future__ import annotations

import io
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
    """The sizes in an object file; None where it is no ELF file, or one that is cut short."""
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
