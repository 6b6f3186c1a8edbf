"""A loaded model, the steps of a pipeline, a split, and a pass shown on a small program."""

from dataclasses import dataclass, field
from typing import ClassVar

from relascope.core.errors import EngineError
from relascope.core.graph import Graph, TensorType
from relascope.engine.protocol.source import ModelSource


@dataclass(frozen=True)
class ImportChange:
    """Something that an import did beside writing each operator as TVM's.

    Args:
        kind: in `KINDS`: "externalised" is what became an argument or a result of the program.
        operator: PyTorch's, or the name of the first tensor.
        count: of operators or tensors.
        nodes: ids of the nodes of the imported graph that came of it, or whose results stand in
            its place; empty where there are none.
        became: how often each operator came of it.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("changed", "dropped", "externalised")

    kind: str
    what: str
    operator: str
    count: int
    nodes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    became: dict[str, int] = field(default_factory=dict)


PYTORCH = "PyTorch"
"""What numbers are held against where a model is PyTorch's."""
IMPORTED = "the imported program"
"""What they are held against where a program came without PyTorch, and without a runtime."""
PYTORCHS_OPERATORS = "PyTorch, operator by operator"
"""What they are held against where PyTorch has a counterpart of each operator."""
UNBUILT = "TVM cannot build this"
"""How the error of a failed build begins, kind "target"."""


@dataclass(frozen=True)
class Branches:
    """What decides each `if` of a program that came without PyTorch.

    Args:
        inputs, computed: names of the inputs, and of the computed values, that decide one.
        looped: how many others stand in functions that call themselves: neither side is forced.
    """

    inputs: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    looped: int = 0


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
        calls: of a submodule, how often the whole model calls it.
        changes: what the import did, by kind.
        against: who its numbers are held against, as that stands behind "against": PyTorch, or the
            imported program itself where there is no PyTorch behind it; where it was not asked
            whether a judge is one, who is meant.
        unjudged: why nobody outside TVM judges its numbers, as a sentence; "" where somebody does,
            or nobody was asked.
    """

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
    """A size that an exported program leaves open.

    Args:
        symbol: what the program calls it.
        size: the example's, or the one that is chosen.
        least, most: what the program takes; None where it has no end.
        places: dimensions of inputs that have it: "x.0", or "x.0 = 2*s77".
    """

    symbol: str
    size: int
    least: int
    most: int | None
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelInputs:
    """What a model's inputs are, without importing it.

    Args:
        inputs: each as `engine.protocol.source.parse_inputs` reads it, with the range that is drawn
            for integers.
        says: of each, where its values come from.
        sizes: those that an exported program leaves open.
    """

    inputs: tuple[str, ...]
    says: tuple[str, ...]
    sizes: tuple[OpenSize, ...] = ()


@dataclass(frozen=True)
class ModuleRow:
    """A module of a model, as one run of the whole sees it.

    Args:
        path: "" of the whole.
        parameters: number of parameter elements, those of its submodules included.
        calls: how often it runs; 0 where nothing calls its forward().
        inputs, outputs: types of the tensors of its first call.
        seconds: of all its calls together, its submodules included; None where there is none.
    """

    path: str
    kind: str
    parameters: int
    calls: int
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    seconds: float | None


@dataclass(frozen=True)
class NamedModel:
    """A model that can be opened by its name.

    Args:
        name: as `ModelSource.model` has it.
        kind: its class, or the library that makes it.
        parameters: number of parameter elements; None where they were not or cannot be counted.
    """

    name: str
    kind: str
    parameters: int | None
    weights: bool


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
        kept_bytes: memory of the process that stayed when the pass was done, without what new
            constants of the program take. What the allocator keeps counts, too.
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
    kept_bytes: int = 0


@dataclass(frozen=True)
class ExampleRun:
    """An example of a person's own pass, run as a test.

    Args:
        name: of the example: of the function that makes the program before the pass.
        said: what is wrong, a sentence each; empty where it passed.
        diff: of the text that was expected and that of what the pass made; "" where they agree, or
            nothing is expected.
        max_rel: the largest difference of a result after the pass to that before it, relative to
            its scale; None where the numbers were not compared.
        dtype: in which precision that is.
    """

    pass_name: str
    name: str
    said: tuple[str, ...] = ()
    diff: str = ""
    max_rel: float | None = None
    dtype: str = ""
    expected: bool = False


@dataclass(frozen=True)
class Application:
    """A place where a pass on our rewriters put something else, in the order in which it did.

    Args:
        id: of the node in the graph before the pass; "" where the pass made it itself before.
        title, scope, source: of the node, as far as they are known.
    """

    id: str
    title: str
    scope: str
    source: str

    @property
    def words(self) -> str:
        """The node in a sentence: "`add` of encoder.0 (aten::add)"."""
        scope = f" of {self.scope}" if self.scope else ""
        return f"`{self.title}`{scope}" + (f" ({self.source})" if self.source else "")


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
