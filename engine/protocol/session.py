"""What any engine can do, and the plain data that travels between it and the app.

An engine lives in a child process (`engine.worker`) and is spoken to through `engine.client`. Every
call says in full what it is about: the source, the pipeline, what is built of it. The engine
remembers what it computed, but nothing depends on its memory, so a child that was killed is simply
started again and asked once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from relascope.core.graph import Graph
from relascope.passes.pipeline import Pipeline

if TYPE_CHECKING:
    from relascope.engine.protocol.artefact import Artefact
    from relascope.engine.protocol.fault import Report, Shown, Suspects, Told, Where
    from relascope.engine.protocol.profile import Peaks, Profile
    from relascope.engine.protocol.tuning import Fleet, TuneResult, TuneTask
    from relascope.passes.search.reduce import Piece
from relascope.engine.protocol.accuracy import Comparison, NodeError
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import ModelInfo, PassExample, SplitResult, StepRecord
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.targets import EngineInfo, Target
from relascope.engine.protocol.times import TimeResult, TorchSaved, Variant

Progress = Callable[[float, str], None]
"""Called with how much is done (0 to 1) and what is being done, in a few words."""


def part(progress: Progress, low: float, high: float) -> Progress:
    """A progress that fills only a part of another."""
    return lambda fraction, text: progress(low + (high - low) * fraction, text)


Ask = Callable[..., Any]
"""Called with the name of a session's function and its arguments; returns its answer."""


class Session(Protocol):
    """One engine. Every method may raise EngineError; results are plain data that pickles.

    `progress` may be called often; it is cheap.
    """

    ir: str

    def describe(self, *, progress: Progress) -> EngineInfo:
        """Say which TVM runs and what it can compile for."""

    def target(self, text: str, *, progress: Progress) -> Target:
        """What a target that somebody wrote is for, and whether that can be run here.

        Raises:
            EngineError: kind "target"; TVM refuses it, or cannot write code for it.
        """

    def load(self, source: ModelSource, *, progress: Progress) -> ModelInfo:
        """Trace or read the model, import it, and return its graph."""

    def step(
        self, source: ModelSource, pipeline: Pipeline, *, progress: Progress
    ) -> tuple[StepRecord, ...]:
        """Run the pipeline over the imported program, one record a step."""

    def example(self, name: str, *, progress: Progress) -> PassExample | None:
        """Run a pass of the catalogue on its small program; None where it has none.

        Raises:
            EngineError: kind "usage"; no pass has this name.
        """

    def graph_after(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> Graph:
        """The graph after step `index` of the pipeline; -1 is the imported program.

        After the gradient it is a joint graph: `forward_outputs` is set, and roles are those of
        the cut that keeps everything that crosses.
        """

    def text(
        self, source: ModelSource, pipeline: Pipeline, index: int, *, progress: Progress
    ) -> str:
        """The IR's own text after step `index`; -1 is the imported program.

        Constants stand without their values, and what is very long is cut short, which its last
        line then says.
        """

    def split(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captures: tuple[str, ...],
        *,
        progress: Progress,
    ) -> SplitResult:
        """Saw the joint graph at the end of the pipeline into forward and backward.

        Args:
            captures: as of a `BuildRequest`.
        """

    def check(
        self, request: BuildRequest, captures: bool = False, *, progress: Progress
    ) -> tuple[Comparison, ...]:
        """Build and run once; compare every output (and gradient) with PyTorch.

        Args:
            captures: compare what the forward saves as well, as far as PyTorch has it too; such a
                comparison is named "capture" and the node's id.
        """

    def inside(self, request: BuildRequest, *, progress: Progress) -> tuple[NodeError, ...]:
        """Compare the tensors inside what `check` builds with those inside PyTorch's run.

        Every node is kept, so what is run here is fused less than what `check` runs. See
        `engine.measure.intermediates` for what a node is held against; one that has no counterpart
        is left out.

        Returns:
            In graph order; of a program that was split, the forward's nodes, then the backward's,
            by their ids in the joint graph. A node that both compute stands there twice.
        """

    def suspects(self, source: ModelSource, where: Where, *, progress: Progress) -> Suspects:
        """The program before suspected passes, and the nodes where values first differ after them.

        Of a crash, and of what is slow, no such nodes are known.
        """

    def narrow(
        self,
        source: ModelSource,
        where: Where,
        piece: Piece,
        bare: bool = False,
        *,
        progress: Progress,
    ) -> Shown:
        """What the suspected passes do to a piece of the program before them.

        What goes wrong is part of the answer, unless the process ends.

        Args:
            piece: of the graph of `suspects`.
            bare: leave the suspected passes out: whether the piece can be run at all.
        """

    def report(
        self, source: ModelSource, where: Where, piece: Piece, told: Told, *, progress: Progress
    ) -> Report:
        """Make a report of such a piece, which runs by itself."""

    def torch_saved(self, source: ModelSource, *, progress: Progress) -> TorchSaved:
        """Measure what PyTorch keeps for the backward of a model in training."""

    def time(
        self,
        request: BuildRequest,
        baselines: tuple[str, ...] = (),
        variants: tuple[Variant, ...] = (),
        *,
        progress: Progress,
    ) -> TimeResult:
        """Build, compare, and time against PyTorch eager, interleaved.

        Of a program that is split, forward and forward+backward are timed.

        Args:
            baselines: names in `BASELINES`, timed with them.
            variants: built, compared and timed with them too, on the same device; one that cannot
                be is left out, and a note says why.

        Raises:
            EngineError: kind "usage"; a joint graph is not split.
        """

    def time_remote(self, request: BuildRequest, fleet: Fleet, *, progress: Progress) -> TimeResult:
        """Build, run once on a device of a fleet to compare with PyTorch here, and time there.

        Times are of the program alone, by the device's clock; PyTorch does not run beside it. The
        target is the device's, without PyTorch's BLAS, which is not there; so are the threads.
        """

    def compile(self, request: BuildRequest, folder: str = "", *, progress: Progress) -> Artefact:
        """Build for a target that need not be here; the library's size, and each kernel's code.

        Args:
            folder: where the engine's process leaves object files and code; "" to leave none.
        """

    def kernels(
        self, source: ModelSource, pipeline: Pipeline, whole: bool = False, *, progress: Progress
    ) -> tuple[tuple[str, ...], ...] | None:
        """The nodes of the forward alone, by id, that TVM's FuseOps makes one kernel each.

        The pipeline must take the gradient. It says what the forward writes to memory, and so what
        recomputing costs (`passes.cost`). None where fusion cannot be followed back to nodes.

        Args:
            whole: of the program as it is built instead, with a gradient or without, not split.
        """

    def profile(self, request: BuildRequest, *, progress: Progress) -> Profile:
        """Build, compare, and time every kernel by itself."""

    def peaks(
        self,
        target: str,
        threads: int,
        dtypes: tuple[str, ...],
        turn: int = 0,
        *,
        progress: Progress,
    ) -> Peaks:
        """What the device of a target does at best; see `engine.measure.peaks`.

        Args:
            threads: as of `time`.
            dtypes: in which products are timed.
            turn: 0 for what profiles are held against, which is measured once; another number
                measures anew.
        """

    def tasks(
        self, request: BuildRequest, fleet: Fleet | None = None, *, progress: Progress
    ) -> tuple[TuneTask, ...]:
        """The kernels that can be tuned, those that take the largest share first.

        A target with `engine.protocol.tuning.RECORDS` has the tasks that it has without.

        Args:
            fleet: whose records count; None for this machine's.
        """

    def tune(
        self,
        request: BuildRequest,
        keys: tuple[str, ...],
        trials: int,
        fleet: Fleet | None = None,
        *,
        progress: Progress,
    ) -> TuneResult:
        """Measure schedules of some of the tasks, and keep what was found on disk.

        The records (`engine.protocol.records`) grow batch by batch while this works, so it may be
        killed; called again it goes on from them, and measures no schedule twice.

        Args:
            keys: of tasks; one after the other, in this order. None of them means all.
            trials: how many schedules to measure of each task, besides those measured before.
            fleet: devices to measure on; None for this machine.

        Raises:
            EngineError: kind "usage", where a key is no task's; kind "target", where nothing can be
                measured; kind "file", where records cannot be kept or another process is tuning.
        """
