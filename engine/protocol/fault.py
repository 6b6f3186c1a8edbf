"""A fault of a pass, narrowed to a piece of the program before it: the plain data that travels."""

from dataclasses import dataclass

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.passes.pipeline import Pipeline

OF_PASS = ("long", "memory")
"""Kinds of faults that are of the passes themselves, and not of the program that they make."""
OF_TEST = "bad"
"""The kind of what a person's own test calls bad."""


@dataclass(frozen=True)
class ModuleFiles:
    """A module as files. `name` ends in ".py" (TVMScript), ".relay" (Relay's text) or, where TVM
    cannot read its own text back, ".json" (TVM's JSON). `values` is the content of the ".npz"
    beside it: an array for each argument of "main" by name, bfloat16 as float32."""

    name: str
    module: bytes
    values: bytes

    @property
    def files(self) -> dict[str, bytes]:
        return {self.name: self.module, f"{self.name.rpartition('.')[0]}.npz": self.values}


@dataclass(frozen=True)
class ScriptRun:
    """A run of a person's own test; its exit status is None where it was stopped at its limit of
    time."""

    status: int | None
    seconds: float
    output: str = ""

    @property
    def verdict(self) -> str:
        """What it says of the module: "good", "bad" or "cannot be run", which is 125."""
        return {0: "good", 125: "cannot be run"}.get(self.status, OF_TEST)  # type: ignore[arg-type]

    @property
    def words(self) -> str:
        """What it did, and the last line that it printed."""
        last = self.output.rstrip().rpartition("\n")[2][:200]
        done = f"exit status {self.status}"
        if self.status is None:
            done = f"a time-out after {self.seconds:.3g} s"
        return f"{done} ({last})" if last else done


@dataclass(frozen=True)
class Where:
    """Which passes of a pipeline are under suspicion, and what the fault is.

    Args:
        pipeline: ends with the fault.
        kind: "wrong", "slow", "crash"; of the passes themselves, "long" (they take more seconds
            than the limit) or "memory" (more bytes stay); "bad" by a person's own test.
        limit: least difference that is wrong, relative to scale; least ratio of times that is slow.
        tail: the steps after the last suspect run, too, with and without suspects: the fault needs
            them.
        building: compile and run it; a pass that crashes by itself needs neither.
        absolute: what differs by no more is not wrong.
        runs: looks at a piece; one is enough to show the fault.
        plain: build operator by operator, as TVM's default may crash in the same way without the
            suspects.
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
    plain: bool = False


@dataclass(frozen=True)
class Suspects:
    """The program before the suspected passes; `near` are ids of nodes near the fault, or none."""

    graph: Graph
    near: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """What a piece of a program shows. `outcome` is "good", a kind of `Where`, "refused" (by a pass
    of the catalogue), "bad before" (by a person's own test, without the passes too) or "cannot be
    run"; `outputs` are ids of those that are wrong, the worst first, and `crash` is as of
    `engine.faults.show.Fault`. `seconds` and `kept_bytes` are of the passes themselves, as of
    `StepRecord`."""

    outcome: str
    outputs: tuple[str, ...] = ()
    max_abs: float | None = None
    max_rel: float | None = None
    ratio: float | None = None
    error: EngineError | None = None
    crash: str = ""
    seconds: float | None = None
    kept_bytes: int | None = None
    test: ScriptRun | None = None


@dataclass(frozen=True)
class Account:
    """What a report says of how it came about. `model` is its name without a folder; `minimal` says
    whether the fault goes away without any one of its nodes; `seconds` and `memory` are limits, as
    of `engine.limits.Limits`; `test` is a person's own in the report, or ""; `bisected` is what
    bisection said; `command` was run, or would do the same."""

    model: str
    shown: Shown
    found: str
    minimal: bool
    seconds: float = 0.0
    memory: float = 0.0
    test: str = ""
    bisected: str = ""
    command: str = ""


@dataclass(frozen=True)
class Passage:
    """A part of a report's text: words, code and a table, each of them or none. `title` is of the
    section that it begins, "" where it goes on; `words` are sentences, or a list of them in lines,
    with names in backticks; `file` is where all of the code is written to if it is too long, "" for
    what is never cut."""

    title: str = ""
    words: str = ""
    code: str = ""
    language: str = ""
    rows: tuple[dict[str, str], ...] = ()
    file: str = ""


@dataclass(frozen=True)
class Report:
    """A report that runs by itself. `before` and `after` are the IR's text around the suspected
    passes, "" where they crash, and `graph_before` and `graph_after` the same as graphs, whose
    nodes that the passes left keep their ids. `files` are contents by relative path, with slashes,
    of which "report.py" is to be run, unless a person's own test decides; `passages` are the text
    of its README.md."""

    title: str
    before: str
    after: str
    files: dict[str, bytes]
    graph_before: Graph
    graph_after: Graph | None = None
    passages: tuple[Passage, ...] = ()
