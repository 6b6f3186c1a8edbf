"""What a person looks at, as one tree of plain values with a version, and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from relascope.core.errors import EngineError, refusing
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, linkable, parse_inputs, parse_pins
from relascope.engine.protocol.times import BASELINES, TimeResult
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline, gradients, read_pipeline
from relascope.passes.cuts.cut import DEFAULT, STRATEGIES
from relascope.samples import SAMPLES

VERSION = 1
TABS = ("Graph", "Passes", "Gradient & cut", "Compile & time", "Side by side", "In your code")
RECORDED_TABS = ("Passes", "Times", "Side by side")
"""Tabs of a recording of a compile, which is opened in place of a model."""
FIRST = "bert_layer"
"""The model that a new page opens with."""
_LONGEST = 20_000  # characters of a text, and items of a list
_DEEPEST = 50  # values in one another


@dataclass(frozen=True)
class ModelChoice:
    """Which model, with which inputs; as of a `ModelSource`.

    Args:
        name: a sample's, that of a file without its folder, or one such as `hf:bert`. The file may
            be a recording of a compile.
        digest: of a file, as `engine.protocol.source.file_digest` has it; "" of a sample.
        inputs: of a file, as typed.
        module, call: of the submodule that is looked at alone.
        pins: of an exported program, as `engine.protocol.source.parse_pins` reads them.
        tensors: of files of saved inputs, their digests.
        weights: of a model of a library, "random" or "" for those on this machine.
    """

    name: str = FIRST
    digest: str = ""
    batch: int | None = None
    tokens: int | None = None
    inputs: str = ""
    seed: int = 0
    dtype: str = "float32"
    training: bool = False
    gradient: str = "tvm"
    module: str = ""
    call: int = 1
    weights: str = ""
    pins: str = ""
    tensors: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: ModelSource, name: str, inputs: str) -> ModelChoice:
        """A source as a session has it."""
        return cls(
            name,
            source.digest,
            source.batch,
            source.tokens,
            inputs,
            source.seed,
            source.dtype,
            source.training,
            source.gradient,
            source.module,
            source.call,
            source.weights,
            ", ".join(f"{n}={v}" for n, v in source.pins),
            tuple(digest for _, digest in source.tensors),
        )

    def source(self, path: str = "") -> ModelSource:
        """The model as an engine takes it; `path` is where a file stands, with those
        of saved inputs in the folder `tensors` beside it, each under its digest."""
        types = parse_inputs(self.inputs) if self.digest else ()
        sizes = (None, None) if self.digest else (self.batch, self.tokens)
        known = (self.seed, self.training, self.dtype, types, self.digest, self.gradient)
        name = path if self.digest else self.name
        piece = self.module, self.call
        values = ModelSource.values
        beside = Path(path).parent / "tensors"
        tensors = tuple((str(beside / digest), digest) for digest in self.tensors)
        more = parse_pins(self.pins), tensors
        return ModelSource(name, sizes[0], sizes[1], *known, values, *piece, self.weights, *more)


@dataclass(frozen=True)
class CutChoice:
    """How the joint graph is cut.

    Args:
        budget: in percent; of the strategies that have one.
        frontier: bytes that the chosen cut of the frontier keeps.
        save, recompute: ids of the tensors that are forced by hand.
    """

    strategy: str = DEFAULT
    budget: int | None = None
    frontier: int | None = None
    prices: str = "estimated"
    save: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compile:
    """What is built for and how it is timed; a target "" is the best one here."""

    target: str = ""
    threads: int = 0
    repeats: int = 30
    baselines: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScreenState:
    """What is on the screen.

    Args:
        step: index of the chosen step, -1 for the imported program; None for the last one. Of a
            recording the number of a pass; None for the first to look at.
        selected: the node or module that is selected in the tab's graph; "" where none is.
        fewer_than: constants with fewer elements are written into their readers' labels.
        choices: of switches within tabs, by their names.
        modules: by a graph's name, the modules that were opened (True) and closed in it.
        function: of a recording, the one that is shown; "" for the first that the pass changed.
    """

    tab: str = TABS[0]
    step: int | None = None
    selected: str = ""
    fewer_than: int = 10
    choices: dict[str, bool | str] = field(default_factory=dict)
    modules: dict[str, dict[str, bool]] = field(default_factory=dict)
    function: str = ""


@dataclass(frozen=True)
class Timing:
    """A timing of this session: what was timed, the result, and its document for files."""

    title: str
    request: BuildRequest
    result: TimeResult
    document: dict[str, Any]


@dataclass(frozen=True)
class SavedFinding:
    """A row of an accuracy report, or a try of a bisection: what was compared, and how far off.

    Args:
        pipeline: what was tried; "" in a report.
        outcome: of a try; in a report "right" or "wrong".
        node, scope: where the error first jumps; "" where that is not known.
        failure: why it could not be run.
    """

    stage: str = ""
    strategy: str = ""
    inputs: str = ""
    pipeline: str = ""
    dtype: str = ""
    outcome: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    limit: float | None = None
    worst: str = ""
    node: str = ""
    scope: str = ""
    failure: str = ""


@dataclass(frozen=True)
class KernelTime:
    """A kernel of a profile; milliseconds, percent, and ids of the nodes that it computes."""

    kernel: str = ""
    phase: str = ""
    median_ms: float = 0.0
    share: float = 0.0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Accuracy:
    """An accuracy report: on which inputs, for which target."""

    target: str = ""
    inputs: tuple[str, ...] = ()
    rows: tuple[SavedFinding, ...] = ()


@dataclass(frozen=True)
class SavedSearch:
    """A bisection: what was asked, as of `engine.jobs.bisect.Question`, and what was found.

    Args:
        suspects: names of the steps that are to blame.
        verdict: the same in sentences.
    """

    target: str = ""
    asked: str = ""
    factor: float = 0.0
    relative: float | None = None
    absolute: float = 0.0
    kind: str = ""
    suspects: tuple[str, ...] = ()
    verdict: str = ""
    rows: tuple[SavedFinding, ...] = ()


@dataclass(frozen=True)
class Kernels:
    """A profile; `captures` are those that the program was split at."""

    target: str = ""
    captures: tuple[str, ...] = ()
    rows: tuple[KernelTime, ...] = ()


FOUND: dict[str, type] = {"accuracy": Accuracy, "bisection": SavedSearch, "profile": Kernels}
"""Results that were asked for by a button: by their name, what they are."""


@dataclass(frozen=True)
class Session:
    """Everything that makes a screen again.

    Args:
        pipeline: its text; "" for the default one.
        pipelines: those of other IRs and modes that were changed, as `pipeline_key` names them.
        engines: by IR, the version of the TVM that answered.
        results: what was found of this screen, as `viz.sessions.results.found` has it.
        timings: the oldest first, of whatever was timed.
    """

    version: int = VERSION
    ir: str = ENGINES[0]
    model: ModelChoice = ModelChoice()
    pipeline: str = ""
    pipelines: dict[str, str] = field(default_factory=dict)
    cut: CutChoice = CutChoice()
    build: Compile = Compile()
    look: ScreenState = ScreenState()
    engines: dict[str, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    timings: tuple[Timing, ...] = ()

    def text(self) -> str:
        """As JSON."""
        return json.dumps(plain(self), ensure_ascii=False, indent=1, allow_nan=False)


def from_text(text: str | bytes) -> Session:
    """The session that `Session.text` wrote.

    Raises:
        EngineError: kind "session"; it is none, or of another version, or has a value that is none.
    """
    hint = "Export it again with this version of relascope."
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise EngineError("session", "This is no session: it is not JSON.", "", hint) from wrong
    if not isinstance(value, dict) or value.get("version") != VERSION:
        said = value.get("version") if isinstance(value, dict) else None
        message = f"This is no session of version {VERSION}."
        raise EngineError("session", message, f"version {said!r}"[:80], hint)
    with refusing("session", "The session cannot be read: {}.", "", hint):
        _check_plain(value)
        session = read(Session, value, "the session")
        _check_results(session.results)
        for problem in problems(session):
            raise ValueError(problem[1])
    return session


def _check_plain(value: Any) -> None:
    """That no text, number or depth is one that JSON has and what reads a session has not.

    Raises:
        ValueError: it is.
    """
    level = [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, str):
                one.encode()  # half of a pair cannot be
            elif isinstance(one, int) and abs(one) >= 2**63:
                raise ValueError(f"a number of {len(str(one))} digits is in it")
            elif isinstance(one, float) and not isfinite(one):
                raise ValueError("a number that is none is in it")
            elif isinstance(one, dict):
                inner += [*one, *one.values()]
            elif isinstance(one, list):
                inner += one
        if not inner:
            return
        level = inner
    raise ValueError(f"it nests values more than {_DEEPEST} deep")


def _check_results(results: dict[str, Any]) -> None:
    """That results have the form in which they are written (`viz.sessions.results`)."""
    anything = dict[str, Any]
    parts = {n: read(anything, results.get(n) or {}, n) for n in ("graphs", "cut", "errors")}
    read(tuple[anything, ...] | anything | None, results.get("steps"), "steps")
    read(tuple[Any, ...] | None, parts["cut"].get("captures"), "captures")
    rows = read(tuple[anything, ...] | None, parts["errors"].get("comparisons"), "comparisons")
    for name, kind in FOUND.items():
        if (one := results.get(name)) is not None and "error" not in read(anything, one, name):
            read(kind, one, name)
    for row in rows or ():
        for name in ("max_abs", "max_rel"):
            read(float | None, row.get(name), f"{name} of comparisons")


def read(kind: Any, value: Any, where: str) -> Any:
    """A value of a type from JSON's.

    Args:
        kind: a dataclass, a plain type, `X | None`, `tuple[X, ...]` or `dict[str, X]`.

    Raises:
        ValueError: it is another; the message begins with `where`.
    """
    origin, args = get_origin(kind) or kind, get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType or origin is Union:
        if value is None and type(None) in args:
            return None
        for one in args:
            with suppress(ValueError):
                return read(one, value, where)
    elif is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, dict):
            hints = get_type_hints(kind)
            known = [f.name for f in fields(kind) if f.name in value]
            parts = {n: read(hints[n], value[n], f"{n} of {where}") for n in known}
            with suppress(TypeError):  # what has no default is missing
                return kind(**parts)
    elif origin is tuple:
        if isinstance(value, list) and len(value) <= _LONGEST:
            kinds = [args[0]] * len(value) if args[-1] is Ellipsis else args
            if len(kinds) == len(value):
                return tuple(read(k, v, where) for k, v in zip(kinds, value, strict=True))
    elif origin is dict:
        if isinstance(value, dict) and len(value) <= _LONGEST:
            return {k: read(args[1], v, f"{k[:40]} of {where}") for k, v in value.items()}
    elif kind is float and (type(value) in (int, float) or value in ("inf", "-inf", "nan")):
        return float(value)
    elif type(value) is kind and (not isinstance(value, str) or len(value) <= _LONGEST):
        return value
    raise ValueError(f"{where} is {str(value)[:40]!r}")


def _within(low: int, high: int, maybe: bool = False) -> Callable[[Any], bool]:
    return lambda value: (maybe and value is None) or (value is not None and low <= value <= high)


_DIGEST = re.compile(r"[0-9a-f]{32}")
_RANGES: dict[str, Callable[[Any], bool]] = {
    "ir": ENGINES.__contains__,
    "model.digest": lambda v: not v or (len(v) == 32 and set(v) <= set("0123456789abcdef")),
    "model.tensors": lambda v: len(v) < 100 and all(map(_DIGEST.fullmatch, v)),
    "model.batch": _within(1, 1024, True),
    "model.tokens": _within(1, 4096, True),
    "model.call": _within(1, 2**31 - 1),
    "model.weights": ("", "random").__contains__,
    "model.seed": _within(0, 2**31 - 1),
    "model.dtype": ("float32", "float64").__contains__,
    "cut.strategy": STRATEGIES.__contains__,
    "cut.budget": _within(0, 100, True),
    "cut.frontier": _within(0, 2**60, True),
    "cut.prices": ("estimated", "measured").__contains__,
    "build.threads": _within(0, 256),
    "build.repeats": _within(3, 1000),
    "build.baselines": lambda v: set(v) <= set(BASELINES),
    "look.tab": (*TABS, *RECORDED_TABS).__contains__,
    "look.step": _within(-1, 10_000_000, True),
    "look.fewer_than": _within(0, 1000),
}


def get(session: Session, path: str) -> Any:
    """A field by its path: "model.batch"."""
    value: Any = session
    for name in path.split("."):
        value = getattr(value, name)
    return value


def problems(session: Session) -> list[tuple[str, str]]:
    """(path of the field, what is wrong with it) for each value that is none."""
    found = [
        (path, f"{path.rpartition('.')[2]} is {str(get(session, path))[:40]!r}")
        for path, fits in _RANGES.items()
        if not fits(get(session, path))
    ]
    model = session.model
    if not model.digest and model.name not in SAMPLES and not linkable(model.name):
        found.append(("model.name", f"no model is called {model.name[:40]!r}"))
    if session.ir in ENGINES and model.gradient not in gradients(session.ir):
        found.append(("model.gradient", f"gradient is {model.gradient[:40]!r}"))
    if session.ir in ENGINES and session.pipeline:
        try:
            read_pipeline(session.ir, session.pipeline)
        except ValueError as wrong:
            found.append(("pipeline", str(wrong)[:300]))
    for name, text in session.pipelines.items():
        if name not in PIPELINES:
            found.append(("pipelines", f"no pipeline is called {name[:40]!r}"))
            continue
        try:
            read_pipeline(PIPELINES[name], text)
        except ValueError as wrong:
            found.append(("pipelines", str(wrong)[:300]))
    return found


def pipeline_key(ir: str, training: bool, gradient: str = "tvm") -> str:
    """Where the pipeline of a mode is remembered."""
    mode = "training" if training else "inference"
    return f"pipeline_{ir}_{mode}" if gradient == "tvm" else f"pipeline_{ir}_{mode}_{gradient}"


PIPELINES = {
    pipeline_key(ir, training, gradient): ir
    for ir in ENGINES
    for training in (False, True)
    for gradient in (gradients(ir) if training else ("tvm",))
}
"""The IR of each pipeline that is remembered, by its key."""


def pipeline_text(session: Session) -> str:
    """The pipeline in full, the default one as well."""
    model = session.model
    if session.pipeline:
        return session.pipeline
    gradient = model.gradient if model.training else "tvm"
    return str(default_pipeline(session.ir, model.training, gradient))
