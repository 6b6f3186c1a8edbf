"""The Relax engine: a `PipelineSession` on apache-tvm, in a child process."""

from pathlib import Path
from typing import Any

import tvm
from tvm_ffi import structural_equal

from relascope.engine.building.executables import Executable
from relascope.engine.building.options import BuildOptions
from relascope.engine.faults.replay import Engine
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.relax import older  # noqa: F401 - names that all else reads
from relascope.engine.relax.building import libraries, profiled, runtime, targets
from relascope.engine.relax.draw import example_text, to_graph, to_text
from relascope.engine.relax.faults import extract, replay
from relascope.engine.relax.frontend.importer import import_model
from relascope.engine.relax.frontend.modules import read_program
from relascope.engine.relax.tune import tuning
from relascope.engine.server.session import PipelineSession
from relascope.passes.cuts.split_program import SplitProgram
from relascope.passes.relax import tvm_pipelines
from relascope.passes.relax.examples import EXAMPLES
from relascope.passes.relax.examples.building import Tensors
from relascope.passes.relax.ir.inspection import imported_order, problems, with_intermediates
from relascope.passes.relax.ir.program import RelaxProgram
from relascope.passes.relax.training.split import split


class RelaxBackend:
    """See `engine.server.backend.Backend`."""

    ir = "relax"
    replay: Engine = replay
    target = staticmethod(targets.target)
    pipelines = staticmethod(tvm_pipelines.pipelines)
    import_model = staticmethod(import_model)
    read_program = staticmethod(read_program)
    to_graph = staticmethod(to_graph.to_graph)
    text = staticmethod(to_text.to_text)
    example_text = staticmethod(example_text.example_text)
    split = staticmethod(split)
    library = staticmethod(libraries.library)
    compiler_for = staticmethod(targets.compiler_for)
    with_intermediates = staticmethod(with_intermediates)
    profile = profiled.Profiled
    kernels = staticmethod(profiled.kernels_of)
    tunable = staticmethod(tuning.tunable)
    tuner = staticmethod(tuning.tuner)
    written = staticmethod(extract.written)
    extract = staticmethod(extract.extract)
    problems = staticmethod(problems)
    ordinal = staticmethod(imported_order)
    examples = EXAMPLES
    parts = Tensors

    def same(self, left: tvm.IRModule, right: tvm.IRModule) -> bool:
        return bool(structural_equal(left, right, map_free_vars=True))

    def version(self) -> str:
        return str(tvm.__version__)

    def describe(self) -> EngineInfo:
        place = str(Path(tvm.__file__).parent)
        return EngineInfo(self.ir, self.version(), place, targets.targets())

    def build(self, program: RelaxProgram, split: SplitProgram | None, target: str) -> Executable:
        return runtime.assemble(program, split, BuildOptions(target))

    def can_show(self, expr: Any) -> bool:
        return isinstance(expr, tvm.ir.Var) and isinstance(expr.ty, tvm.relax.TensorType)


class RelaxSession(PipelineSession):
    """See `engine.server.session.PipelineSession`."""

    def __init__(self) -> None:
        super().__init__(RelaxBackend())
