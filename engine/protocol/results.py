"""A loaded model, the steps of a pipeline, a split, and a pass shown on a small program."""

from __future__ import annotations

from dataclasses import dataclass, field

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, TensorType
from relascope.engine.protocol.source import ModelSource


@dataclass(frozen=True)
class ModelInfo:
    """A loaded model: its graph as the frontend imported it, and what is to be said of it.

    Args:
        parameters: number of parameter elements.
        arguments: (name, type) of the graph's arguments: inputs first, then parameters in
            PyTorch's order.
        input_count: how many of `arguments` are inputs.
        seconds: what tracing and importing took.
        notes: sentences a person should read (what the import changed or left out).
    """

    source: ModelSource
    graph: Graph
    parameters: int
    arguments: tuple[tuple[str, TensorType], ...]
    input_count: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepRecord:
    """What one step of a pipeline did. Fields `pass_name` to `seconds` are the command line's.

    Args:
        seconds: wall time of the pass itself, without making the graph; 0.0 where it did not run.
        added, removed, changed: counts of nodes against the step before (see `core.identity`).
        operators: how often each operator is called after the step.
        error: why the pass failed, or None. The steps after a failed one go on from the program
            before it.
        printed: what the pass printed.
    """

    pass_name: str
    enabled: bool
    changed: int
    added: int
    removed: int
    nodes: int
    seconds: float
    operators: dict[str, int] = field(default_factory=dict)
    error: EngineError | None = None
    printed: str = ""


@dataclass(frozen=True)
class SplitResult:
    """The two functions that a joint graph was sawn into.

    `forward` returns the model's outputs, then the captures. `backward` takes what it needs of the
    inputs, parameters, masks and grad_outs, then the captures, and returns the gradients.
    """

    forward: Graph
    backward: Graph
    seconds: float


@dataclass(frozen=True)
class PassExample:
    """What a pass does to a program small enough to read.

    Args:
        step: the pass with its parameters, as a pipeline has it.
        arguments: (name, type) of the program before the pass.
        before, after: the IR's text, shortened by rule; see `engine.server.examples`.
        graph_before, graph_after: the same as graphs; nodes that the pass left keep their ids.
        differs: why the program computes something else afterwards, on purpose; "" where it
            computes the same.
    """

    step: str
    arguments: tuple[tuple[str, TensorType], ...]
    before: str
    after: str
    graph_before: Graph
    graph_after: Graph
    differs: str = ""
