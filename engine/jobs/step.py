"""Step through a pipeline with a pass that may end the engine's process.

Bisection finds it, each try with a new process; its step is left out like one that raised."""

from dataclasses import dataclass, replace

from relascope.core.errors import EngineError
from relascope.engine.protocol.results import StepRecord
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline


@dataclass(frozen=True)
class Stepped:
    """What each step did: one record per step (a step that ended the process has that error), and
    the pipeline with such steps switched off, for further questions."""

    records: tuple[StepRecord, ...]
    pipeline: Pipeline

    @property
    def sound(self) -> Pipeline:
        """The same steps with all that failed switched off: what can be built and run."""
        failed = (i for i, record in enumerate(self.records) if record.error is not None)
        return self.pipeline.switched(failed, False)

    def check(self) -> None:
        """Raise the error of the first step that failed, with the step's number and name."""
        for number, record in enumerate(self.records, 1):
            if (error := record.error) is not None:
                said = f"Step {number}, {record.pass_name}, failed: {error.message}"
                raise EngineError(error.kind, said, error.where, error.hint)


def step(ask: Ask, source: ModelSource, pipeline: Pipeline) -> Stepped:
    """Run a pipeline over the imported program, even if a pass ends the engine's process. Raises
    EngineError where the model cannot be imported, or the call was cancelled."""
    fatal: dict[int, EngineError] = {}
    alive = pipeline
    while True:
        try:
            records: tuple[StepRecord, ...] = ask("step", source, alive)
            break
        except EngineError as error:
            if error.kind != "engine" or not any(s.enabled for s in alive):
                raise
            index, death = _first_fatal(ask, source, alive, error)
            fatal[index], alive = death, alive.switched(index, False)
    told = list(records)
    for index, death in fatal.items():
        told[index] = replace(told[index], enabled=True, error=death)
    return Stepped(tuple(told), alive)


def _first_fatal(
    ask: Ask, source: ModelSource, pipeline: Pipeline, death: EngineError
) -> tuple[int, EngineError]:
    """The first step that ends the process, and the error; `death` is the whole pipeline's."""
    ask("load", source)  # if this is fatal already, no step is to blame
    on = [i for i, s in enumerate(pipeline) if s.enabled]
    low, high = 0, len(on)  # the first `low` enabled steps do not end it, the first `high` do
    while high - low > 1:
        middle = (low + high) // 2
        try:
            ask("step", source, pipeline.upto(on[middle - 1]))
            low = middle
        except EngineError as error:
            if error.kind != "engine":
                raise
            high, death = middle, error
    return on[high - 1], death
