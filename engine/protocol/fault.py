"""A fault of a pass, narrowed to a piece of the program before it: the plain data that travels."""

from __future__ import annotations

from dataclasses import dataclass

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.passes.pipeline import Pipeline

OF_PASS = ("long", "memory")
"""Kinds of faults that are of the passes themselves, and not of the program that they make."""


@dataclass(frozen=True)
class Where:
    """Which passes of a pipeline are under suspicion, and what the fault is.

    Args:
        pipeline: ends with the fault.
        first, last: indices of the first and the last suspected step.
        kind: "wrong", "slow", "crash"; of the passes themselves, "long" (they take more seconds
            than the limit) or "memory" (more bytes stay).
        target: what is compiled for.
        limit: wrong is what differs by more than this, relative to scale; slow is what takes
            longer than this times what it took before.
        tail: whether the steps after the last suspect are run as well, with the suspects and
            without them: the fault shows only then.
        building: whether it is compiled and run; a pass that crashes by itself needs neither.
        absolute: what differs by no more is not wrong.
        runs: how often a piece is looked at: it shows the fault where one look does.
    """

    pipeline: Pipeline
    first: int
    last: int
    kind: str
    target: str
    limit: float
    tail: bool = False
    building: bool = True
    absolute: float = 0.0
    runs: int = 1


@dataclass(frozen=True)
class Suspects:
    """The program before the suspected passes, and the nodes near which the fault must be.

    Args:
        near: ids of nodes, none where that is not known.
    """

    graph: Graph
    near: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """What a piece of a program shows.

    Args:
        outcome: "good", a kind of `Where`, "refused" (a pass of the catalogue says itself that it
            does not take the program) or "cannot be run".
        outputs: ids of the outputs that are wrong, the worst first.
        max_abs, max_rel: of the worst output, after the passes against before them.
        ratio: of the time after the passes to that before them.
        error: what was raised, where it crashed, was refused or cannot be run.
        crash: of a crash, as of `engine.faults.show.Fault`.
        seconds, kept_bytes: of the passes, where they themselves are looked at; the latter as of
            `engine.protocol.results.StepRecord`.
    """

    outcome: str
    outputs: tuple[str, ...] = ()
    max_abs: float | None = None
    max_rel: float | None = None
    ratio: float | None = None
    error: EngineError | None = None
    crash: str = ""
    seconds: float | None = None
    kept_bytes: int | None = None


@dataclass(frozen=True)
class Account:
    """What a report says of how it came about.

    Args:
        model: name of the model, without a folder.
        shown: what the piece shows.
        found: in sentences, how it was found.
        minimal: whether the fault goes away without any one of its nodes.
        seconds, memory: the limits that were set, as of `engine.limits.Limits`.
    """

    model: str
    shown: Shown
    found: str
    minimal: bool
    seconds: float = 0.0
    memory: float = 0.0


@dataclass(frozen=True)
class Report:
    """A report that runs by itself.

    Args:
        title: one line.
        before, after: the IR's text of the piece before and after the suspected passes; "" where
            they crash.
        files: contents by path, relative and with slashes; "report.py" is the one to run.
        graph_before, graph_after: the same as graphs; nodes that the passes left keep their ids.
    """

    title: str
    before: str
    after: str
    files: dict[str, bytes]
    graph_before: Graph
    graph_after: Graph | None = None
