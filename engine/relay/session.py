"""The Relay engine: a `PipelineSession` on a TVM that has Relay. Lives in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from engine.relay.boot import boot, installation

boot()

import tvm  # noqa: E402

from engine.building import BuildOptions  # noqa: E402
from engine.examples import FunctionText  # noqa: E402
from engine.measure import Step  # noqa: E402
from engine.model import Model  # noqa: E402
from engine.narrowing import Cut, Written  # noqa: E402
from engine.pipeline_session import PipelineSession  # noqa: E402
from engine.relay import extract as cutting  # noqa: E402
from engine.relay import libraries, remote, replay, runtime, tuning  # noqa: E402
from engine.relay.frontend import import_model  # noqa: E402
from engine.relay.short_text import short_text  # noqa: E402
from engine.relay.targets import target, targets  # noqa: E402
from engine.relay.to_graph import to_graph  # noqa: E402
from engine.relay.to_text import to_text  # noqa: E402
from engine.relay.watched import Watched, kernels_of  # noqa: E402
from engine.replay import Engine  # noqa: E402
from engine.session import EngineInfo, Progress, Target  # noqa: E402
from engine.takeapart import Compile, Library  # noqa: E402
from engine.tuner import Tunable, Tuner  # noqa: E402
from engine.tuning import Fleet  # noqa: E402
from passes.example import Example  # noqa: E402
from passes.halves import Halves  # noqa: E402
from passes.relay.examples import EXAMPLES  # noqa: E402
from passes.relay.program import RelayProgram  # noqa: E402
from passes.relay.showing import showing  # noqa: E402
from passes.relay.spans import imported_order  # noqa: E402
from passes.relay.split import split  # noqa: E402
from viz.graph import Graph  # noqa: E402


class RelayBackend:
    """See `engine.pipeline_session.Backend`."""

    ir = "relay"
    replay: Engine = replay

    def describe(self) -> EngineInfo:
        """Which TVM runs and what it can compile for."""
        return EngineInfo(self.ir, tvm.__version__, str(installation().python), targets())

    def target(self, text: str) -> Target:
        """A target that somebody wrote; see `engine.relay.targets`."""
        return target(text)

    def import_model(self, model: Model, progress: Progress) -> RelayProgram:
        """Convert a traced model; see `engine.relay.frontend`."""
        return import_model(model, progress)

    def to_graph(self, program: RelayProgram, name: str = "main") -> tuple[Graph, dict[str, Any]]:
        """Draw one function of a program; see `engine.relay.to_graph`."""
        return to_graph(program, name)

    def text(self, program: RelayProgram) -> str:
        """The text of a program; see `engine.relay.to_text`."""
        return to_text(program)

    def example(self, name: str, dtype: str) -> Example | None:
        """The small program that a pass is shown on; see `passes.relay.examples`."""
        make = EXAMPLES.get(name)
        return None if make is None else make(dtype)

    def short_text(self, program: RelayProgram) -> tuple[FunctionText, ...]:
        """The text of a small program; see `engine.relay.short_text`."""
        return short_text(program)

    def split(
        self, program: RelayProgram, graph: Graph, exprs: dict[str, Any], captured: tuple[str, ...]
    ) -> Halves:
        """Saw a joint program into two; see `passes.relay.split`."""
        return split(program, graph, exprs, captured)

    def build(self, program: RelayProgram, halves: Halves | None, target: str) -> Step:
        """Build a program whole, or as the halves it was split into."""
        return runtime.step(program, halves, BuildOptions(target))

    def remote(
        self, program: RelayProgram, options: BuildOptions, session: Any, name: str
    ) -> remote.RemoteFunction:
        """One function on a device of a fleet; see `engine.relay.remote`."""
        remote.check(options.target)
        return remote.RemoteFunction(program, options, session, name)

    def library(self, program: RelayProgram, name: str, phase: str, target: str) -> Library:
        """One function, built for a target that need not be here; see `engine.relay.libraries`."""
        return libraries.library(program, BuildOptions(target), name, phase)

    def compiler_for(self, target: str) -> Compile:
        """What compiles a GPU's source."""
        made: Compile = libraries.compiler_for(target)
        return made

    def showing(self, program: RelayProgram, name: str, exprs: Sequence[Any]) -> RelayProgram:
        """The program that returns what is inside; see `passes.relay.showing`."""
        return showing(program, name, exprs)

    def can_show(self, expr: Any) -> bool:
        """Whether `showing` can return an expression: any."""
        return True

    def watched(
        self, program: RelayProgram, name: str, exprs: Mapping[str, Any], target: str
    ) -> Watched:
        """Build one function to be watched, kernel by kernel; see `engine.relay.watched`."""
        return Watched(program, name, exprs, BuildOptions(target))

    def tunable(
        self, program: RelayProgram, name: str, exprs: Mapping[str, Any], target: str, watch: bool
    ) -> Tunable:
        """The kernels of one function that can be tuned; see `engine.relay.tuning`."""
        return tuning.tunable(program, name, exprs, BuildOptions(target), watch)

    def tuner(
        self, target: str, threads: int, fleet: Fleet | None
    ) -> AbstractContextManager[Tuner]:
        """What measures schedules; see `engine.relay.tuning`."""
        return tuning.tuner(target, threads, fleet)

    def version(self) -> str:
        """Of TVM, which records are kept by."""
        return str(tvm.__version__)

    def kernels(
        self, program: RelayProgram, name: str, exprs: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], ...] | None:
        """What becomes one kernel each; see `engine.relay.watched`."""
        return kernels_of(program, name, exprs)

    def extract(self, program: RelayProgram, exprs: Mapping[str, Any], cut: Cut) -> RelayProgram:
        """A program of a few nodes of another; see `engine.relay.extract`."""
        return cutting.extract(program, exprs, cut)

    def written(self, program: RelayProgram) -> Written:
        """A small program as text that TVM reads back; see `engine.relay.extract`."""
        return cutting.written(program)

    def ordinal(self, program: RelayProgram, expr: Any) -> int | None:
        """When PyTorch executed the operator that an expression came from."""
        return imported_order(expr)


class RelaySession(PipelineSession):
    """See `engine.session.Session`."""

    def __init__(self) -> None:
        super().__init__(RelayBackend())
