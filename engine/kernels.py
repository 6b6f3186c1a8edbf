"""What each kernel of a program took, and what it put out: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from engine.session import Comparison


@dataclass(frozen=True)
class Output:
    """One tensor that a kernel wrote.

    Args:
        minimum, maximum, mean: over its finite elements; None where there are none.
        nans, infinities: how many elements are no number, or infinite.
    """

    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    maximum: float | None
    mean: float | None
    nans: int
    infinities: int


@dataclass(frozen=True)
class Kernel:
    """One call of a kernel; times in milliseconds.

    Args:
        name: its symbol in what was built; calls of equal kernels share one.
        phase: "forward" or "backward".
        nodes: ids of the graph's nodes that it computes, in graph order; for a program that was
            split, of the joint graph. Empty where that is not known, or where it computes none (a
            layout that the build made up).
        share: of the time of all phases from end to end.
        bytes_in, bytes_out: of the tensors that it reads and writes.
    """

    name: str
    phase: str
    nodes: tuple[str, ...]
    median_ms: float
    share: float
    bytes_in: int
    bytes_out: int
    outputs: tuple[Output, ...]

    @property
    def bad(self) -> bool:
        """Whether an output holds NaN or infinity."""
        return any(o.nans or o.infinities for o in self.outputs)


@dataclass(frozen=True)
class Phase:
    """The forward, or the backward, from end to end; times in milliseconds.

    Args:
        name: "forward" or "backward".
        median_ms: of runs that nobody watched, every copy in and out counted.
        kernels_ms: sum of its kernels' medians.
        unmapped_ms: the part of that in kernels without nodes.
        memory_bytes: of the distinct memory that its kernels wrote in one call: results, and what
            they hand to each other.
        estimated_bytes: of the same by `passes.memory`, from the graph and the kernels' nodes.
        result_bytes: the part of the estimate that the call returns.
    """

    name: str
    median_ms: float
    kernels_ms: float
    unmapped_ms: float
    memory_bytes: int = 0
    estimated_bytes: int = 0
    result_bytes: int = 0

    @property
    def unexplained_ms(self) -> float:
        """What the kernels do not explain: making room for results, copies, the calls themselves.

        Below zero where watching cost more than that.
        """
        return self.median_ms - self.kernels_ms


@dataclass(frozen=True)
class Profile:
    """What every kernel of a program took on one machine.

    Args:
        kernels: in order of execution.
        phases: the forward, and the backward where there is one.
        comparisons: of the same build with PyTorch.
        notes: sentences a person should read before the figures.
    """

    machine: str
    target: str
    threads: int
    repeats: int
    kernels: tuple[Kernel, ...]
    phases: tuple[Phase, ...]
    comparisons: tuple[Comparison, ...]
    build_seconds: float
    notes: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> int:
        """The most memory that a step takes at one time, measured.

        While the backward runs, what the forward returned is held too.
        """
        return _peak([(p.memory_bytes, p.result_bytes) for p in self.phases])

    @property
    def estimated_peak_bytes(self) -> int:
        """The same by the estimate."""
        return _peak([(p.estimated_bytes, p.result_bytes) for p in self.phases])

    @property
    def first_bad(self) -> int | None:
        """Index of the first kernel whose output holds NaN or infinity; None where none does."""
        return next((i for i, k in enumerate(self.kernels) if k.bad), None)


def _peak(phases: list[tuple[int, int]]) -> int:
    """From each phase's memory, and how much of it its results are."""
    held, most = 0, 0
    for taken, results in phases:
        most = max(most, held + taken)
        held += results
    return most
