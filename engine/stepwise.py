"""A pipeline pass by pass, in a script, as `relascope step --export` writes it.

    run = Stepwise("relay", ModelSource("mlp"))
    run.do("cse")
    run.do("bind")
    run.check()

The TVM is imported into the script's process, so it has one IR. `run.mod` is TVM's own module.
"""

import sys
from typing import Any, TextIO

from relascope.core.graph import Graph
from relascope.engine.in_process import load_engine
from relascope.engine.jobs.accuracy import LIMITS
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import StepRecord
from relascope.engine.protocol.session import silent
from relascope.engine.protocol.source import ModelSource
from relascope.engine.server.session import PipelineSession
from relascope.engine.server.steps import entry_of
from relascope.passes.catalogue import last_built
from relascope.passes.pipeline import Pipeline, Step


class Stepwise:
    """A model on its way through passes. Each step prints its line to `out`; None prints nothing.
    Raises EngineError where the model cannot be loaded, or this process has another TVM already."""

    def __init__(self, ir: str, source: ModelSource, out: TextIO | None = sys.stdout) -> None:
        self.source, self.pipeline = source, Pipeline()
        self._session, self._out = PipelineSession(load_engine(ir)), out
        model = self._session.load(source, progress=silent)
        for note in model.notes:
            self._say(note)
        self._say(f"{'imported':24} {len(model.graph):6} nodes")

    def do(self, name: str, **parameters: object) -> StepRecord:
        """Run one pass. Raises EngineError where there is no such pass, its parameters are wrong,
        or it failed; the program then stays as it was."""
        texts = {k: str(v) for k, v in parameters.items()}
        texts |= {k: texts[k].lower() for k, v in parameters.items() if isinstance(v, bool)}
        step = Step(name, True, tuple(texts.items()))
        entry = entry_of(self._session.ir, step)
        pipeline = self.pipeline.inserted(len(self.pipeline), step)
        record = self._session.step(self.source, pipeline, progress=silent)[-1]
        if record.error is not None:
            raise record.error
        self.pipeline = pipeline
        seen = " (for inspection)" if entry.looking else ""
        self._say(
            f"{name:24} {record.nodes:6} nodes  +{record.added:<4} -{record.removed:<4} "
            f"~{record.changed:<4} {record.seconds * 1e3:8.1f} ms{seen}"
        )
        return record

    @property
    def mod(self) -> Any:
        """TVM's module now (tvm.IRModule of the IR's TVM), after passes for inspection, too."""
        return self._session.program_after(self.source, self.pipeline, shown=True).mod

    @property
    def graph(self) -> Graph:
        last = len(self.pipeline) - 1
        return self._session.graph_after(self.source, self.pipeline, last, progress=silent)

    def check(self, target: str | None = None) -> bool:
        """Build the program, run it, and compare every output and gradient with PyTorch.

        As in any build, passes for inspection are left out. Raises EngineError where it
        cannot be built or run. The target is a TVM target; None takes the best one that runs here.
        True where all is within the limits of the accuracy report (`engine.jobs.accuracy`)."""
        if target is None:
            target = self._session.describe(progress=silent).best
        upto = self.pipeline.upto(last_built(self._session.ir, self.pipeline))
        found = self._session.check(BuildRequest(self.source, upto, target), progress=silent)
        limits = LIMITS[self.source.dtype]
        worst, right = limits.worst(found), not any(map(limits.over, found))
        tensors = f"{len(found)} tensors" if len(found) > 1 else "one tensor"
        self._say(
            f"{'right' if right else 'WRONG'}: {tensors} against PyTorch in "
            f"{worst.dtype} on {target}; worst is {worst.name}, off by {worst.max_abs:.1e} at most "
            f"and {worst.spread.mean_abs:.1e} on average, {worst.max_rel:.1e} of its scale "
            f"(limit {limits.of(worst.name):.0e})"
        )
        return right

    def _say(self, line: str) -> None:
        if self._out is not None:
            print(line, file=self._out, flush=True)
