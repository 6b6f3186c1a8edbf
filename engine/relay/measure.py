"""What was built, compared with PyTorch and timed against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

import torch

from engine import timing
from engine.model import Model, draw_masks
from engine.relay.runtime import BuildOptions, Compiled, TrainingStep, build, set_threads
from engine.session import Comparison, EngineError, Progress, TimeResult, TimeRow
from passes.relay.program import RelayProgram
from passes.relay.split import Halves

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Built:
    """A program that was built, with what is needed to run it on a model's inputs.

    Args:
        whole: the inference function; None where `step` is set.
        step: forward and backward.
        capture_bytes: what is held between the two.
        seconds: what building took.
    """

    model: Model
    program: RelayProgram
    whole: Compiled | None
    step: TrainingStep | None
    capture_bytes: int | None
    seconds: float

    def forward(self, masks: Tensors) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
        """The model's outputs, and the captures by name."""
        values = self._values(masks)
        if self.step is not None:
            return self.step.forward(values)
        assert self.whole is not None
        return self.whole.run(values, keep=tuple(self.program.params)), {}

    def backward(self, masks: Tensors, captures: Tensors) -> dict[str, torch.Tensor]:
        """The gradients under the model's grad_outs, by the name of what they are of."""
        assert self.step is not None
        grad_outs = self.model.grad_outs()
        floating = [g for g in grad_outs if g.is_floating_point()]
        named = dict(zip(self.program.grad_outs, floating, strict=True))
        return self.step.backward({**self._values(masks), **named, **captures})

    def _values(self, masks: Tensors) -> dict[str, torch.Tensor]:
        model = self.model
        inputs = dict(zip(model.input_names, model.inputs, strict=True))
        return {**inputs, **model.parameters, **model.buffers, **masks}


def build_for(
    model: Model, program: RelayProgram, halves: Halves | None, target: str, progress: Progress
) -> Built:
    """Build a program: whole, or as the two halves it was split into.

    Raises:
        EngineError: kind "target" (TVM cannot build it), kind "usage" (a joint program without
            halves, which would return gradients that nobody asked for).
    """
    options = BuildOptions(target)
    began = perf_counter()
    if halves is None:
        if program.gradients:
            raise EngineError(
                "usage", "The pipeline ends in a joint graph, which is built as two functions.",
                "captures", "Choose a capture strategy, or leave out the gradient's steps.",
            )  # fmt: skip
        progress(0.0, f"building for {target}")
        whole = build(program, options)
        return Built(model, program, whole, None, None, perf_counter() - began)
    progress(0.0, f"building forward and backward for {target}")
    step = TrainingStep(program, halves, options)
    return Built(model, program, None, step, halves.cut.bytes, perf_counter() - began)


def compare(built: Built, progress: Progress) -> tuple[Comparison, ...]:
    """Run once under the source's seed; compare every output and gradient with PyTorch's."""
    model = built.model
    progress(0.0, "running PyTorch")
    expected = {f"output {i}": t for i, t in enumerate(model.forward())}
    if built.step is not None:
        expected.update({f"gradient of {n}": t for n, t in model.gradients().items()})
    progress(0.5, "running what was built")
    masks = draw_masks(built.program.masks, model.source.seed)
    outputs, captures = built.forward(masks)
    found = {f"output {i}": t for i, t in enumerate(outputs)}
    if built.step is not None:
        gradients = built.backward(masks, captures)
        found.update({f"gradient of {n}": t for n, t in gradients.items()})
    if set(found) != set(expected):
        raise EngineError(
            "engine", "What was built does not return what the model returns.",
            ", ".join(sorted(set(found) ^ set(expected))), "Report this; it is a fault of ours.",
        )  # fmt: skip
    scales = {name: _scale(tensor) for name, tensor in expected.items()}
    floor = max((s for n, s in scales.items() if n.startswith("gradient")), default=0.0) * 1e-3
    return tuple(
        _comparison(
            name, found[name], expected[name], scales[name],
            max(scales[name], floor if name.startswith("gradient") else 0.0),
        )
        for name in expected
    )  # fmt: skip


def _scale(tensor: torch.Tensor) -> float:
    """The largest finite magnitude."""
    finite = tensor.to(torch.float64).abs().nan_to_num(nan=0.0, posinf=0.0)
    return float(finite.max()) if tensor.numel() else 0.0


def _comparison(
    name: str, ours: torch.Tensor, theirs: torch.Tensor, scale: float, against: float
) -> Comparison:
    dtype = str(theirs.dtype).removeprefix("torch.")
    if ours.shape != theirs.shape:
        raise EngineError(
            "engine", f"{name} has the shape {list(ours.shape)}, PyTorch's {list(theirs.shape)}.",
            name, "Report this; it is a fault of ours.",
        )  # fmt: skip
    if not theirs.numel():
        return Comparison(name, 0.0, 0.0, 0.0, dtype)
    a, b = ours.to(torch.float64), theirs.to(torch.float64)
    # NaN compares as an infinite error, unless PyTorch has it in the same place.
    difference = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
    worst = float(difference.nan_to_num(nan=float("inf")).max())
    return Comparison(name, worst, worst / against if against else worst, scale, dtype)


def measure(
    built: Built, target: str, threads: int, repeats: int, progress: Progress
) -> TimeResult:
    """Compare with PyTorch, then time against PyTorch eager, interleaved.

    Every run counts the whole way: PyTorch draws the masks, tensors go in, results come out as
    tensors of their own. With a backward, forward alone and forward and backward are timed.
    """
    set_threads(threads)
    comparisons = compare(built, lambda f, t: progress(0.2 * f, t))
    model, program = built.model, built.program

    def forward() -> object:
        return built.forward(draw_masks(program.masks, None))

    def forward_backward() -> object:
        masks = draw_masks(program.masks, None)
        _, captures = built.forward(masks)
        return built.backward(masks, captures)

    runs: dict[str, Callable[[], object]] = {"forward": forward}
    if built.step is not None:
        runs["forward_backward"] = forward_backward
    rows: list[TimeRow] = []
    for index, (phase, run) in enumerate(runs.items()):
        low = 0.2 + 0.8 * index / len(runs)
        share = 0.8 / len(runs)
        measured = timing.interleave(
            {"eager": model.eager(phase == "forward_backward"), "ours": run}, repeats,
            lambda f, t, low=low, share=share, phase=phase: progress(  # type: ignore[misc]
                low + share * f, f"{phase.replace('_', ' and ')}, {t}"
            ),
        )  # fmt: skip
        outputs = [c.max_abs for c in comparisons if c.name.startswith("output")]
        everything = [c.max_abs for c in comparisons]
        rows += [
            timing.row("pytorch eager", phase, measured["eager"], None, None, None),
            timing.row(
                f"relay, {target}", phase, measured["ours"], measured["eager"],
                max(outputs if phase == "forward" else everything), built.capture_bytes,
            ),
        ]  # fmt: skip
    return TimeResult(
        timing.machine(), target, torch.get_num_threads(), tuple(rows), comparisons, built.seconds
    )
