"""What an IR implements so that `engine.server.session` can serve it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from relascope.core.graph import Graph
from relascope.engine.building.disassemble import Compile, Library
from relascope.engine.building.options import Function
from relascope.engine.faults.narrow import PieceBackend
from relascope.engine.measure.intermediates import InsideBackend
from relascope.engine.measure.profile import Profiled
from relascope.engine.measure.tuner import Tunable, Tuner
from relascope.engine.protocol.results import FunctionText
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.pytorch.model import Model
from relascope.engine.server.program_model import Imported
from relascope.passes.catalogue.example import Example, Parts
from relascope.passes.cuts.split_program import SplitProgram
from relascope.passes.pipeline import TvmPipelines

Program = Any  # the engine's own: passes of its IR take and return it


class Backend(PieceBackend, InsideBackend, Protocol):
    """What a `PipelineSession` needs of an IR."""

    def describe(self) -> EngineInfo:
        """The TVM that runs, and what it can compile for."""

    def target(self, text: str) -> Target:
        """The device that a target's text is for, and whether it can run here."""

    def pipelines(self, target: str) -> TvmPipelines:
        """TVM's own pipelines, for a target."""

    def import_model(self, model: Model, progress: Progress) -> Program:
        """Convert a traced model."""

    def read_program(self, path: Path, source: ModelSource, progress: Progress) -> Imported:
        """Read a file that is a program by `engine.files.formats`. Raises EngineError of kind
        "file", or "input" where it leaves types open that the source does not give."""

    def problems(self, program: Program) -> Iterator[str]:
        """What is wrong with a program apart from its numbers, a sentence each."""

    def split(
        self, program: Program, graph: Graph, exprs: dict[str, Any], captures: tuple[str, ...]
    ) -> SplitProgram:
        """Split a joint program into a forward and a backward."""

    def library(self, function: Function, phase: str, target: str) -> Library:
        """Build one function of a program for a target, whose device need not be here. Raises
        EngineError of kind "target", with TVM's reason, where TVM cannot build it."""

    def compiler_for(self, target: str) -> Compile:
        """The compiler of a GPU's source code for a target."""

    def profile(self, function: Function, target: str) -> Profiled:
        """Build one function of a program to be profiled, kernel by kernel."""

    def tunable(self, function: Function, target: str, profiled: Any) -> Tunable:
        """The kernels of one function of a program. The target is without `RECORDS`; `profiled` is
        from `profile` for the same target, None where only workloads and calls are wanted. Raises
        EngineError of kind "target" where builds for it cannot be tuned."""

    def tuner(self, target: str, threads: int) -> AbstractContextManager[Tuner]:
        """What measures schedules; ends what it started on exit. The target is without `RECORDS`,
        and runs here; the kernels run with `threads`, at least 1."""

    def version(self) -> str:
        """TVM's version; records are kept for each."""

    def kernels(self, function: Function) -> tuple[tuple[str, ...], ...] | None:
        """The nodes of a function, by id, that TVM's FuseOps makes one kernel each."""

    examples: Mapping[str, Callable[[str], Example]]
    """By a pass's name, what makes the small program that shows it, from a dtype."""

    def example_text(self, program: Any) -> tuple[FunctionText, ...]:
        """The text of a small program, shortened for reading."""

    @property
    def parts(self) -> Callable[[str], Parts]:
        """What makes the parts of an example, from a dtype."""

    def same(self, left: Any, right: Any) -> bool:
        """Whether two modules are the same except for their variables' names."""

    def ordinal(self, program: Program, expr: Any) -> int | None:
        """The place in PyTorch's order of execution of the operator that an expression came from;
        -1 - n where a pass made it from operator n, None where unknown, and in a gradient."""
