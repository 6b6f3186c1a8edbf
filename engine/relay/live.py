"""A live PyTorch module as built Relay functions; what `engine.dispatch` runs.

Functions are built when they are first needed: one for inference, and a forward and a backward for
each set of gradients that is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import torch

from engine.building import BuildOptions
from engine.model import Model
from engine.relay.frontend import import_model
from engine.relay.runtime import Compiled, build
from engine.relay.to_graph import to_graph
from engine.steps import TrainingStep
from passes.catalogue import default_pipeline
from passes.cut import cut
from passes.pipeline import Pipeline
from passes.relay.keep_gradients import keep_gradients
from passes.relay.program import RelayProgram
from passes.relay.split import split

# Without binding parameters: they change from step to step.
_FORWARD = "externalize_dropout|cse|linear_to_dense|simplify_inference"


def _silent(fraction: float, text: str) -> None:
    """Nobody watches."""


class LiveProgram:
    """One trace of a module.

    Args:
        model: the trace.
        captures: name of the strategy that picks the captures.
        target: TVM's target string.

    Raises:
        EngineError: kind "operator", what the frontend cannot import.
    """

    def __init__(self, model: Model, captures: str, target: str) -> None:
        self._captures, self._options = captures, BuildOptions(target)
        self.program = import_model(model, _silent)
        drawn = _run(self.program, Pipeline.parse("externalize_dropout"))
        self.masks = drawn.masks
        self._joint: RelayProgram | None = None
        self._forward: Compiled | None = None
        self._steps: dict[frozenset[str], TrainingStep] = {}

    def forward(self, values: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs, nothing saved.

        Args:
            values: inputs, parameters, buffers and masks by name.
        """
        if self._forward is None:
            program = _run(self.program, Pipeline.parse(_FORWARD))
            self._forward = build(program, self._options)
        return self._forward.run(values, keep=self.program.params)

    def step(self, wanted: Collection[str]) -> TrainingStep:
        """The forward and backward that give the gradients of the arguments named."""
        key = frozenset(wanted)
        if key not in self._steps:
            if self._joint is None:
                self._joint = _run(self.program, default_pipeline("relay", training=True))
            joint = keep_gradients(self._joint, key)
            graph, exprs = to_graph(joint)
            halves = split(joint, graph, exprs, cut(graph, self._captures).ids)
            self._steps[key] = TrainingStep(joint, halves, partial(build, options=self._options))
        return self._steps[key]


def _run(program: RelayProgram, pipeline: Pipeline) -> RelayProgram:
    from passes.catalogue import info

    for step in pipeline:
        program = info("relay", step).load()(program, **dict(step.params))
    return program
