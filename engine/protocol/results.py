"""A loaded model, the steps of a pipeline, a split, and a pass on a small example."""

from dataclasses import dataclass, field
from typing import ClassVar

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, TensorType, line_number
from relascope.engine.protocol.source import ModelSource


@dataclass(frozen=True)
class ImportChange:
    """Something that an import did beside writing each operator as TVM's. `kind` is in `KINDS`:
    "externalised" means that it became an argument or result; `operator` is PyTorch's, or the name
    of the first tensor, and `count` says how many there are. `nodes` are ids in the imported graph
    that came from it or stand in its place; `became` counts each operator that came from it."""

    KINDS: ClassVar[tuple[str, ...]] = ("changed", "dropped", "externalised")

    kind: str
    what: str
    operator: str
    count: int
    nodes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    became: dict[str, int] = field(default_factory=dict)


PYTORCH = "PyTorch"
"""What the numbers of a PyTorch model are compared with."""
IMPORTED = "the imported program"
"""The same for a program that came without PyTorch, and without a runtime."""
PYTORCHS_OPERATORS = "PyTorch, operator by operator"
"""The same where PyTorch has a counterpart of each operator."""
UNBUILT = "TVM cannot build this"
"""The beginning of a failed build's error, kind "target"."""


@dataclass(frozen=True)
class Branches:
    """What decides each `if` of a program that came without PyTorch. `inputs` and `computed` are
    names of the inputs, and of the computed values, that decide one; `looped` counts the others, in
    recursive functions, where neither side can be forced."""

    inputs: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    looped: int = 0


@dataclass(frozen=True)
class ModelInfo:
    """A loaded model: its graph as imported, and notes.

    `parameters` counts parameter elements; `arguments` has (name, type) of the graph's arguments:
    inputs first, then parameters in PyTorch's order. `seconds` are of tracing and importing;
    `notes` say what the import changed or left out; `calls` is how often the whole model calls it,
    if it is a submodule. `against` is what its numbers are compared with, after "against": PyTorch,
    or without it the imported program or a judge; whether that can judge it is known only if asked.
    `unjudged` is a sentence that says why nothing outside TVM judges its numbers, or ""."""

    source: ModelSource
    graph: Graph
    parameters: int
    arguments: tuple[tuple[str, TensorType], ...]
    input_count: int
    seconds: float
    notes: tuple[str, ...] = ()
    calls: int = 1
    changes: tuple[ImportChange, ...] = ()
    against: str = PYTORCH
    unjudged: str = ""
    branches: Branches = Branches()


@dataclass(frozen=True)
class OpenSize:
    """A size that an exported program leaves open. `size` is the example's, or the chosen one;
    `least` and `most` bound what the program takes, None for no bound; `places` are the dimensions
    of inputs that have it: "x.0", or "x.0 = 2*s77"."""

    symbol: str
    size: int
    least: int
    most: int | None
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelInputs:
    """A model's inputs, without importing it. `inputs` are as `engine.protocol.source.parse_inputs`
    reads them, with the range drawn for integers; `says` tells where each gets its values, `sizes`
    are those that an exported program leaves open."""

    inputs: tuple[str, ...]
    says: tuple[str, ...]
    sizes: tuple[OpenSize, ...] = ()


@dataclass(frozen=True)
class ModuleRow:
    """A module of a model, in one run of the whole. `path` is "" for the whole; `parameters` counts
    elements, its submodules' included; `calls` says how often it runs, 0 where nothing calls its
    forward(). `inputs` and `outputs` are types of the tensors of its first call; `seconds` is the
    time of all its calls, its submodules' included, None where there is none."""

    path: str
    kind: str
    parameters: int
    calls: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    seconds: float | None


@dataclass(frozen=True)
class NamedModel:
    """A model that can be opened by its name. `name` is as in `ModelSource.model`, `kind` its
    class, or the library that makes it, and `parameters` the number of their elements, None where
    they were not or cannot be counted."""

    name: str
    kind: str
    parameters: int | None
    weights: bool


@dataclass(frozen=True)
class StepRecord:
    """What one step of a pipeline did. Fields `pass_name` to `seconds` are the command line's.
    `seconds` is wall time of the pass alone, 0.0 where it did not run; `added`, `removed` and
    `changed` count nodes against the step before (see `core.identity`), `operators` how often each
    is called after it. `error` says why it failed; the next step then starts from the program
    before it. `kept_bytes` is what the process keeps after the pass, the allocator's included, new
    constants of the program left out; `state` is equal for equal programs, "" if unknown."""

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
    kept_bytes: int = 0
    state: str = ""

    @property
    def idle(self) -> bool:
        """Whether it is known to have changed nothing."""
        touched = self.added or self.removed or self.changed or self.error
        return self.nodes > 0 and not touched


@dataclass(frozen=True)
class ExampleRun:
    """An example of the user's own pass, run as a test. `name` is that of the function that makes
    the program before the pass; `said` is what is wrong, a sentence each, empty where it passed;
    `diff` is between the expected text and the pass's, "" where they agree, or nothing is expected.
    `max_rel` is the largest difference of a result, relative to its scale, None if not compared."""

    pass_name: str
    name: str
    said: tuple[str, ...] = ()
    diff: str = ""
    max_rel: float | None = None
    dtype: str = ""
    expected: bool = False


@dataclass(frozen=True)
class Application:
    """A place where a pass on our rewriters replaced something, in order. `id` is in the graph
    before the pass, "" for a node of the pass itself; the others are the node's, if known."""

    id: str
    title: str
    scope: str
    source: str
    line: str = ""

    @property
    def words(self) -> str:
        """The node in a sentence: "`add` of encoder.0 (aten::add, model.py:12)"."""
        scope = f" of {self.scope}" if self.scope else ""
        made = ", ".join(filter(None, (self.source, line_number(self.line))))
        return f"`{self.title}`{scope}" + (f" ({made})" if made else "")


@dataclass(frozen=True)
class SplitResult:
    """The functions of a split joint graph. `forward` returns the model's outputs, then the
    captures; `backward` takes arguments that it needs, then captures, and returns gradients."""

    forward: Graph
    backward: Graph
    seconds: float


@dataclass(frozen=True)
class FunctionText:
    """The shortened text of one function. `head` is its first line, which names its arguments,
    `lines` are its body's, without common indentation, and `tail` ends it, or is "". A `kernel` is
    a loop nest, shown only where a pass makes or changes it; `indent` counts the blanks before each
    line of the body."""

    name: str
    head: str
    lines: tuple[str, ...]
    tail: str = ""
    kernel: bool = False
    indent: int = 2

    @property
    def whole(self) -> list[str]:
        body = [" " * self.indent + line for line in self.lines]
        return [self.head, *body, *([self.tail] if self.tail else [])]


@dataclass(frozen=True)
class PassExample:
    """What a pass does to a program small enough to read. `arguments` are (name, type) of the
    program before the pass. `before` and `after` are the IR's text, shortened by
    `engine.server.examples`, and `graph_before` and `graph_after` the same as graphs; nodes that
    the pass left keep their ids. `differs` says why the results differ on purpose, or ""."""

    step: str
    arguments: tuple[tuple[str, TensorType], ...]
    before: str
    after: str
    graph_before: Graph
    graph_after: Graph
    differs: str = ""
