"""The Relax engine: a `PipelineSession` on apache-tvm. Lives in a child process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm

from relascope.engine.building.disassemble import Library
from relascope.engine.building.executables import Executable
from relascope.engine.building.options import BuildOptions, Function
from relascope.engine.faults.replay import Engine
from relascope.engine.measure.tuner import Tunable
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.relax.building import libraries, remote, runtime
from relascope.engine.relax.building.profiled import Watched, kernels_of
from relascope.engine.relax.building.targets import target, targets
from relascope.engine.relax.draw.example_text import short_text
from relascope.engine.relax.draw.to_graph import to_graph
from relascope.engine.relax.draw.to_text import to_text
from relascope.engine.relax.faults import replay
from relascope.engine.relax.faults.extract import extract, written
from relascope.engine.relax.frontend.importer import import_model
from relascope.engine.relax.tune import tuning
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
        return EngineInfo(self.ir, self.version(), str(Path(tvm.__file__).parent), targets())

    def example(self, name: str, dtype: str) -> Example | None:
        make = EXAMPLES.get(name)
        return None if make is None else make(dtype)

    def build(self, program: RelaxProgram, halves: Halves | None, target: str) -> Executable:
        return runtime.step(program, halves, BuildOptions(target))

    def remote(
        self, program: RelaxProgram, options: BuildOptions, session: Any, name: str
    ) -> remote.RemoteFunction:
        remote.check(options.target)
        return remote.RemoteFunction(program, options, session, name)

    def library(self, function: Function, phase: str, target: str) -> Library:
        return libraries.library(function.program, BuildOptions(target), function.name, phase)

    def can_show(self, expr: Any) -> bool:
        return isinstance(expr, tvm.ir.Var)

    def watched(self, function: Function, target: str) -> Watched:
        return Watched(function.program, function.name, function.exprs, BuildOptions(target))

    def tunable(self, function: Function, target: str, watch: bool) -> Tunable:
        program, name, exprs = function.program, function.name, function.exprs
        return tuning.tunable(program, name, exprs, target, watch)

    def kernels(self, function: Function) -> tuple[tuple[str, ...], ...] | None:
        return kernels_of(function.program, function.name, function.exprs)

    def ordinal(self, program: RelaxProgram, expr: Any) -> int | None:
        return imported_order(program, expr)


class RelaxSession(PipelineSession):
    """See `engine.server.session.PipelineSession`."""

    def __init__(self) -> None:
        super().__init__(RelaxBackend())
