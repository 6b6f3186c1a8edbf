"""What was built, compared with PyTorch and timed against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch

from engine import timing
from engine.compiled import CannotCompile, compiled, error_of, first_run
from engine.model import Model, draw_masks
from engine.session import Comparison, EngineError, Progress, Spread, TimeResult, TimeRow

Tensors = Mapping[str, torch.Tensor]


class Step(Protocol):
    """Something that was built and runs on torch tensors, all by name."""

    has_backward: bool

    def forward(self, values: Tensors) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        """From inputs, parameters and masks to the outputs, and the captures by name."""

    def backward(self, values: Tensors) -> dict[str, torch.Tensor]:
        """From those, grad_outs and captures to the gradients, by what they are of."""


@dataclass(frozen=True)
class Built:
    """A program that was built, with what is needed to run it on a model's inputs.

    Args:
        model: on the device that the program was built for.
        program: the engine's own; has `masks`, `grad_outs` and `updates`.
        step: what was built.
        capture_bytes: what is held between forward and backward.
        seconds: what building took.
    """

    model: Model
    program: Any
    step: Step
    capture_bytes: int | None
    seconds: float

    @cached_property
    def values(self) -> dict[str, torch.Tensor]:
        """Inputs, parameters, buffers and grad_outs by name."""
        return values_for(self.model, self.program)

    def masks(self, seed: int | None) -> dict[str, torch.Tensor]:
        """Dropout masks, drawn by PyTorch on the model's device."""
        return draw_masks(self.program.masks, seed, self.model.device)

    def forward(self, masks: Tensors) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        """The model's outputs, then the program's `updates`; and the captures by name."""
        return self.step.forward({**self.values, **masks})

    def backward(self, masks: Tensors, captures: Tensors) -> dict[str, torch.Tensor]:
        """The gradients under the model's grad_outs, by the name of what they are of."""
        return self.step.backward({**self.values, **masks, **captures})


def values_for(model: Model, program: Any) -> dict[str, torch.Tensor]:
    """What a program takes of a model: inputs, parameters, buffers and grad_outs by name."""
    inputs = dict(zip(model.input_names, model.inputs, strict=True))
    values = {**inputs, **model.parameters, **model.buffers}
    if program.grad_outs:
        floating = [g for g in model.grad_outs() if g.is_floating_point()]
        values.update(zip(program.grad_outs, floating, strict=True))
    return values


def compare(built: Built, progress: Progress) -> tuple[Comparison, ...]:
    """Run once under the source's seed; compare outputs, changed buffers and gradients."""
    model = built.model
    progress(0.0, "running PyTorch")
    expected = {f"output {i}": t for i, t in enumerate(model.forward())}
    expected.update({f"updated {n}": t for n, t in model.updated(built.program.updates).items()})
    if built.step.has_backward:
        expected.update({f"gradient of {n}": t for n, t in model.gradients().items()})
    progress(0.5, "running what was built")
    masks = built.masks(model.source.seed)
    outputs, captures = built.forward(masks)
    updates = built.program.updates
    count = len(outputs) - len(updates)
    found = {f"output {i}": t for i, t in enumerate(outputs[:count])}
    found.update({f"updated {n}": t for n, t in zip(updates, outputs[count:], strict=True)})
    if built.step.has_backward:
        gradients = built.backward(masks, captures)
        found.update({f"gradient of {n}": t for n, t in gradients.items()})
    if set(found) != set(expected):
        raise EngineError(
            "engine", "What was built does not return what the model returns.",
            ", ".join(sorted(set(found) ^ set(expected))), "Report this; it is a fault of ours.",
        )  # fmt: skip
    scales = {name: scale_of(tensor) for name, tensor in expected.items()}
    floor = gradient_floor(s for n, s in scales.items() if n.startswith("gradient"))
    return tuple(
        comparison(
            name, found[name], expected[name], scales[name],
            max(scales[name], floor if name.startswith("gradient") else 0.0),
        )
        for name in expected
    )  # fmt: skip


def gradient_floor(scales: Iterable[float]) -> float:
    """What a gradient is held against at least: see `engine.session.Comparison`."""
    return max(scales, default=0.0) * 1e-3


def scale_of(tensor: torch.Tensor) -> float:
    """The largest finite magnitude."""
    finite = tensor.to(torch.float64).abs().nan_to_num(nan=0.0, posinf=0.0)
    return float(finite.max()) if tensor.numel() else 0.0


def comparison(
    name: str, ours: torch.Tensor, theirs: torch.Tensor, scale: float, against: float
) -> Comparison:
    """One tensor of ours against PyTorch's.

    Args:
        scale: what the comparison says of PyTorch's tensor.
        against: what the absolute error is divided by; where it is 0, it stands as it is.

    Raises:
        EngineError: kind "engine"; the shapes differ.
    """
    dtype = str(theirs.dtype).removeprefix("torch.")
    if ours.shape != theirs.shape:
        raise EngineError(
            "engine", f"{name} has the shape {list(ours.shape)}, PyTorch's {list(theirs.shape)}.",
            name, "Report this; it is a fault of ours.",
        )  # fmt: skip
    if not theirs.numel():
        return Comparison(name, 0.0, 0.0, 0.0, dtype)
    a, b = ours.to(theirs.device, torch.float64), theirs.to(torch.float64)
    # NaN compares as an infinite error, unless PyTorch has it in the same place.
    difference = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    difference = difference.nan_to_num(nan=float("inf"))
    worst, mean = float(difference.max()), float(difference.mean())
    median = float(difference.flatten().median())
    unit = against or 1.0
    spread = Spread(
        mean, mean / unit, median, median / unit,
        int((a.isnan() & ~b.isnan()).sum()), int((a.isinf() & ~b.isinf()).sum()),
    )  # fmt: skip
    return Comparison(name, worst, worst / unit, scale, dtype, spread)


def measure(
    built: Built,
    ir: str,
    target: str,
    repeats: int,
    progress: Progress,
    rivals: Sequence[str] = (),
) -> TimeResult:
    """Compare with PyTorch, then time against PyTorch eager, interleaved.

    Every run counts the whole way: PyTorch draws the masks, tensors go in, results come out as
    tensors of their own, and the device has finished. With a backward, forward alone and forward
    and backward are timed. The number of threads is set before.

    Args:
        rivals: in `engine.session.RIVALS`, timed in turn with both; one that cannot be compiled
            is left out, and a note says why.
    """
    comparisons = compare(built, lambda f, t: progress(0.2 * f, t))
    model = built.model

    def forward() -> object:
        return built.forward(built.masks(None))

    def forward_backward() -> object:
        masks = built.masks(None)
        _, captures = built.forward(masks)
        return built.backward(masks, captures)

    def wait() -> None:
        if model.device.type == "cuda":
            torch.cuda.synchronize()

    runs: dict[str, Callable[[], object]] = {"forward": forward}
    if built.step.has_backward:
        runs["forward_backward"] = forward_backward
    modules, notes = _compiled(model, rivals, lambda f, t: progress(0.2 + 0.3 * f, t))
    start = 0.5 if rivals else 0.2
    rows: list[TimeRow] = []
    for index, (phase, run) in enumerate(runs.items()):
        share = (1 - start) / len(runs)
        low = start + share * index
        backward = phase == "forward_backward"
        contenders = {"eager": model.eager(backward), "ours": run}
        contenders |= {n: model.eager(backward, module) for n, module in modules.items()}
        measured = timing.interleave(
            contenders, repeats, wait,
            lambda f, t, low=low, share=share, phase=phase: progress(  # type: ignore[misc]
                low + share * f, f"{phase.replace('_', ' and ')}, {t}"
            ),
        )  # fmt: skip
        outputs = [c.max_abs for c in comparisons if c.name.startswith("output")]
        everything = [c.max_abs for c in comparisons]
        eager = measured["eager"]
        rows += [
            timing.row("pytorch eager", phase, eager, None, None, None),
            timing.row(
                f"{ir}, {target}", phase, measured["ours"], eager,
                max(everything if backward else outputs), built.capture_bytes,
            ),
        ]  # fmt: skip
        for name, module in modules.items():
            row = timing.row(name, phase, measured[name], eager, error_of(model, module), None)
            rows.append(replace(row, ours_over=timing.ratio(measured["ours"], measured[name])))
    return TimeResult(
        timing.machine(),
        target,
        torch.get_num_threads(),
        tuple(rows),
        comparisons,
        built.seconds,
        (*notes, *timing.unsteady(rows)),
    )


def _compiled(
    model: Model, rivals: Sequence[str], progress: Progress
) -> tuple[dict[str, Callable[..., Any]], list[str]]:
    """What torch.compile makes of the model, compiled; and why of some it makes nothing."""
    found: dict[str, Callable[..., Any]] = {}
    notes = []
    if rivals:
        torch._dynamo.reset()  # or what an earlier model made it give up on is remembered
    for index, name in enumerate(rivals):
        progress(index / len(rivals), f"{name}, which compiles first")
        try:
            module = compiled(model, name)
            for backward in {False, model.source.training}:
                first_run(model.eager(backward, module))
            found[name] = module
        except CannotCompile as error:
            notes.append(f"{name} is not timed: {error}.")
    return found, notes
