"""A timing: its rows, what is timed beside ours, and what PyTorch keeps."""

from dataclasses import dataclass

from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import PYTORCH

BASELINES = ("torch.compile", "torch.compile, reduce-overhead", "onnxruntime")
"""What can be timed beside PyTorch eager; the second records CUDA graphs on a GPU, the third runs
on the CPU and has no gradient."""


@dataclass(frozen=True)
class TimeRow:
    """One line of a timing table; times in milliseconds, end to end with every copy counted.

    Args:
        what: "pytorch eager", or what stands for it without PyTorch; or the engine and
            how it was built ("relay, cpu").
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
        ratio_q1, ratio_q3: the quartiles of the ratios whose median `ratio_to_eager` is.
        build_seconds: what building, or compiling, took.
        target: what it was built for; "" of PyTorch's own.
        capture_bytes: of what is kept from the forward for the backward, where there is one:
            captures and dropout masks.
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
    ratio_q1: float | None = None
    ratio_q3: float | None = None

    @property
    def steady(self) -> bool:
        """Whether its runs take about the same time.

        Half of all runs lie between the quartiles; where those are apart by more than 30 % of the
        median, or the median is over twice the best run, something else was running.
        """
        best = min(self.samples_ms, default=self.median_ms)
        return self.q3_ms - self.q1_ms <= 0.3 * self.median_ms and self.median_ms <= 2 * best


@dataclass(frozen=True)
class Variant:
    """Another way to build the same model, to be timed beside others."""

    name: str
    request: BuildRequest


@dataclass(frozen=True)
class TimeResult:
    """A timing: the machine, the rows, and each comparison behind their errors.

    Args:
        notes: sentences a person should read before the figures (a machine that is busy).
        against: who the comparisons are with; see `ModelInfo`.
    """

    machine: str
    target: str
    threads: int
    rows: tuple[TimeRow, ...]
    comparisons: tuple[Comparison, ...]
    build_seconds: float
    notes: tuple[str, ...] = ()
    against: str = PYTORCH


@dataclass(frozen=True)
class CompileTimes:
    """What compiling a program takes, run after run, in turns; all times in seconds.

    Args:
        passes: of each step that is on, its index in the pipeline and what each run took, drawing
            its graph left out.
        build: what each build of the program took that the passes leave.
        yardstick: what the same work of Python's took each time, which tells how quick the machine
            was meanwhile.
        own_bytes: what a run of the program holds at most beside PyTorch's tensors; None where that
            cannot be told.
    """

    passes: tuple[tuple[int, tuple[float, ...]], ...]
    build: tuple[float, ...]
    yardstick: tuple[float, ...]
    own_bytes: int | None


BEST_BUDGET = 0.8
"""PyTorch's `activation_memory_budget` at which its partitioner keeps least before it recomputes
matrix products as well."""


@dataclass(frozen=True)
class TorchSaved:
    """What PyTorch keeps from the forward for the backward of the same module.

    Bytes count as those of a cut: each storage once, inputs and parameters for nothing. Dropout
    masks count with what is really held of them: on a CPU, autograd keeps them in the activations'
    dtype; the partitioner keeps one byte an element.

    Args:
        eager_bytes: what autograd saves.
        min_cut_bytes: what the min-cut partitioner of torch.compile saves by default; None where
            it does not take the module.
        best_bytes: the same at `BEST_BUDGET`.
        note: why not, in a sentence.
    """

    eager_bytes: int
    min_cut_bytes: int | None
    best_bytes: int | None
    note: str = ""
