"""The Relay engine: a `PipelineSession` on a TVM that has Relay, in a child process."""

from typing import Any

from relascope.engine.relay.tvm.boot import boot
from relascope.engine.relay.tvm.find import installation

boot()

import tvm

from relascope.engine.building.executables import Executable
from relascope.engine.building.options import BuildOptions
from relascope.engine.faults.replay import Engine
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.relay.building import libraries, profiled, runtime, targets
from relascope.engine.relay.building.storages import SHARED_SPACE
from relascope.engine.relay.draw import example_text, to_graph, to_text
from relascope.engine.relay.faults import extract, replay
from relascope.engine.relay.frontend.importer import import_model
from relascope.engine.relay.frontend.modules import read_program
from relascope.engine.relay.tune import tuning
from relascope.engine.server.session import PipelineSession
from relascope.passes.cuts.split_program import SplitProgram
from relascope.passes.relay import tvm_pipelines
from relascope.passes.relay.examples import EXAMPLES
from relascope.passes.relay.examples.building import Tensors
from relascope.passes.relay.ir.inspection import problems, with_intermediates
from relascope.passes.relay.ir.program import RelayProgram
from relascope.passes.relay.ir.spans import imported_order
from relascope.passes.relay.training.split import split


class RelayBackend:
    """See `engine.server.backend.Backend`."""

    ir = "relay"
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
    ordinal = staticmethod(lambda program, expr: imported_order(expr))
    examples = EXAMPLES
    parts = Tensors

    def __init__(self, shared: bool = False) -> None:
        """With `shared`, what it builds shares memory."""
        self._workspace = SHARED_SPACE if shared else None

    def same(self, left: tvm.IRModule, right: tvm.IRModule) -> bool:
        return bool(tvm.ir.structural_equal(left, right, map_free_vars=True))

    def version(self) -> str:
        return str(tvm.__version__)

    def describe(self) -> EngineInfo:
        return EngineInfo(self.ir, self.version(), str(installation().python), targets.targets())

    def build(self, program: RelayProgram, split: SplitProgram | None, target: str) -> Executable:
        return runtime.assemble(program, split, BuildOptions(target), self._workspace)

    def can_show(self, expr: Any) -> bool:
        return True


class RelaySession(PipelineSession):
    """See `engine.server.session.PipelineSession`."""

    def __init__(self) -> None:
        super().__init__(RelayBackend())
