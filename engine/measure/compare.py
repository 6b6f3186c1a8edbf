"""Builds, compared with PyTorch and timed against it."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from relascope.core.errors import EngineError
from relascope.engine.building.cpu import machine
from relascope.engine.building.executables import Executable, Tensors
from relascope.engine.cpu_kernels.buffer_pool import BufferPool
from relascope.engine.cpu_kernels.dropout_masks import draw_masks, drawn_again
from relascope.engine.faults.replay import WHOLE_NUMBERS
from relascope.engine.measure import timing
from relascope.engine.measure.difference import deviation, scale_of
from relascope.engine.measure.memory import torch_peak, waited, waiter
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.session import Progress, part
from relascope.engine.protocol.times import TimeResult, TimeRow
from relascope.engine.pytorch.baselines.compile import CannotCompile, compiled, error_of, first_run
from relascope.engine.pytorch.model import Model
from relascope.passes.cuts.split_program import is_on_host


@dataclass(frozen=True)
class Built:
    """A built program, with what it needs to run on a model's inputs. `model` is on the device that
    it was built for, `program` is the engine's own, `capture_bytes` are held between forward and
    backward, and `kept` says that another process built it: then `seconds` are those of loading."""

    model: Model
    program: Any
    executable: Executable
    capture_bytes: int | None
    seconds: float
    kept: bool = False
    pool: BufferPool = field(default_factory=BufferPool, compare=False)
    """The memory of the masks."""

    @property
    def note(self) -> str:
        """A note on its seconds, or ""."""
        return "It was built by an earlier process and loaded from disk." if self.kept else ""

    @cached_property
    def values(self) -> dict[str, torch.Tensor]:
        return values_for(self.model, self.program)

    def masks(self, seed: int | None) -> dict[str, torch.Tensor]:
        """Dropout masks, drawn as PyTorch draws them on the model's device."""
        about = seed, self.model.device, self.pool, self.executable.drawn_again
        return draw_masks(self.program.masks, *about)

    def forward(self, masks: Tensors) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        """The model's outputs, then the program's `updates`; and the captures by name."""
        return self.executable.forward({**self.values, **masks})

    def backward(self, masks: Tensors, captures: Tensors) -> dict[str, torch.Tensor]:
        """The gradients under the model's grad_outs, by the names of their tensors."""
        drawn = drawn_again(self.executable.drawn_again, masks, self.model.device, self.pool)
        return self.executable.backward({**self.values, **masks, **captures, **drawn})


def values_for(model: Model, program: Any) -> dict[str, torch.Tensor]:
    """The values that a program takes from a model: inputs, parameters, buffers and grad_outs."""
    inputs = dict(zip(model.input_names, model.inputs, strict=True))
    values = {**inputs, **model.parameters, **model.buffers}
    if program.grad_outs:
        floating = [g for g in model.grad_outs() if g.is_floating_point()]
        values.update(zip(program.grad_outs, floating, strict=True))
    return values


def errors_of(built: Built, progress: Progress) -> tuple[Comparison, ...]:
    """Run once under the source's seed; compare outputs, changed buffers and gradients."""
    model = built.model
    progress(0.0, f"running {model.against}")
    updates, backward = built.program.updates, built.executable.has_backward
    outputs, updated = model.forward(), model.updated(updates)
    expected = _named(outputs, updated, model.gradients() if backward else {})
    progress(0.5, "running the build")
    masks = built.masks(model.source.seed)
    outputs, captures = built.forward(masks)
    count = len(outputs) - len(updates)
    updated = dict(zip(updates, outputs[count:], strict=True))
    gradients = built.backward(masks, captures) if backward else {}
    found = _named(outputs[:count], updated, gradients)
    if set(found) != set(expected):
        message = "The build does not return the model's results."
        hint = "Report this: it is a bug in relascope."
        raise EngineError("engine", message, ", ".join(sorted(set(found) ^ set(expected))), hint)
    scales = {name: scale_of(tensor) for name, tensor in expected.items()}
    floor = gradient_floor(s for n, s in scales.items() if n.startswith("gradient"))
    least = {name: floor if name.startswith("gradient") else 0.0 for name in expected}
    return tuple(
        comparison(name, found[name], theirs, scales[name], max(scales[name], least[name]))
        for name, theirs in expected.items()
    )


def _named(outputs: Sequence[torch.Tensor], updated: Tensors, gradients: Tensors) -> Tensors:
    return {
        **{f"output {i}": t for i, t in enumerate(outputs)},
        **{f"updated {n}": t for n, t in updated.items()},
        **{f"gradient of {n}": t for n, t in gradients.items()},
    }


def gradient_floor(scales: Iterable[float]) -> float:
    """The least scale of a gradient: see `engine.protocol.accuracy.Comparison`."""
    return max(scales, default=0.0) * 1e-3


def comparison(
    name: str,
    ours: torch.Tensor,
    theirs: torch.Tensor,
    scale: float,
    against: float,
    spread: bool = True,
) -> Comparison:
    """Compare a tensor of ours with PyTorch's. Raises EngineError of kind "engine" if the shapes
    differ. `scale` is that of PyTorch's tensor, for the result; `against` divides the absolute
    error, unless it is 0; `spread` asks for the spread, too, which takes longest."""
    dtype = str(theirs.dtype).removeprefix("torch.")
    if ours.shape != theirs.shape:
        message = f"{name} has the shape {list(ours.shape)}, and {list(theirs.shape)} in PyTorch."
        raise EngineError("engine", message, name, "Report this: it is a bug in relascope.")
    if not theirs.numel():
        return Comparison(name, 0.0, 0.0, 0.0, dtype)
    if not theirs.is_floating_point() and not theirs.is_complex():
        against = min(against, WHOLE_NUMBERS)
    unit = against or 1.0
    worst, found = deviation(ours, theirs, unit, spread)
    return Comparison(name, worst, worst / unit, scale, dtype, found)


@dataclass(frozen=True)
class Contender:
    what: str
    target: str
    built: Built


def measure(
    ours: Sequence[Contender], repeats: int, progress: Progress, baselines: Sequence[str] = ()
) -> TimeResult:
    """Compare with PyTorch, then time against PyTorch eager, all in turns.

    A run counts in full: drawing masks as PyTorch does, passing tensors in, and results in memory
    of their own, until the device has finished. With a backward, it times the forward alone, and
    forward and backward. A separate run measures memory. Set the number of threads before. `ours`
    are of one model on one device, and the result is about the first. `baselines` of
    `engine.protocol.times.BASELINES` are timed in turn with them; a note says why one cannot be
    compiled."""
    first = ours[0].built
    model, phases = first.model, ["forward"]
    if first.executable.has_backward:
        phases.append("forward_backward")
    compared = {
        c.what: errors_of(c.built, part(progress, 0.2 * i / len(ours), 0.2 * (i + 1) / len(ours)))
        for i, c in enumerate(ours)
    }

    modules, seconds, notes = _compiled(model, baselines, part(progress, 0.2, 0.5))
    start = 0.5 if baselines else 0.2
    rows: list[TimeRow] = []
    for index, phase in enumerate(phases):
        share = (1 - start) / len(phases)
        backward = phase == "forward_backward"
        runs = {model.baseline: model.eager(backward)}
        runs |= {c.what: run_of(c.built, backward) for c in ours}
        runs |= {n: model.eager(backward, module) for n, module in modules.items()}
        step = part(progress, start + share * index, start + share * (index + 1))
        words = phase.replace("_", " and ")
        measured = timing.interleave(runs, repeats, waiter(model.device), step, f"{words}, ")
        peaks = {n: torch_peak(runs[n], model.device) for n in (model.baseline, *modules)}
        eager, name = measured[model.baseline], model.baseline
        rows.append(timing.row(name, phase, eager, None, None, peaks[name]))
        for one in ours:
            built, found = one.built, compared[one.what]
            counted = [c.max_abs for c in found if backward or c.name.startswith("output")]
            peak, kept = memory_of(built, backward)
            known: dict[str, Any] = {"target": one.target, "kept_bytes": kept}
            known |= {"build_seconds": built.seconds, "capture_bytes": built.capture_bytes}
            taken = measured[one.what]
            rows.append(timing.row(one.what, phase, taken, eager, max(counted), peak, **known))
        for name, module in modules.items():
            error = error_of(model, module)
            over = timing.ratio(measured[ours[0].what], measured[name])
            known = {"ours_over": over, "build_seconds": seconds[name]}
            rows.append(timing.row(name, phase, measured[name], eager, error, peaks[name], **known))
    where = machine(), ours[0].target, torch.get_num_threads()
    waits = waited(model.device)
    found, notes = compared[ours[0].what], [*([waits] if waits else []), *notes]
    notes += [note for one in ours if (note := _on_host(one))]
    notes += timing.unsteady(rows)
    return TimeResult(*where, tuple(rows), found, first.seconds, tuple(notes), model.against)


def _on_host(one: Contender) -> str:
    """What of a build's captures its peak does not count; "" where all are on the device."""
    names = [n for n in getattr(one.built.executable, "captures", ()) if is_on_host(n)]
    captures = one.built.forward(one.built.masks(None))[1] if names else {}
    held = f"captures of {sum(captures[n].nbytes for n in names):,} bytes wait on the host"
    uncounted = "which the peak does not count: other memory of this machine simulates it"
    return f"{one.what}: {held}, {uncounted}." if names else ""


def memory_of(built: Built, backward: bool) -> tuple[int | None, int | None]:
    """`peak_bytes` and `kept_bytes` of a build, as of `engine.protocol.times.TimeRow`."""
    own = built.executable.own_memory({**built.values, **built.masks(None)}, backward)
    with built.executable.counting() as in_torchs:
        most = torch_peak(run_of(built, backward), built.model.device) + built.pool.nbytes
    if own is None:
        return None, None
    return most + (0 if in_torchs else own.peak), own.kept + built.pool.nbytes


def run_of(built: Built, backward: bool) -> Callable[[], object]:
    """One run of a build, to be timed: the forward, or forward and backward."""
    if not backward:
        return lambda: built.forward(built.masks(None))

    def forward_backward() -> object:
        spent = built.masks(None)
        _outputs, captures = built.forward(spent)  # as PyTorch holds outputs during its backward
        for mask in built.executable.drawn_again:
            del spent[mask.name]
        about = spent, built.model.device, built.pool
        spent |= captures | drawn_again(built.executable.drawn_again, *about)
        del captures
        return built.executable.backward(built.values, spent)

    return forward_backward


def _compiled(
    model: Model, baselines: Sequence[str], progress: Progress
) -> tuple[dict[str, Callable[..., Any]], dict[str, float], list[str]]:
    found: dict[str, Callable[..., Any]] = {}
    seconds: dict[str, float] = {}
    notes = []
    if baselines:
        torch._dynamo.reset()  # else it remembers what it gave up on for earlier models
    for index, name in enumerate(baselines):
        progress(index / len(baselines), f"compiling {name}")
        try:
            began = time.perf_counter()
            module = compiled(model, name)
            for backward in {False, model.source.training}:
                first_run(model.eager(backward, module))
            found[name], seconds[name] = module, time.perf_counter() - began
        except CannotCompile as error:
            notes.append(f"{name} is not timed: {error}.")
    return found, seconds, notes
