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
    """A module as files.

    Args:
        name: of the module's file: it ends in ".py" as TVMScript, in ".relay" as Relay's text, and
            in ".json" as TVM's JSON, where TVM does not read its own text back.
        module: its content.
        values: content of the file beside it that ends in ".npz": an array for each argument of
            "main" by its name; of bfloat16, as float32.
    """

    name: str
    module: bytes
    values: bytes

    @property
    def files(self) -> dict[str, bytes]:
        return {self.name: self.module, f"{self.name.rpartition('.')[0]}.npz": self.values}


@dataclass(frozen=True)
class ScriptRun:
    """A run of a person's own test.

    Args:
        status: exit status; None where it was stopped at its limit of time.
    """

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
        limit: wrong is what differs by more than this, relative to scale; slow is what takes
            longer than this times what it took before.
        tail: whether the steps after the last suspect are run as well, with the suspects and
            without them: the fault shows only then.
        building: whether it is compiled and run; a pass that crashes by itself needs neither.
        absolute: what differs by no more is not wrong.
        runs: how often a piece is looked at: it shows the fault where one look does.
        plain: whether it is built operator by operator, and not as TVM does by default, which may
            crash in the same way without the suspects.
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
            does not take the program), "bad before" (by a person's own test, without the passes
            too) or "cannot be run".
        outputs: ids of the outputs that are wrong, the worst first.
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
    test: ScriptRun | None = None


@dataclass(frozen=True)
class Account:
    """What a report says of how it came about.

    Args:
        model: name of the model, without a folder.
        minimal: whether the fault goes away without any one of its nodes.
        seconds, memory: the limits that were set, as of `engine.limits.Limits`.
        test: the file of a person's own test in the report; "" without one.
    """

    model: str
    shown: Shown
    found: str
    minimal: bool
    seconds: float = 0.0
    memory: float = 0.0
    test: str = ""


@dataclass(frozen=True)
class Report:
    """A report that runs by itself.

    Args:
        before, after: the IR's text of the piece before and after the suspected passes; "" where
            they crash.
        files: contents by path, relative and with slashes; "report.py" is the one to run, but where
            a person's own test decides.
        graph_before, graph_after: the same as graphs; nodes that the passes left keep their ids.
    """

    title: str
    before: str
    after: str
    files: dict[str, bytes]
    graph_before: Graph
    graph_after: Graph | None = None
