"""Time a program kernel by kernel, for either IR; an engine makes a function that can be profiled.

Kernels are timed in place, with caches as the previous kernel left them. Times include one or two
microseconds of overhead per kernel."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch

from relascope.core.graph import Graph, Kind, TensorType
from relascope.engine.building.cpu import machine
from relascope.engine.building.executables import Tensors
from relascope.engine.measure.compare import Built, errors_of
from relascope.engine.measure.memory import waited, waiter
from relascope.engine.measure.timing import timed
from relascope.engine.protocol.profile import Kernel, Output, Peaks, Phase, Profile
from relascope.engine.protocol.session import Progress, part
from relascope.engine.pytorch.inputs.tensors import tensor_type
from relascope.engine.turns import alone
from relascope.passes.cost import known_flops, reads, storages

LOST = (
    "TVM's build changed the program in a way that relascope does not follow, so its kernels are "
    "not mapped to nodes."
)

See = Callable[[float, int, Sequence[torch.Tensor]], None]
"""Called after each kernel with its seconds, the bytes that it read, and the tensors that it wrote,
which are valid until the call returns."""


@dataclass(frozen=True)
class Site:
    """A kernel's call: its symbol, its nodes' ids, and the compiler's count of FLOPs, or None."""

    name: str
    nodes: tuple[str, ...]
    flops: float | None = None


class Profiled(Protocol):
    """A function built to be profiled. `kernels` are its calls in order of execution; `note` says
    why kernels have no nodes, or is ""; `memory_bytes` is what it allocates ahead for kernels'
    results, else None."""

    kernels: tuple[Site, ...]
    note: str
    memory_bytes: int | None

    def watch(self, values: Tensors, see: See) -> None:
        """Run once on tensors by name; call `see` after each kernel."""


def profile(
    built: Built,
    profiled: Mapping[str, Profiled],
    graphs: Mapping[str, Graph],
    target: str,
    repeats: int,
    progress: Progress,
    peaks: Callable[[tuple[str, ...]], Peaks] | None = None,
) -> Profile:
    """Time a build from end to end, and kernel by kernel. `built` is compared, and timed without
    profiling; `profiled` are the same functions to watch, by phase ("forward", "backward"), and
    `graphs` the graphs of the kernels' nodes. `repeats` is the number of runs of each; one more
    comes first, for the statistics of outputs. `peaks`, unless it is None, measures the machine's
    peaks in some dtypes."""
    comparisons = errors_of(built, lambda f, t: progress(0.2 * f, t))
    masks = built.masks(built.model.source.seed)
    _, captures = built.forward(masks)
    values = {**built.values, **masks, **captures}
    runs: dict[str, Callable[[], object]] = {"forward": lambda: built.forward(masks)}
    if "backward" in profiled:
        runs["backward"] = lambda: built.backward(masks, captures)
    kernels: list[Kernel] = []
    phases: list[Phase] = []
    for index, (name, run) in enumerate(runs.items()):
        low, share, graph = 0.2 + 0.8 * index / len(runs), 0.8 / len(runs), graphs[name]
        undisturbed = partial(timed, run, waiter(built.model.device))
        step = part(progress, low, low + 0.98 * share)
        about = name, profiled[name], graph, values, repeats, undisturbed, step
        found, written, median_ms = _kernels(*about)
        memory = profiled[name].memory_bytes or written
        phases.append(_phase(name, graph, found, median_ms, memory))
        kernels += found
    measured = None
    if peaks is not None:
        progress(0.98, "measuring what the machine does at best")
        measured = peaks(tuple(dict.fromkeys(k.dtype for k in kernels if k.dtype)))
    nodes = (n for phase in runs for n in graphs[phase])
    weights = {n.id: n.bytes or 0 for n in nodes if n.kind in (Kind.PARAMETER, Kind.CONSTANT)}
    working_set = sum(weights.values()) + sum(p.memory_bytes for p in phases)
    total = sum(p.median_ms for p in phases)
    shared = tuple(replace(k, share=k.median_ms / total) for k in kernels)
    figures = machine(), target, torch.get_num_threads(), repeats, shared, tuple(phases)
    notes = tuple(n for n in (built.note, *(w.note for w in profiled.values())) if n)
    if waits := waited(built.model.device):
        notes += (f"{waits} Each kernel is timed alone on the GPU.",)
    drawn = sum(m.nbytes for m in masks.values())
    return Profile(*figures, comparisons, built.seconds, notes, measured, working_set, drawn)


def _phase(name: str, graph: Graph, kernels: Sequence[Kernel], ms: float, memory: int) -> Phase:
    owner = storages(graph)
    returned = (graph.by_id[i] for i in {owner[o] for o in graph.outputs})
    results = sum(n.bytes or 0 for n in returned if n.kind in (Kind.CALL, Kind.ITEM))
    times = sum(k.median_ms for k in kernels), sum(k.median_ms for k in kernels if not k.nodes)
    return Phase(name, ms, *times, memory, results)


def watched(function: Profiled, values: Tensors) -> list[float]:
    """Milliseconds of each kernel call in one run."""
    taken: list[float] = []
    function.watch(values, lambda seconds, read, wrote: taken.append(1e3 * seconds))
    return taken


@alone()
def _kernels(
    phase: str,
    function: Profiled,
    graph: Graph,
    values: Tensors,
    repeats: int,
    undisturbed: Callable[[], float],
    progress: Progress,
) -> tuple[list[Kernel], int, float]:
    """A function's kernels in order of execution, without shares; the bytes that they write to; the
    median milliseconds of `undisturbed`, which runs it and returns seconds. Runs with and without
    profiling take turns, so that disturbances hit both."""
    first: list[tuple[int, tuple[Output, ...]]] = []
    places: list[tuple[int, int]] = []

    def note(seconds: float, read: int, wrote: Sequence[torch.Tensor]) -> None:
        first.append((read, tuple(map(_output, wrote))))
        places.extend((t.data_ptr(), t.data_ptr() + t.nbytes) for t in wrote)

    function.watch(values, note)
    for _ in range(2):  # warm up
        undisturbed()
    whole, runs = list[float](), list[list[float]]()
    for turn in range(repeats):
        whole.append(1e3 * undisturbed())
        progress(turn / repeats, f"{phase}, kernel by kernel, run {turn + 1} of {repeats}")
        runs.append(watched(function, values))
    times = zip(*runs, strict=True)
    counts, owner = Counter(i for s in function.kernels for i in s.nodes), storages(graph)
    found = []
    for site, taken, (read, outputs) in zip(function.kernels, times, first, strict=True):
        known, median = reads(graph, site.nodes, owner), statistics.median(taken)
        wrote = sum(TensorType(o.shape, o.dtype).bytes or 0 for o in outputs)
        work = _flops(graph, site, counts), known.unread, known.weights
        found.append(Kernel(site.name, phase, site.nodes, median, 0.0, read, wrote, outputs, *work))
    return found, _covered(places), statistics.median(whole)


def _flops(graph: Graph, site: Site, counts: Mapping[str, int]) -> float | None:
    """The FLOPs of nodes that one kernel alone computes; else the compiler's count."""
    if not site.nodes or any(counts[i] > 1 for i in site.nodes):
        return site.flops
    known = [known_flops(graph, i) for i in site.nodes]
    return site.flops if None in known else sum(f for f in known if f is not None)


def _covered(places: list[tuple[int, int]]) -> int:
    """How many bytes lie in some of these ranges of addresses."""
    total, reached = 0, 0
    for begin, end in sorted(places):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _output(tensor: torch.Tensor) -> Output:
    values = tensor.detach().to(torch.float64)
    finite = values[values.isfinite()]
    least, most, mean = None, None, None
    if finite.numel():
        least, most, mean = (float(f(finite)) for f in (torch.min, torch.max, torch.mean))
    odd = int(values.isnan().sum()), int(values.isinf().sum())
    return Output(tuple(tensor.shape), tensor_type(tensor).dtype, least, most, mean, *odd)
