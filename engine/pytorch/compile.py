"""torch.compile as a contender: PyTorch's own compiler beside PyTorch eager and what TVM built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from relascope.core.errors import lines_of
from relascope.engine.protocol.times import BASELINES
from relascope.engine.pytorch.model import Model, flat_tensors

_TOLD: list[dict[str, Any]] = [{}, {"mode": "reduce-overhead"}]
"""What it is told for each of `BASELINES`."""


class CannotCompile(Exception):
    """torch.compile does not take the model here; says why in a sentence."""


def compiled(model: Model, name: str) -> Callable[..., Any]:
    """The model's module under torch.compile, which compiles when it first runs.

    Args:
        name: in `engine.protocol.times.BASELINES`.

    Raises:
        CannotCompile: the model is TorchScript, which is compiled already.
    """
    if isinstance(model.module, torch.jit.ScriptModule):
        raise CannotCompile("it is a TorchScript file, and torch.compile takes Python modules")
    made: Callable[..., Any] = torch.compile(model.module, **_TOLD[BASELINES.index(name)])
    return made


def first_run(run: Callable[[], object]) -> None:
    """Have it compile.

    Raises:
        CannotCompile: it failed; with the first line of what it said.
    """
    try:
        run()
    except Exception as error:  # a compiler that is missing, an operator: whatever it is, is told
        raise CannotCompile(lines_of(error)[0]) from error


def error_of(model: Model, module: Callable[..., Any]) -> float | None:
    """The largest difference of its outputs to eager's, both in inference; None in training,
    where each draws dropout of its own."""
    if model.source.training:
        return None
    with torch.no_grad():
        theirs = flat_tensors(module(*model.inputs))
    pairs = zip(theirs, model.forward(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())
