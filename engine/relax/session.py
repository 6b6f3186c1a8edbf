"""The Relax engine: a `PipelineSession` on apache-tvm. Lives in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tvm

from engine.building import BuildOptions
from engine.examples import FunctionText
from engine.measure import Step
from engine.model import Model
from engine.narrowing import Cut, Written
from engine.pipeline_session import PipelineSession
from engine.relax import extract as cutting
from engine.relax import libraries, measuring, remote, replay, runtime
from engine.relax.frontend import import_model
from engine.relax.short_text import short_text
from engine.relax.targets import target, targets
from engine.relax.to_graph import to_graph
from engine.relax.to_text import to_text
from engine.relax.watched import Watched, kernels_of
from engine.replay import Engine
from engine.session import EngineInfo, Progress, Target
from engine.takeapart import Compile, Library
from engine.tuner import Tunable, Tuner
from engine.tuning import Fleet
from passes.example import Example
from passes.halves import Halves
from passes.relax.examples import EXAMPLES
from passes.relax.origins import imported_order
from passes.relax.program import RelaxProgram
from passes.relax.showing import showing
from passes.relax.split import split
from viz.graph import Graph


class RelaxBackend:
    """See `engine.pipeline_session.Backend`."""

    ir = "relax"
    replay: Engine = replay

    def describe(self) -> EngineInfo:
        """Which TVM runs and what it can compile for."""
        return EngineInfo(self.ir, tvm.__version__, str(Path(tvm.__file__).parent), targets())

    def target(self, text: str) -> Target:
        """A target that somebody wrote; see `engine.relax.targets`."""
        return target(text)

    def import_model(self, model: Model, progress: Progress) -> RelaxProgram:
        """Convert a traced model; see `engine.relax.frontend`."""
        return import_model(model, progress)

    def to_graph(self, program: RelaxProgram, name: str = "main") -> tuple[Graph, dict[str, Any]]:
        """Draw one function of a program; see `engine.relax.to_graph`."""
        return to_graph(program, name)

    def text(self, program: RelaxProgram) -> str:
        """The text of a program; see `engine.relax.to_text`."""
        return to_text(program)

    def example(self, name: str, dtype: str) -> Example | None:
        """The small program that a pass is shown on; see `passes.relax.examples`."""
        make = EXAMPLES.get(name)
        return None if make is None else make(dtype)

    def short_text(self, program: RelaxProgram) -> tuple[FunctionText, ...]:
        """The text of a small program; see `engine.relax.short_text`."""
        return short_text(program)

    def split(
        self, program: RelaxProgram, graph: Graph, exprs: dict[str, Any], captured: tuple[str, ...]
    ) -> Halves:
        """Saw a joint program into two; see `passes.relax.split`."""
        return split(program, graph, exprs, captured)

    def build(self, program: RelaxProgram, halves: Halves | None, target: str) -> Step:
        """Build a program whole, or as the halves it was split into."""
        return runtime.step(program, halves, BuildOptions(target))

    def remote(
        self, program: RelaxProgram, options: BuildOptions, session: Any, name: str
    ) -> remote.RemoteFunction:
        """One function on a device of a fleet; see `engine.relax.remote`."""
        remote.check(options.target)
        return remote.RemoteFunction(program, options, session, name)

    def library(self, program: RelaxProgram, name: str, phase: str, target: str) -> Library:
        """One function, built for a target that need not be here; see `engine.relax.libraries`."""
        return libraries.library(program, BuildOptions(target), name, phase)

    def compiler_for(self, target: str) -> Compile:
        """What compiles a GPU's source."""
        made: Compile = libraries.compiler_for(target)
        return made

    def showing(self, program: RelaxProgram, name: str, exprs: Sequence[Any]) -> RelaxProgram:
        """The program that returns what is inside; see `passes.relax.showing`."""
        return showing(program, name, exprs)

    def can_show(self, expr: Any) -> bool:
        """Whether `showing` can return an expression: any variable."""
        return isinstance(expr, tvm.ir.Var)

    def watched(
        self, program: RelaxProgram, name: str, exprs: Mapping[str, Any], target: str
    ) -> Watched:
        """Build one function to be watched, kernel by kernel; see `engine.relax.watched`."""
        return Watched(program, name, exprs, BuildOptions(target))

    def tunable(
        self, program: RelaxProgram, name: str, exprs: Mapping[str, Any], target: str, watch: bool
    ) -> Tunable:
        """The kernels of one function that can be tuned; see `engine.relax.measuring`."""
        return measuring.tunable(program, name, exprs, target, watch)

    def tuner(
        self, target: str, threads: int, fleet: Fleet | None
    ) -> AbstractContextManager[Tuner]:
        """What measures schedules; see `engine.relax.measuring`."""
        return measuring.tuner(target, threads, fleet)

    def version(self) -> str:
        """Of TVM, which records are kept by."""
        return str(tvm.__version__)

    def kernels(
        self, program: RelaxProgram, name: str, exprs: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], ...] | None:
        """What becomes one kernel each; see `engine.relax.watched`."""
        return kernels_of(program, name, exprs)

    def extract(self, program: RelaxProgram, exprs: Mapping[str, Any], cut: Cut) -> RelaxProgram:
        """A program of a few nodes of another; see `engine.relax.extract`."""
        return cutting.extract(program, exprs, cut)

    def written(self, program: RelaxProgram) -> Written:
        """A small program as text that TVM reads back; see `engine.relax.extract`."""
        return cutting.written(program)

    def ordinal(self, program: RelaxProgram, expr: Any) -> int | None:
        """When PyTorch executed the operator that a variable came from."""
        return imported_order(program, expr)


class RelaxSession(PipelineSession):
    """See `engine.session.Session`."""

    def __init__(self) -> None:
        super().__init__(RelaxBackend())
