"""From a source and a pipeline to the joint graph that capture strategies cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.session import EngineError, ModelSource
from passes.cuts.joint import Joint
from passes.pipeline import Pipeline
from viz.graph import Graph

Ask = Callable[..., Any]
"""Calls a method of a session by its name."""


def joint_of(ask: Ask, source: ModelSource, pipeline: Pipeline) -> Joint:
    """The joint graph at a pipeline's end, with what the compiler makes one kernel each.

    Raises:
        EngineError: kind "pass"; the pipeline takes no gradient. Also what the session raises.
    """
    graph: Graph = ask("graph_after", source, pipeline, len(pipeline) - 1)
    if graph.forward_outputs is None:
        raise EngineError(
            "pass", "There is no gradient to cut: the pipeline does not take one.", "--passes",
            "Use the default training pipeline, or add the gradient step.",
        )  # fmt: skip
    return Joint(graph, ask("kernels", source, pipeline))
