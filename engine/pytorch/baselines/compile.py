"""Baselines besides PyTorch eager: torch.compile and ONNX Runtime."""

from collections.abc import Callable
from typing import Any

import torch

from relascope.core.errors import lines_of
from relascope.engine.protocol.results import PYTORCH
from relascope.engine.pytorch.baselines import onnx_runtime
from relascope.engine.pytorch.model import Model, flat_tensors

_TOLD: dict[str, dict[str, Any]] = {
    "torch.compile": {},
    "torch.compile, reduce-overhead": {"mode": "reduce-overhead"},
}
"""Arguments of torch.compile, by the baseline's name in `engine.protocol.times.BASELINES`."""


class CannotCompile(Exception):
    """A baseline cannot run the model here; the message says why."""


def compiled(model: Model, name: str) -> Callable[..., Any]:
    """The model's module under a baseline of `engine.protocol.times.BASELINES`: torch.compile,
    which compiles in its first run, or ONNX Runtime. Raises CannotCompile if the baseline is not
    installed or cannot run the model."""
    if model.against != PYTORCH:
        raise CannotCompile("the program did not come from PyTorch")
    if name not in _TOLD:
        return _exported(model)
    if isinstance(model.module, torch.jit.ScriptModule):
        raise CannotCompile("it takes Python modules, not TorchScript files")
    run: Callable[..., Any] = model.run if model.pairs else model.module
    return torch.compile(run, **_TOLD[name])


def _exported(model: Model) -> Callable[..., Any]:
    if model.source.training:
        raise CannotCompile("it has no gradients, and this model is opened for training")
    if model.device.type != "cpu":
        raise CannotCompile("it runs only on the CPU here")
    if not onnx_runtime.is_installed():
        raise CannotCompile("it is not installed: pip install relascope[onnxruntime]")
    try:
        return onnx_runtime.exported(model.module, model.own_inputs(model.inputs))
    except Exception as error:  # from the exporter, its missing package, or the runtime
        lines = lines_of(error)
        said = lines[0].rstrip(".") if lines else type(error).__name__
        raise CannotCompile(f"the model cannot be exported to it: {said[:300]}") from error


def first_run(run: Callable[[], object]) -> None:
    """Run once, which compiles; raise CannotCompile with the first line of any error."""
    try:
        run()
    except Exception as error:  # of any kind, such as a missing compiler
        raise CannotCompile(lines_of(error)[0]) from error


def error_of(model: Model, module: Callable[..., Any]) -> float | None:
    """The largest difference between its outputs and eager's in inference; None in training, where
    dropout masks differ."""
    if model.source.training:
        return None
    with torch.no_grad():
        theirs = flat_tensors(module(*model.inputs))
    pairs = zip(theirs, model.forward(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())
