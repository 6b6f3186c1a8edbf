"""What any engine can do, and the plain data that travels between it and the app.

An engine lives in a child process (`engine.worker`) and is spoken to through `engine.client`. Every
call says in full what it is about: the source, the pipeline, the captures. The engine remembers
what it computed, but nothing depends on its memory, so a child that was killed is simply started
again and asked once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from passes.pipeline import Pipeline
from viz.graph import Graph, TensorType

if TYPE_CHECKING:
    from engine.artefact import Artefact
    from engine.fault import Report, Shown, Suspects, Told, Where
    from engine.kernels import Peaks, Profile
    from engine.tuning import Fleet, TuneResult, TuneTask
    from passes.reduce import Piece

Progress = Callable[[float, str], None]
"""Called with how much is done (0 to 1) and what is being done, in a few words."""

Ask = Callable[..., Any]
"""Called with the name of a session's function and its arguments; returns its answer."""


class EngineError(Exception):
    """Something a person can act on.

    Args:
        kind: a word that programs can test for: "file", "operator", "input", "pass", "engine",
            "cancelled", "target", "usage".
        message: what was wrong, one sentence.
        where: the node, operator, module, file or value it was wrong with.
        hint: what to do about it.
    """

    def __init__(self, kind: str, message: str, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.where, self.hint = kind, message, where, hint

    def __reduce__(self) -> tuple[Any, ...]:
        return EngineError, (self.kind, self.message, self.where, self.hint)

    def to_json(self) -> dict[str, str]:
        """The four parts, as the command line prints them."""
        return {
            "kind": self.kind,
            "message": self.message,
            "where": self.where,
            "hint": self.hint,
        }


@dataclass(frozen=True)
class ModelSource:
    """Which model, with which inputs: everything needed to load it again from nothing.

    Args:
        model: a sample's name, or the path of a TorchScript trace.
        batch, tokens: sizes of a sample's inputs; None means the sample's own default.
        seed: seeds the random weights, the inputs, the dropout masks and grad_out.
        training: train mode, with dropout, and with gradients.
        dtype: "float32" or "float64", of the parameters and the floating inputs.
        inputs: for a file, the (name, type) of each input; a name may be empty.
        digest: for a file, a hash of its bytes, so that another file at the same path is another
            source. `engine.source.source_from_file` fills it in.
        gradient: whose gradient, in training: "tvm" takes it by passes over the imported forward;
            "pytorch" imports forward and backward together, as PyTorch's autograd records them.
    """

    model: str
    batch: int | None = None
    tokens: int | None = None
    seed: int = 0
    training: bool = False
    dtype: str = "float32"
    inputs: tuple[tuple[str, TensorType], ...] = ()
    digest: str = ""
    gradient: str = "tvm"


@dataclass(frozen=True)
class ModelInfo:
    """A loaded model: its graph as the frontend imported it, and what is to be said of it.

    Args:
        parameters: number of parameter elements.
        arguments: (name, type) of the graph's arguments: inputs first, then parameters in
            PyTorch's order.
        input_count: how many of `arguments` are inputs.
        seconds: what tracing and importing took.
        notes: sentences a person should read (what the import changed or left out).
    """

    source: ModelSource
    graph: Graph
    parameters: int
    arguments: tuple[tuple[str, TensorType], ...]
    input_count: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepRecord:
    """What one step of a pipeline did. Fields `pass_name` to `seconds` are the command line's.

    Args:
        seconds: wall time of the pass itself, without making the graph; 0.0 where it did not run.
        added, removed, changed: counts of nodes against the step before (see `viz.diff`).
        operators: how often each operator is called after the step.
        error: why the pass failed, or None. The steps after a failed one go on from the program
            before it.
    """

    pass_name: str
    enabled: bool
    changed: int
    added: int
    removed: int
    nodes: int
    seconds: float
    operators: dict[str, int] = field(default_factory=dict)
    error: EngineError | None = None


@dataclass(frozen=True)
class SplitResult:
    """The two functions that a joint graph was sawn into.

    `forward` returns the model's outputs, then the captures. `backward` takes what it needs of the
    inputs, parameters, masks and grad_outs, then the captures, and returns the gradients.
    """

    forward: Graph
    backward: Graph
    seconds: float


@dataclass(frozen=True)
class Spread:
    """The errors within one tensor; relative ones to what its largest error is relative to.

    Args:
        mean_abs, mean_rel, median_abs, median_rel: over its elements.
        nans, infinities: how many of its elements are so where PyTorch's are not.
    """

    mean_abs: float = 0.0
    mean_rel: float = 0.0
    median_abs: float = 0.0
    median_rel: float = 0.0
    nans: int = 0
    infinities: int = 0


@dataclass(frozen=True)
class Comparison:
    """One tensor of ours against PyTorch's.

    Args:
        name: "output 0", "gradient of" an input or parameter, or "updated" and a buffer that a run
            of the model changes, such as a running mean.
        max_abs: the largest absolute difference.
        max_rel: `max_abs` over the tensor's scale; but a gradient far smaller than the others (the
            bias of an attention key has none in exact arithmetic) is held against a thousandth of
            the largest gradient's scale.
        scale: the largest magnitude in PyTorch's tensor.
        dtype: of the tensors compared.
        spread: mean and median beside the largest error.
    """

    name: str
    max_abs: float
    max_rel: float
    scale: float
    dtype: str
    spread: Spread = Spread()


WHOLE = "the function built whole"
"""The counterpart of a node of a split program that has none in PyTorch: the joint program's own.
That they are equal says that splitting changed nothing, not that they are right."""


@dataclass(frozen=True)
class NodeError:
    """One node's tensor against what it is in PyTorch.

    Args:
        id: of the node.
        max_abs, max_rel: as of a `Comparison`.
        counterpart: what it was held against: "aten::linear in encoder.layer.0.output.dense",
            "gradient of" an input, parameter or operator's result, or `WHOLE`.
        spread: mean and median beside the largest error.
    """

    id: str
    max_abs: float
    max_rel: float
    counterpart: str
    spread: Spread = Spread()


RIVALS = ("torch.compile", "torch.compile, reduce-overhead")
"""What can be timed beside PyTorch eager; the second records CUDA graphs on a GPU."""


@dataclass(frozen=True)
class TimeRow:
    """One line of a timing table; times in milliseconds, end to end with every copy counted.

    Args:
        what: "pytorch eager", or the engine and how it was built ("relay, cpu").
        phase: "forward" or "forward_backward".
        samples_ms: every measured run, in order.
        ratio_to_eager: median of the ratios to the eager run measured beside it; below 1 is faster.
        max_abs_error: the largest difference of this build's outputs (and, with the backward, its
            gradients) to PyTorch's; None for PyTorch itself.
        peak_bytes: the most memory that a run takes at one time, inputs and parameters left out:
            what PyTorch's allocator has out, as measured, and what TVM's functions hold for
            themselves. None of what runs in memory that neither counts.
        ours_over: of another compiler than ours, the median of the ratios of our time to its; below
            1 ours is faster.
        ratio_of_minima: our best run over eager's best.
        build_seconds: what building, or compiling, took.
        target: what it was built for; "" of PyTorch's own.
        capture_bytes: of the captures held between forward and backward, where there is one.
    """

    what: str
    phase: str
    median_ms: float
    q1_ms: float
    q3_ms: float
    ratio_to_eager: float | None
    max_abs_error: float | None
    peak_bytes: int | None
    samples_ms: tuple[float, ...] = ()
    ours_over: float | None = None
    ratio_of_minima: float | None = None
    build_seconds: float | None = None
    target: str = ""
    capture_bytes: int | None = None


@dataclass(frozen=True)
class Way:
    """Another way to build the same model, to be timed beside others.

    Args:
        name: what its rows are called, behind the IR: "library".
        pipeline: of passes, from the import.
        captured: as of `Session.time`, ids of nodes at this pipeline's end.
    """

    name: str
    target: str
    pipeline: Pipeline
    captured: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TimeResult:
    """A timing: the machine, the rows, and each comparison behind their errors.

    Args:
        notes: sentences a person should read before the figures (a machine that is busy).
    """

    machine: str
    target: str
    threads: int
    rows: tuple[TimeRow, ...]
    comparisons: tuple[Comparison, ...]
    build_seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """Something to compile for.

    Args:
        name: the TVM target string.
        device: what it is, in words ("NVIDIA H200", "the CPU, AVX-512").
        runs_here: whether this machine can run, and so time, what is built for it.
        missing: what stands in the way, where it does not run here.
    """

    name: str
    device: str
    runs_here: bool
    missing: str = ""


@dataclass(frozen=True)
class Rivals:
    """What PyTorch keeps from the forward for the backward of the same module.

    Bytes count as those of a cut: each storage once, inputs, parameters and masks for nothing.

    Args:
        eager_bytes: what autograd saves.
        min_cut_bytes: what the min-cut partitioner of torch.compile saves; None where it does not
            take the module.
        note: why not, in a sentence.
    """

    eager_bytes: int
    min_cut_bytes: int | None
    note: str = ""


@dataclass(frozen=True)
class EngineInfo:
    """Which TVM this is, where it came from, and what it can compile for, the best first."""

    ir: str
    version: str
    path: str
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class PassExample:
    """What a pass does to a program small enough to read.

    Args:
        step: the pass with its parameters, as a pipeline has it.
        arguments: (name, type) of the program before the pass.
        before, after: the IR's text, shortened by rule; see `engine.examples`.
        graph_before, graph_after: the same as graphs; nodes that the pass left keep their ids.
        differs: why the program computes something else afterwards, on purpose; "" where it
            computes the same.
    """

    step: str
    arguments: tuple[tuple[str, TensorType], ...]
    before: str
    after: str
    graph_before: Graph
    graph_after: Graph
    differs: str = ""


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
        captured: tuple[str, ...],
        *,
        progress: Progress,
    ) -> SplitResult:
        """Saw the joint graph at the end of the pipeline into forward and backward.

        Args:
            captured: ids of the nodes of the joint graph that the forward saves; what else the
                backward needs of the forward, it computes again.
        """

    def check(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        captures: bool = False,
        *,
        progress: Progress,
    ) -> tuple[Comparison, ...]:
        """Build and run once; compare every output (and gradient) with PyTorch.

        Args:
            captured: None to build the program whole, gradients included where it has them; else
                the joint graph is split at these nodes.
            captures: compare what the forward saves as well, as far as PyTorch has it too; such a
                comparison is named "capture" and the node's id.
        """

    def inside(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        *,
        progress: Progress,
    ) -> tuple[NodeError, ...]:
        """Compare the tensors inside what `check` builds with those inside PyTorch's run.

        Every node is kept, so what is run here is fused less than what `check` runs. See
        `engine.inside` for what a node is held against; one that has no counterpart is left out.

        Returns:
            In graph order; of a program that was split, the forward's nodes, then the backward's,
            by their ids in the joint graph. A node that both compute stands there twice.
        """

    def suspects(self, source: ModelSource, where: Where, *, progress: Progress) -> Suspects:
        """The program before suspected passes, and the nodes where values first differ after them.

        Of a crash, and of what is slow, no such nodes are known.
        """

    def narrow(
        self, source: ModelSource, where: Where, piece: Piece, bare: bool = False, *,
        progress: Progress,
    ) -> Shown:  # fmt: skip
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

    def rivals(self, source: ModelSource, *, progress: Progress) -> Rivals:
        """Measure what PyTorch keeps for the backward of a model in training."""

    def time(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        repeats: int,
        rivals: tuple[str, ...] = (),
        ways: tuple[Way, ...] = (),
        *,
        progress: Progress,
    ) -> TimeResult:
        """Build, compare, and time against PyTorch eager, interleaved.

        Args:
            captured: None to build the inference function; else the joint graph is split at these
                nodes, and forward and forward+backward are timed.
            threads: for TVM and PyTorch alike; 0 means as many as the machine has cores.
            rivals: names in `RIVALS`, timed with them.
            ways: built, compared and timed with them too, on the same device; one that cannot be
                is left out, and a note says why.
        """

    def time_remote(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        repeats: int,
        fleet: Fleet,
        *,
        progress: Progress,
    ) -> TimeResult:
        """Build, run once on a device of a fleet to compare with PyTorch here, and time there.

        Times are of the program alone, by the device's clock; PyTorch does not run beside it.

        Args:
            target: for the device; without PyTorch's BLAS, which is not there.
            threads: of the device; 0 for its own number.
        """

    def compile(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        folder: str = "",
        *,
        progress: Progress,
    ) -> Artefact:
        """Build for a target that need not be here; the library's size, and each kernel's code.

        Args:
            captured: None to build the inference function; else both halves.
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

    def profile(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        repeats: int,
        *,
        progress: Progress,
    ) -> Profile:
        """Build, compare, and time every kernel by itself; the arguments are those of `time`."""

    def peaks(
        self, target: str, threads: int, dtypes: tuple[str, ...], turn: int = 0, *,
        progress: Progress,
    ) -> Peaks:  # fmt: skip
        """What the device of a target does at best; see `engine.peaks`.

        Args:
            threads: as of `time`.
            dtypes: in which products are timed.
            turn: 0 for what profiles are held against, which is measured once; another number
                measures anew.
        """

    def tasks(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        fleet: Fleet | None = None,
        *,
        progress: Progress,
    ) -> tuple[TuneTask, ...]:
        """The kernels that can be tuned, those that take the largest share first.

        Args:
            captured, target, threads: those of `time`; a target with `engine.tuning.RECORDS` has
                the tasks that it has without.
            fleet: whose records count; None for this machine's.
        """

    def tune(
        self,
        source: ModelSource,
        pipeline: Pipeline,
        captured: tuple[str, ...] | None,
        target: str,
        threads: int,
        keys: tuple[str, ...],
        trials: int,
        fleet: Fleet | None = None,
        *,
        progress: Progress,
    ) -> TuneResult:
        """Measure schedules of some of the tasks, and keep what was found on disk.

        The records (`engine.records`) grow batch by batch while this works, so it may be killed;
        called again it goes on from them, and measures no schedule twice.

        Args:
            threads: that the kernels are to run with; 0 means as many as the machine has cores.
            keys: of tasks; one after the other, in this order. None of them means all.
            trials: how many schedules to measure of each task, besides those measured before.
            fleet: devices to measure on; None for this machine.

        Raises:
            EngineError: kind "usage", where a key is no task's; kind "target", where nothing can be
                measured; kind "file", where records cannot be kept or another process is tuning.
        """


def plain(value: Any) -> Any:
    """A result as JSON values: dataclasses to dicts, graphs and errors by their own methods.

    Numbers that JSON cannot carry (infinities and NaN) become strings.
    """
    if isinstance(value, Graph | EngineError):
        return value.to_json()
    if hasattr(value, "__dataclass_fields__"):
        names = value.__dataclass_fields__
        return {n: plain(getattr(value, n)) for n in names}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
