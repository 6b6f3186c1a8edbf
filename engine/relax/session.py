"""The Relax engine: a `PipelineSession` on apache-tvm. Lives in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tvm

from relascope.core.graph import Graph
from relascope.engine.building.disassemble import Compile, Library
from relascope.engine.building.executables import Executable
from relascope.engine.building.options import BuildOptions
from relascope.engine.faults.narrow import Cut, Written
from relascope.engine.faults.replay import Engine
from relascope.engine.measure.tuner import Tunable, Tuner
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.protocol.tuning import Fleet
from relascope.engine.pytorch.model import Model
from relascope.engine.relax.building import libraries, remote, runtime
from relascope.engine.relax.building.profiled import Watched, kernels_of
from relascope.engine.relax.building.targets import target, targets
from relascope.engine.relax.draw.example_text import short_text
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.draw.to_text import to_text
from relascope.engine.relax.faults import extract, replay
from relascope.engine.relax.frontend.importer import import_model
from relascope.engine.relax.tune import tuning
from relascope.engine.server.examples import FunctionText
from relascope.engine.server.session import PipelineSession
from relascope.passes.catalogue.example import Example
from relascope.passes.cuts.halves import Halves
from relascope.passes.relax.examples import EXAMPLES
from relascope.passes.relax.ir.intermediates import showing
from relascope.passes.relax.ir.origins import imported_order
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.training.split import split


class RelaxBackend:
    """See `engine.server.backend.Backend`."""

    ir = "relax"
    replay: Engine = replay

    def describe(self) -> EngineInfo:
        """Which TVM runs and what it can compile for."""
        return EngineInfo(self.ir, tvm.__version__, str(Path(tvm.__file__).parent), targets())

    def target(self, text: str) -> Target:
        """A target that somebody wrote; see `engine.relax.building.targets`."""
        return target(text)

    def import_model(self, model: Model, progress: Progress) -> RelaxProgram:
        """Convert a traced model; see `engine.relax.frontend.importer`."""
        return import_model(model, progress)

    def to_graph(self, program: RelaxProgram, name: str = "main") -> tuple[Graph, dict[str, Any]]:
        """Draw one function of a program; see `engine.relax.draw.to_graph`."""
        return to_graph(program, name)

    def text(self, program: RelaxProgram) -> str:
        """The text of a program; see `engine.relax.draw.to_text`."""
        return to_text(program)

    def example(self, name: str, dtype: str) -> Example | None:
        """The small program that a pass is shown on; see `passes.relax.examples`."""
        make = EXAMPLES.get(name)
        return None if make is None else make(dtype)

    def short_text(self, program: RelaxProgram) -> tuple[FunctionText, ...]:
        """The text of a small program; see `engine.relax.draw.example_text`."""
        return short_text(program)

    def split(
        self, program: RelaxProgram, graph: Graph, exprs: dict[str, Any], captures: tuple[str, ...]
    ) -> Halves:
        """Saw a joint program into two; see `passes.relax.training.split`."""
        return split(program, graph, exprs, captures)

    def build(self, program: RelaxProgram, halves: Halves | None, target: str) -> Executable:
        """Build a program whole, or as the halves it was split into."""
        return runtime.step(program, halves, BuildOptions(target))

    def remote(
        self, program: RelaxProgram, options: BuildOptions, session: Any, name: str
    ) -> remote.RemoteFunction:
        """One function on a device of a fleet; see `engine.relax.building.remote`."""
        remote.check(options.target)
        return remote.RemoteFunction(program, options, session, name)

    def library(self, program: RelaxProgram, name: str, phase: str, target: str) -> Library:
        """One function, built for a target that need not be here; see `building.libraries`."""
        return libraries.library(program, BuildOptions(target), name, phase)

    def compiler_for(self, target: str) -> Compile:
        """What compiles a GPU's source."""
        made: Compile = libraries.compiler_for(target)
        return made

    def showing(self, program: RelaxProgram, name: str, exprs: Sequence[Any]) -> RelaxProgram:
        """The program that returns what is inside; see `passes.relax.ir.intermediates`."""
        return showing(program, name, exprs)

    def can_show(self, expr: Any) -> bool:
        """Whether `showing` can return an expression: any variable."""
        return isinstance(expr, tvm.ir.Var)

    def watched(
        self, program: RelaxProgram, name: str, exprs: Mapping[str, Any], target: str
    ) -> Watched:
        """Build one function to be watched, kernel by kernel; see `building.profiled`."""
        return Watched(program, name, exprs, BuildOptions(target))

    def tunable(
        self, program: RelaxProgram, name: str, exprs: Mapping[str, Any], target: str, watch: bool
    ) -> Tunable:
        """The kernels of one function that can be tuned; see `engine.relax.tune.tuning`."""
        return tuning.tunable(program, name, exprs, target, watch)

    def tuner(
        self, target: str, threads: int, fleet: Fleet | None
    ) -> AbstractContextManager[Tuner]:
        """What measures schedules; see `engine.relax.tune.tuning`."""
        return tuning.tuner(target, threads, fleet)

    def version(self) -> str:
        """Of TVM, which records are kept by."""
        return str(tvm.__version__)

    def kernels(
        self, program: RelaxProgram, name: str, exprs: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], ...] | None:
        """What becomes one kernel each; see `building.profiled`."""
        return kernels_of(program, name, exprs)

    def extract(self, program: RelaxProgram, exprs: Mapping[str, Any], cut: Cut) -> RelaxProgram:
        """A program of a few nodes of another; see `engine.relax.faults.extract`."""
        return extract.extract(program, exprs, cut)

    def written(self, program: RelaxProgram) -> Written:
        """A small program as text that TVM reads back; see `engine.relax.faults.extract`."""
        return extract.written(program)

    def ordinal(self, program: RelaxProgram, expr: Any) -> int | None:
        """When PyTorch executed the operator that a variable came from."""
        return imported_order(program, expr)


class RelaxSession(PipelineSession):
    """See `engine.protocol.session.Session`."""

    def __init__(self) -> None:
        super().__init__(RelaxBackend())
