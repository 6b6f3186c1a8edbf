"""What building makes: the code of each kernel and the size of the library. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from relascope.engine.protocol.targets import Target


@dataclass(frozen=True)
class KernelCode:
    """One kernel of what was built.

    Args:
        name: its symbol; several calls of equal kernels share one.
        phase: "forward" or "backward".
        bytes: of its machine code; None where there is only source.
        code: (language, text), the nearest to the program first: "CUDA", "PTX", "LLVM IR",
            "assembly".
    """

    name: str
    phase: str
    bytes: int | None
    code: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Artefact:
    """What building for a target made.

    Args:
        kernels: in the library's order, the forward's first.
        library_bytes: of the object files that a library is linked of, constants included.
        build_seconds: what building took, without taking it apart.
        notes: sentences a person should read: why it cannot be timed here, what was not compiled.
        files: the names of what was written to a folder.
    """

    target: Target
    kernels: tuple[KernelCode, ...]
    library_bytes: int
    build_seconds: float
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def code_bytes(self) -> int | None:
        """Of all kernels' machine code; None where one of them has only source."""
        sizes = [k.bytes for k in self.kernels]
        return None if None in sizes else sum(b for b in sizes if b is not None)


_EXTENSIONS = {
    "CUDA": "cu",
    "PTX": "ptx",
    "LLVM IR": "ll",
    "assembly": "s",
    "OpenCL": "cl",
    "Metal": "metal",
    "HIP": "hip",
}


def extension(language: str) -> str:
    """What a file with code of a language ends in."""
    return _EXTENSIONS.get(language, "txt")
