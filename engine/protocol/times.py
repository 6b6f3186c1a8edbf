"""A timing: its rows, the baselines beside our build, and what PyTorch keeps."""

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
        what: "pytorch eager" or its stand-in, or the engine and target ("relay, cpu").
        phase: "forward" or "forward_backward".
        samples_ms: every measured run, in order.
        ratio_to_eager: median ratio to the eager run beside it; below 1 is faster.
        max_abs_error: largest difference of outputs (with the backward, gradients too) to
            PyTorch's; None for PyTorch.
        peak_bytes: the most memory of a run at one time, without inputs and parameters: PyTorch's
            allocator, measured, and TVM's own. None where neither counts it.
        kept_bytes: what TVM, and dropout masks, keep between runs; None where that is not counted.
        ours_over: for another compiler, the median ratio of our time to its; below 1 ours is
            faster.
        ratio_of_minima: our best run over eager's best.
        ratio_q1, ratio_q3: the quartiles of the ratios whose median is `ratio_to_eager`.
        build_seconds: the time of building, or compiling.
        target: what it was built for; "" for PyTorch's own.
        capture_bytes: captures and dropout masks, where there is a backward."""

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
    kept_bytes: int | None = None

    @property
    def steady(self) -> bool:
        """Whether quartiles are within 30 % of the median, which is at most twice the best."""
        best = min(self.samples_ms, default=self.median_ms)
        return self.q3_ms - self.q1_ms <= 0.3 * self.median_ms and self.median_ms <= 2 * best


@dataclass(frozen=True)
class Variant:
    """Another way to build the same model, to be timed beside others."""

    name: str
    request: BuildRequest


@dataclass(frozen=True)
class TimeResult:
    """A timing: the machine, the rows, and each comparison behind their errors. `notes` are
    sentences to read before the figures (a busy machine); `against` is what the comparisons are
    with, see `ModelInfo`."""

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
    """The time of compiling a program, run after run, in turns; all times in seconds. `passes` has
    the index of each enabled step and its time in each run, without drawing its graph; `build` has
    each build of the program after the passes; `yardstick` times the same work in Python each run,
    which shows how fast the machine was. `own_bytes` is the most that a run holds beside PyTorch's
    tensors, None where unknown."""

    passes: tuple[tuple[int, tuple[float, ...]], ...]
    build: tuple[float, ...]
    yardstick: tuple[float, ...]
    own_bytes: int | None


BEST_BUDGET = 0.8
"""PyTorch's `activation_memory_budget` at which its partitioner keeps least before it recomputes
matrix products as well."""


BUDGETS = (1.0, BEST_BUDGET), tuple(k / 10 for k in range(10, -1, -1))
"""The budgets that PyTorch's partitioner is asked for: quick, and the whole range."""


@dataclass(frozen=True)
class TorchCut:
    """A cut of PyTorch's partitioner within a share `budget` of what it keeps by default. `bytes`
    is what it saves. On PyTorch's own joint graph, `net_share` is the estimated time added, as of
    `passes.cuts.joint.Joint.net_share`, and `peak_bytes` the estimated peak of a step; None where
    ours is another. `drawn_anew` is how many random tensors the backward draws once more, from
    other seeds than the forward: the gradients are then of other masks."""

    budget: float
    bytes: int
    net_share: float | None
    peak_bytes: int | None
    drawn_anew: int


@dataclass(frozen=True)
class TorchSaved:
    """What PyTorch keeps from the forward for the backward of the same module.

    Bytes count as in a cut: each storage once, inputs and parameters for nothing. Dropout masks
    count as they are stored: by autograd on a CPU in the activations' dtype, by the partitioner in
    a byte an element.

    `eager_bytes` is what autograd saves, `cuts` are those of torch.compile's min-cut partitioner
    within some budgets, the most first, none if it fails (`note` says why)."""

    eager_bytes: int
    cuts: tuple[TorchCut, ...] = ()
    note: str = ""

    def within(self, budget: float) -> int | None:
        """The bytes that the partitioner saves within a budget; 1.0 is its default. None where it
        was not asked, or failed."""
        return next((c.bytes for c in self.cuts if c.budget == budget), None)
