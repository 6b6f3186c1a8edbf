"""The Relay engine: a `PipelineSession` on a TVM that has Relay. Lives in a child process."""

from __future__ import annotations

from typing import Any

from relascope.engine.relay.tvm.boot import boot
from relascope.engine.relay.tvm.find import installation

boot()

import tvm

from relascope.engine.building.disassemble import Library
from relascope.engine.building.executables import Executable
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.faults.replay import Engine
from relascope.engine.measure.tuner import Tunable
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.relay.building import libraries, remote, runtime
from relascope.engine.relay.building.profiled import Watched, kernels_of
from relascope.engine.relay.building.targets import target, targets
from relascope.engine.relay.draw.example_text import short_text
from relascope.engine.relay.draw.to_graph import to_graph
from relascope.engine.relay.draw.to_text import to_text
from relascope.engine.relay.faults import replay
from relascope.engine.relay.faults.extract import extract, written
from relascope.engine.relay.frontend.importer import import_model
from relascope.engine.relay.tune import tuning
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
    target = staticmethod(target)
    import_model = staticmethod(import_model)
    to_graph = staticmethod(to_graph)
    text = staticmethod(to_text)
    short_text = staticmethod(short_text)
    split = staticmethod(split)
    compiler_for = staticmethod(libraries.compiler_for)
    showing = staticmethod(showing)
    tuner = staticmethod(tuning.tuner)
    extract = staticmethod(extract)
    written = staticmethod(written)

    def version(self) -> str:
        return str(tvm.__version__)

    def describe(self) -> EngineInfo:
        return EngineInfo(self.ir, self.version(), str(installation().python), targets())

    def example(self, name: str, dtype: str) -> Example | None:
        make = EXAMPLES.get(name)
        return None if make is None else make(dtype)

    def build(self, program: RelayProgram, halves: Halves | None, target: str) -> Executable:
        return runtime.step(program, halves, BuildOptions(target))

    def remote(
        self, program: RelayProgram, options: BuildOptions, session: Any, name: str
    ) -> remote.RemoteFunction:
        remote.check(options.target)
        return remote.RemoteFunction(program, options, session, name)

    def library(self, function: Function, phase: str, target: str) -> Library:
        return libraries.library(function.program, BuildOptions(target), function.name, phase)

    def can_show(self, expr: Any) -> bool:
        return True

    def watched(self, function: Function, target: str) -> Watched:
        return Watched(function.program, function.name, function.exprs, BuildOptions(target))

    def tunable(self, function: Function, target: str, watch: bool) -> Tunable:
        program, name, exprs = function.program, function.name, function.exprs
        return tuning.tunable(program, name, exprs, BuildOptions(target), watch)

    def kernels(self, function: Function) -> tuple[tuple[str, ...], ...] | None:
        return kernels_of(function.program, function.name, function.exprs)

    def ordinal(self, program: RelayProgram, expr: Any) -> int | None:
        return imported_order(expr)


class RelaySession(PipelineSession):
    """See `engine.server.session.PipelineSession`."""

    def __init__(self) -> None:
        super().__init__(RelayBackend())
