"""What the app can ask an engine: five parts answer, over an IR's `Backend` and one store."""

from dataclasses import replace
from pathlib import Path

from relascope.core.graph import Graph
from relascope.core.own_code import NodeValues, run_overlays
from relascope.engine import sandbox
from relascope.engine.building.cpu import machine
from relascope.engine.limits import limited
from relascope.engine.protocol.results import ExampleRun, NamedModel, PassExample
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.pytorch.named import models as named
from relascope.engine.server.backend import Backend
from relascope.engine.server.builds import Builds
from relascope.engine.server.examples import run_example
from relascope.engine.server.faults import Faults
from relascope.engine.server.numbers import Numbers
from relascope.engine.server.pass_tests import tested
from relascope.engine.server.programs import Programs
from relascope.engine.server.steps import entry_of
from relascope.engine.server.tuning import Tuning
from relascope.passes.catalogue import user
from relascope.passes.pipeline import Step, TvmPipelines


class PipelineSession:
    """One engine, over its backend: what the app can ask for. Every question may raise EngineError;
    answers are plain data that pickles."""

    def __init__(self, backend: Backend) -> None:
        self.ir, self.backend = backend.ir, backend
        self.programs = programs = Programs(backend)
        builds = Builds(programs)
        tuning, numbers = Tuning(programs, builds), Numbers(programs, builds)
        faults = Faults(programs)

        self.load, self.modules, self.inputs = programs.load, programs.modules, programs.inputs
        self.step, self.graph_after = programs.step, programs.graph_after
        self.applications, self.verify = programs.applications, programs.verify
        self.text, self.split, self.kernels = programs.text, programs.split, programs.kernels
        self.program_after, self.written = programs.program_after, programs.written

        self.check, self.inside = numbers.check, numbers.inside
        self.torch_saved = numbers.torch_saved

        self.time = builds.time
        self.compile, self.compile_times = builds.compile, builds.compile_times
        self.profile, self.peaks = builds.profile, builds.peaks

        self.tasks, self.tune = tuning.tasks, tuning.tune

        self.suspects, self.narrow, self.report = faults.suspects, faults.narrow, faults.report
        self.written_piece = faults.written_piece

    def describe(self, *, progress: Progress) -> EngineInfo:
        """The TVM that runs, and what it can compile for."""
        progress(0.0, "looking for devices")
        return replace(self.backend.describe(), machine=machine(), sandbox=sandbox.restrictions())

    def target(self, text: str, *, progress: Progress) -> Target:
        """The device that a target's text is for, and whether it can run here. Raises EngineError
        of kind "target" where TVM refuses it, or cannot write code for it."""
        progress(0.0, "looking at the target")
        return self.backend.target(text)

    def pipelines(self, target: str = "", *, progress: Progress) -> TvmPipelines:
        """TVM's own pipelines for a target, by default for the CPU. Raises EngineError of kind
        "target" where TVM refuses the target."""
        progress(0.0, "reading TVM's pipelines")
        kind = self.backend.target(target).name if target else "llvm"
        return self.backend.pipelines(kind.split()[0])  # which is all that they differ by

    def overlays(
        self, graph: Graph, file: str, text: str, *, progress: Progress
    ) -> dict[str, NodeValues]:
        """What the user's own functions say about a graph; see `core.own_code.run_overlays`."""
        progress(0.0, Path(file).name)
        with limited(f"The overlay {Path(file).name}", file, "usage", "overlays", final=True):
            return run_overlays(graph, file, text)

    def models(
        self, pattern: str, counted: bool = True, *, progress: Progress
    ) -> tuple[NamedModel, ...]:
        """The models that can be opened by name; see `named.listed`."""
        progress(0.0, "looking for models")
        return named.listed(pattern, counted, progress)

    def example(self, name: str, *, progress: Progress) -> PassExample | None:
        """Run a pass of the catalogue on its small program; None where it has none. Raises
        EngineError of kind "usage" where no pass has this name."""
        progress(0.0, name)
        return run_example(self.backend, entry_of(self.ir, Step(name)))

    def pass_tests(self, name: str, *, progress: Progress) -> tuple[ExampleRun, ...]:
        """Run the user's own pass on the examples in its file, and compare. Raises EngineError of
        kind "usage" where no pass has this name."""
        progress(0.0, name)
        entry = entry_of(self.ir, Step(name))
        examples = user.examples(entry).items()
        return tuple(tested(self.backend, entry, label, *made) for label, made in examples)
