"""Targets to compile for, and the TVM that compiles."""

from dataclasses import dataclass

from relascope.core.errors import EngineError


@dataclass(frozen=True)
class Target:
    """Something to compile for. `name` is the TVM target string, `device` such as "NVIDIA H200" or
    "the CPU, AVX-512". `runs_here` says whether this machine can run, and time, builds for it, and
    `missing` why not. `kernels` says whose kernels it uses ("OpenBLAS, our schedules"), or ""."""

    name: str
    device: str
    runs_here: bool
    missing: str = ""
    kernels: str = ""

    @property
    def words(self) -> str:
        return f"{self.kernels}: {self.device}" if self.kernels else self.device


@dataclass(frozen=True)
class EngineInfo:
    """The TVM, where it came from, and its targets, the best first. `machine` is the processor in
    words; `sandbox` has the restrictions of its process, each in a few words."""

    ir: str
    version: str
    path: str
    targets: tuple[Target, ...]
    machine: str = ""
    sandbox: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The best target that runs here. Raises EngineError of kind "target" without one."""
        found = next((t.name for t in self.targets if t.runs_here), None)
        if found is None:
            raise EngineError("target", "This machine can run none of the engine's targets.")
        return found
