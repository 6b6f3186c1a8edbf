"""The Relay engine: a `PipelineSession` on a TVM that has Relay. Lives in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from relascope.engine.relay.tvm.boot import boot
from relascope.engine.relay.tvm.find import installation

boot()

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
from relascope.engine.relay.building import libraries, remote, runtime
from relascope.engine.relay.building.profiled import Watched, kernels_of
from relascope.engine.relay.building.targets import target, targets
from relascope.engine.relay.draw.example_text import short_text
from relascope.engine.relay.draw.to_graph import to_graph
from relascope.engine.relay.draw.to_text import to_text
from relascope.engine.relay.faults import extract, replay
from relascope.engine.relay.frontend.importer import import_model
from relascope.engine.relay.tune import tuning
from relascope.engine.server.examples import FunctionText
from relascope.engine.server.session import PipelineSession
from relascope.passes.catalogue.example import Example
from relascope.passes.cuts.halves import Halves
from relascope.passes.relay.examples import EXAMPLES
from relascope.passes.relay.ir.intermediates import showing
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.spans import imported_order
from relascope.passes.relay.training.split import split


class RelayBackend:
    """See `engine.server.backend.Backend`."""

    ir = "relay"
    replay: Engine = replay

    def describe(self) -> EngineInfo:
        """Which TVM runs and what it can compile for."""
        return EngineInfo(self.ir, tvm.__version__, str(installation().python), targets())

    def target(self, text: str) -> Target:
        """A target that somebody wrote; see `engine.relay.building.targets`."""
        return target(text)

    def import_model(self, model: Model, progress: Progress) -> RelayProgram:
        """Convert a traced model; see `engine.relay.frontend.importer`."""
        return import_model(model, progress)

    def to_graph(self, program: RelayProgram, name: str = "main") -> tuple[Graph, dict[str, Any]]:
        """Draw one function of a program; see `engine.relay.draw.to_graph`."""
        return to_graph(program, name)

    def text(self, program: RelayProgram) -> str:
        """The text of a program; see `engine.relay.draw.to_text`."""
        return to_text(program)

    def example(self, name: str, dtype: str) -> Example | None:
        """The small program that a pass is shown on; see `passes.relay.examples`."""
        make = EXAMPLES.get(name)
        return None if make is None else make(dtype)

    def short_text(self, program: RelayProgram) -> tuple[FunctionText, ...]:
        """The text of a small program; see `engine.relay.draw.example_text`."""
        return short_text(program)

    def split(
        self, program: RelayProgram, graph: Graph, exprs: dict[str, Any], captures: tuple[str, ...]
    ) -> Halves:
        """Saw a joint program into two; see `passes.relay.training.split`."""
        return split(program, graph, exprs, captures)

    def build(self, program: RelayProgram, halves: Halves | None, target: str) -> Executable:
        """Build a program whole, or as the halves it was split into."""
        return runtime.step(program, halves, BuildOptions(target))

    def remote(
        self, program: RelayProgram, options: BuildOptions, session: Any, name: str
    ) -> remote.RemoteFunction:
        """One function on a device of a fleet; see `engine.relay.building.remote`."""
        remote.check(options.target)
        return remote.RemoteFunction(program, options, session, name)

    def library(self, program: RelayProgram, name: str, phase: str, target: str) -> Library:
        """One function, built for a target that need not be here; see `building.libraries`."""
        return libraries.library(program, BuildOptions(target), name, phase)

    def compiler_for(self, target: str) -> Compile:
        """What compiles a GPU's source."""
        made: Compile = libraries.compiler_for(target)
        return made

    def showing(self, program: RelayProgram, name: str, exprs: Sequence[Any]) -> RelayProgram:
        """The program that returns what is inside; see `passes.relay.ir.intermediates`."""
        return showing(program, name, exprs)

    def can_show(self, expr: Any) -> bool:
        """Whether `showing` can return an expression: any."""
        return True

    def watched(
        self, program: RelayProgram, name: str, exprs: Mapping[str, Any], target: str
    ) -> Watched:
        """Build one function to be watched, kernel by kernel; see `building.profiled`."""
        return Watched(program, name, exprs, BuildOptions(target))

    def tunable(
        self, program: RelayProgram, name: str, exprs: Mapping[str, Any], target: str, watch: bool
    ) -> Tunable:
        """The kernels of one function that can be tuned; see `engine.relay.tune.tuning`."""
        return tuning.tunable(program, name, exprs, BuildOptions(target), watch)

    def tuner(
        self, target: str, threads: int, fleet: Fleet | None
    ) -> AbstractContextManager[Tuner]:
        """What measures schedules; see `engine.relay.tune.tuning`."""
        return tuning.tuner(target, threads, fleet)

    def version(self) -> str:
        """Of TVM, which records are kept by."""
        return str(tvm.__version__)

    def kernels(
        self, program: RelayProgram, name: str, exprs: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], ...] | None:
        """What becomes one kernel each; see `building.profiled`."""
        return kernels_of(program, name, exprs)

    def extract(self, program: RelayProgram, exprs: Mapping[str, Any], cut: Cut) -> RelayProgram:
        """A program of a few nodes of another; see `engine.relay.faults.extract`."""
        return extract.extract(program, exprs, cut)

    def written(self, program: RelayProgram) -> Written:
        """A small program as text that TVM reads back; see `engine.relay.faults.extract`."""
        return extract.written(program)

    def ordinal(self, program: RelayProgram, expr: Any) -> int | None:
        """When PyTorch executed the operator that an expression came from."""
        return imported_order(expr)


class RelaySession(PipelineSession):
    """See `engine.protocol.session.Session`."""

    def __init__(self) -> None:
        super().__init__(RelayBackend())
