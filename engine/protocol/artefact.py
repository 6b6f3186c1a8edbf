"""What building makes: the code of each kernel and the size of the library. Plain data."""

from dataclasses import dataclass

from relascope.engine.protocol.targets import Target


@dataclass(frozen=True)
class Launch:
    """How a GPU runs one function of a kernel: `blocks` in the grid, `threads` and `shared_bytes`
    in each block; `schedule` is the rule that made its schedule, or "". `registers` and
    `spilled_bytes` of local memory, arrays included, are per thread, None if not compiled."""

    name: str
    blocks: int
    threads: int
    shared_bytes: int
    schedule: str = ""
    registers: int | None = None
    spilled_bytes: int | None = None


@dataclass(frozen=True)
class KernelCode:
    """One kernel of a build. `name` is its symbol, which calls of equal kernels share; `bytes` is
    the size of its machine code, None for source; `code` has (language, text), the nearest to the
    program first: "CUDA", "PTX", "LLVM IR", "assembly"."""

    name: str
    phase: str
    bytes: int | None
    code: tuple[tuple[str, str], ...]
    launches: tuple[Launch, ...] = ()


@dataclass(frozen=True)
class Artefact:
    """A build for a target. `kernels` are in the library's order, the forward's first.
    `library_bytes` is the size of the object files, constants included, None where TVM cannot write
    them; `build_seconds` excludes disassembly. `notes` are for people: why it cannot be timed here,
    what was not compiled."""

    target: Target
    kernels: tuple[KernelCode, ...]
    library_bytes: int | None
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
}


def extension(language: str) -> str:
    """The extension of a file with code of a language."""
    return _EXTENSIONS.get(language, "txt")
