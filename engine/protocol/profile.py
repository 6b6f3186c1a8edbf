"""The time and output of each kernel of a program: plain data."""

from dataclasses import dataclass

from relascope.engine.protocol.accuracy import Comparison

_IN_CACHE = 1.2
"""A rate above this many times memory's is a cache's."""


@dataclass(frozen=True)
class Output:
    """One tensor that a kernel wrote. `minimum`, `maximum` and `mean` are over its finite elements,
    None where there are none; `nans` and `infinities` count NaN and infinite elements."""

    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    maximum: float | None
    mean: float | None
    nans: int
    infinities: int


@dataclass(frozen=True)
class Peaks:
    """A machine's best rates, measured by PyTorch (`engine.measure.peaks`). `flops` has FLOP/s of a
    large matrix product by dtype; `bandwidth` is pairs of a working set's bytes and bytes a second,
    from the smallest to one beyond any cache, never faster than the one before; `copy` is bytes a
    second of a copy from the device to the host, or back, whichever is slower."""

    device: str
    threads: int
    flops: tuple[tuple[str, float], ...]
    bandwidth: tuple[tuple[int, float], ...]
    seconds: float = 0.0
    copy: float | None = None

    @property
    def memory(self) -> float:
        """Bytes a second from and to memory."""
        return self.bandwidth[-1][1]

    @property
    def cache(self) -> float:
        """Bytes a second from and to the fastest cache that was measured."""
        return self.bandwidth[0][1]

    def rate(self, working_set: int) -> float:
        """Bytes a second for a working set of so many bytes."""
        return next((rate for size, rate in self.bandwidth if size >= working_set), self.memory)

    def peak(self, dtype: str) -> float | None:
        """FLOPs a second in a type; None where that was not measured."""
        return dict(self.flops).get(dtype)


@dataclass(frozen=True)
class Roof:
    """The least time that the machine allows a kernel (Williams, Waterman and Patterson,
    "Roofline", CACM 2009). `name` is what sets it: "compute", "memory" or "cache"; `least_ms` is
    that time in milliseconds."""

    name: str
    least_ms: float


@dataclass(frozen=True)
class Kernel:
    """One call of a kernel; times in milliseconds. `name` is its symbol in the build, which calls
    of equal kernels share. `nodes` are ids of those that it computes, in graph order, of the joint
    graph if split; empty where unknown, or for a layout change that the build added. `share` is the
    fraction of all phases' time from end to end; `flops` are by `passes.cost` for its nodes, or by
    TVM for its loops, None where neither knows. `unread` is the part of `bytes_in` that it skips,
    such as other rows of a table, and `weights` the part that is parameters and constants."""

    name: str
    phase: str
    nodes: tuple[str, ...]
    median_ms: float
    share: float
    bytes_in: int
    bytes_out: int
    outputs: tuple[Output, ...]
    flops: float | None = None
    unread: int = 0
    weights: int = 0

    @property
    def moved(self) -> int:
        """Bytes that it reads and writes, skipped ones left out."""
        return max(self.bytes_in - self.unread, 0) + self.bytes_out

    @property
    def flops_per_second(self) -> float | None:
        """The rate that it achieves; None where its FLOPs are not known."""
        return None if self.flops is None else self.flops / (1e-3 * self.median_ms)

    @property
    def bytes_per_second(self) -> float:
        return self.moved / (1e-3 * self.median_ms)

    @property
    def intensity(self) -> float | None:
        """FLOPs for each byte moved."""
        return None if self.flops is None or not self.moved else self.flops / self.moved

    @property
    def dtype(self) -> str:
        """In which type it computes: that of its first floating result; "" without one."""
        return next((o.dtype for o in self.outputs if "float" in o.dtype), "")

    def roof(self, peaks: Peaks, working_set: int) -> Roof | None:
        """What the machine allows; None where FLOPs, or the peak in this type, are not known.
        `working_set` is how many bytes a call of the program uses: weights are read from the memory
        where these fit, earlier kernels' results from the one where this kernel's bytes fit."""
        if self.flops is None or not self.moved:
            return None
        peak = peaks.peak(self.dtype)
        if peak is None and self.flops:
            return None
        weights = min(self.weights, self.moved)
        far = max(working_set, self.moved)
        from_weights = weights / peaks.rate(far)
        from_others = (self.moved - weights) / peaks.rate(self.moved)
        computing = self.flops / peak if peak else 0.0
        moving = from_weights + from_others
        if computing >= moving:
            return Roof("compute", 1e3 * computing)
        distance = far if from_weights > from_others else self.moved
        quick = peaks.rate(distance) > _IN_CACHE * peaks.memory
        return Roof("cache" if quick else "memory", 1e3 * moving)

    @property
    def bad(self) -> bool:
        return any(o.nans or o.infinities for o in self.outputs)


@dataclass(frozen=True)
class Phase:
    """The forward, or the backward, from end to end; times in milliseconds. `median_ms` is of
    runs that are not profiled, copies in and out included, and `unmapped_ms` the part in kernels
    without nodes. `memory_bytes` is the distinct memory that its kernels wrote in one call,
    and `result_bytes` are of what the call returns."""

    name: str
    median_ms: float
    kernels_ms: float
    unmapped_ms: float
    memory_bytes: int = 0
    result_bytes: int = 0

    @property
    def mapped_ms(self) -> float:
        return self.kernels_ms - self.unmapped_ms

    @property
    def mapped_share(self) -> float:
        return self.mapped_ms / self.median_ms

    @property
    def unexplained_ms(self) -> float:
        """Time outside kernels: allocation, copies, calls; below zero where profiling cost more."""
        return self.median_ms - self.kernels_ms


@dataclass(frozen=True)
class Profile:
    """The times of every kernel of a program on one machine. `kernels` are in order of execution;
    `peaks` are the machine's with as many threads, None where they were not measured; `working_set`
    is bytes of parameters, constants and kernels' results, `mask_bytes` of the dropout masks, which
    live for the whole step."""

    machine: str
    target: str
    threads: int
    repeats: int
    kernels: tuple[Kernel, ...]
    phases: tuple[Phase, ...]
    comparisons: tuple[Comparison, ...]
    build_seconds: float
    notes: tuple[str, ...] = ()
    peaks: Peaks | None = None
    working_set: int = 0
    mask_bytes: int = 0

    def roof(self, kernel: Kernel) -> Roof | None:
        """What the machine allows one of its kernels; None where that is not known."""
        return None if self.peaks is None else kernel.roof(self.peaks, self.working_set)

    def least_ms(self, phase: str) -> tuple[float, float]:
        """The least time of a phase's kernels by their roofs, and the time of those without one."""
        least = unknown = 0.0
        for kernel in self.kernels:
            if kernel.phase == phase:
                roof = self.roof(kernel)
                least += roof.least_ms if roof else 0.0
                unknown += 0.0 if roof else kernel.median_ms
        return least, unknown

    @property
    def peak_bytes(self) -> int:
        """The most memory that a step takes at one time, measured: masks are held throughout, the
        forward's results while the backward runs."""
        held, most = 0, 0
        for phase in self.phases:
            most = max(most, held + phase.memory_bytes)
            held += phase.result_bytes
        return self.mask_bytes + most

    @property
    def first_bad(self) -> int | None:
        """Index of the first kernel whose output has a NaN or infinity; None where none does."""
        return next((i for i, k in enumerate(self.kernels) if k.bad), None)
