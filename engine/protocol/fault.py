"""A fault of a pass, narrowed to a piece of the program before it: the plain data that travels."""

from dataclasses import dataclass

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.passes.pipeline import Pipeline

OF_PASS = ("long", "memory")
"""Kinds of faults of the passes themselves, not of the program that they make."""
OF_TEST = "bad"
"""The kind of fault that the user's own test finds."""


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
    """A run of the user's own test; its exit status is None where the time limit stopped it."""

    status: int | None
    seconds: float
    output: str = ""

    @property
    def verdict(self) -> str:
        """What it says about the module: "good" (0), "cannot be run" (125), or else "bad"."""
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
class Suspicion:
    """Which passes of a pipeline, which ends with the fault, are under suspicion, and what it is.

    `kind` is "wrong", "slow", "crash"; of the passes themselves, "long" (they take more seconds
    than the `limit`) or "memory" (more bytes stay); "bad" by the user's own test. `limit` is the
    least difference that is wrong, relative to scale, or the least ratio of times that is slow; a
    difference up to `absolute` is not wrong. With `tail`, the steps after the last suspect run,
    too, with and without suspects: the fault needs them. `building` compiles and runs it, which is
    not needed where a pass itself crashes. `runs` is how often to look at a piece; one that shows
    the fault is enough. `plain` builds operator by operator, because TVM's default may crash in the
    same way without the suspects."""

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
class PieceResult:
    """What a piece of a program shows. `outcome` is "good", a kind of `Suspicion`, "refused" (by a
    pass of the catalogue), "bad before" (the user's own test fails without the passes, too) or
    "cannot be run"; `outputs` are ids of wrong outputs, the worst first, and `crash` is as in
    `engine.faults.show.Fault`. `seconds` and `kept_bytes` are of the passes themselves, as in
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
    """How a report came about. `model` is its name without a folder; `minimal` says whether the
    fault goes away without any one of its nodes; `seconds` and `memory` are limits, as in
    `engine.limits.Limits`; `test` is the user's own test in the report, or ""; `bisected` is the
    result of bisection; `command` was run, or would do the same."""

    model: str
    shown: PieceResult
    summary: str
    minimal: bool
    seconds: float = 0.0
    memory: float = 0.0
    test: str = ""
    bisected: str = ""
    command: str = ""


@dataclass(frozen=True)
class Passage:
    """A part of a report's text: words, code and a table, each of them optional. `title` is that of
    the section that it begins, "" where it continues one; `words` are sentences, or a list of them
    in lines, with names in backticks; `file` gets the whole if too long, "" if never cut."""

    title: str = ""
    words: str = ""
    code: str = ""
    language: str = ""
    rows: tuple[dict[str, str], ...] = ()
    file: str = ""


@dataclass(frozen=True)
class Report:
    """A report that runs on its own. `before` and `after` are the IR's text around the suspected
    passes, "" where they crash, and `graph_before` and `graph_after` the same as graphs; nodes that
    the passes left keep their ids. `files` are contents by relative path, with slashes; "report.py"
    is to be run, unless the user's own test decides. `passages` are its README.md."""

    title: str
    before: str
    after: str
    files: dict[str, bytes]
    graph_before: Graph
    graph_after: Graph | None = None
    passages: tuple[Passage, ...] = ()
