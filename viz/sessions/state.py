"""A user's screen as one tree of plain values with a version, and as JSON."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import isfinite
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from relascope.core.errors import EngineError, refusing
from relascope.engine.jobs.accuracy import DTYPES
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource, linkable, parse_inputs, parse_pins
from relascope.engine.protocol.times import BASELINES, TimeResult
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline, gradients, read_pipeline
from relascope.passes.cuts.cut import DEFAULT, STRATEGIES, Strategy
from relascope.samples import SAMPLES

VERSION = 1
TABS = ("Graph", "Passes", "Gradient & cut", "Compile & time", "Side by side", "In your code")
RECORDED_TABS = ("Passes", "Times", "Side by side")
"""Tabs of a recording of a compile, opened in place of a model."""
FIRST = "bert_layer"  # the model that a new page opens
_LONGEST = 20_000  # characters of a text, and items of a list
_DEEPEST = 50  # levels of nested values


@dataclass(frozen=True)
class Setting:
    """A session's field in an address and on the page, and its allowed values."""

    parameter: str = ""  # in an address, or ""
    widget: str = ""  # the key of its control in Streamlit's state, or ""
    least: int = 0  # number, or length of a tuple
    most: int | None = None
    choices: Sequence[str] = ()  # of a text, or of each text of a tuple; empty for any
    form: str = ""  # of the same, a regular expression
    clears: bool = False  # whether "" is written to its control

    def fits(self, value: Any) -> bool:
        """Whether a value of the field's type is allowed."""
        if value is None:
            return True
        each = value if isinstance(value, tuple) else (value,)
        number = len(value) if isinstance(value, tuple) else value
        return (
            (self.most is None or self.least <= number <= self.most)
            and (not self.choices or set(each) <= set(self.choices))
            and (not self.form or all(re.fullmatch(self.form, v) for v in each))
        )


def _set(default: Any, parameter: str = "", widget: str = "", **more: Any) -> Any:
    return field(default=default, metadata={"setting": Setting(parameter, widget, **more)})


_HASH = "[0-9a-f]{32}"


@dataclass(frozen=True)
class ModelChoice:
    """A model and its inputs, as in a `ModelSource`. The name is a sample's, that of a file
    (perhaps a recording) without its folder, or one such as `hf:bert`."""

    name: str = _set(FIRST, "model")
    digest: str = _set("", "file", form=f"({_HASH})?")  # of a file, by `file_digest`
    batch: int | None = _set(None, "batch", least=1, most=1024)
    tokens: int | None = _set(None, "tokens", least=1, most=4096)
    inputs: str = _set("", "inputs", "keep_inputs", clears=True)  # of a file, as typed
    seed: int = _set(0, "seed", "keep_seed", most=2**31 - 1)
    dtype: str = _set(DTYPES[0], "dtype", "keep_dtype", choices=DTYPES)
    training: bool = _set(False, "mode")
    gradient: str = _set("tvm", "gradient", "keep_gradient")
    module: str = _set("", "module", "keep_module", clears=True)  # a submodule, and its call
    call: int = _set(1, "call", "keep_call", least=1, most=2**31 - 1)
    weights: str = _set("", "weights", choices=("", "random"))  # "": those on this machine
    pins: str = _set("", "pins", "keep_pins", clears=True)  # of a file, as for `parse_pins`
    tensors: tuple[str, ...] = _set((), "tensors", most=99, form=_HASH)  # digests of saved inputs

    @classmethod
    def of(cls, source: ModelSource, name: str, inputs: str) -> "ModelChoice":
        """The choice of a source, with `inputs` as typed."""
        pins = ", ".join(f"{n}={v}" for n, v in source.pins)
        tensors = tuple(digest for _, digest in source.tensors)
        same = {n: getattr(source, n) for n in _OF_SOURCE}
        return cls(name, inputs=inputs, pins=pins, tensors=tensors, **same)

    def source(self, path: str = "") -> ModelSource:
        """The model for an engine; `path` is its file's, with inputs beside: `tensors/DIGEST`."""
        beside = Path(path).parent / "tensors"
        about: dict[str, Any] = {n: getattr(self, n) for n in _OF_SOURCE}
        about["pins"] = parse_pins(self.pins)
        about["tensors"] = tuple((str(beside / digest), digest) for digest in self.tensors)
        if not self.digest:
            return ModelSource(self.name, **about)
        about |= {"batch": None, "tokens": None, "inputs": parse_inputs(self.inputs)}
        return ModelSource(path, **about)


_OF_SOURCE = [
    f.name for f in fields(ModelChoice)[1:] if f.name not in ("inputs", "pins", "tensors")
]
"""Fields that a `ModelSource` has unchanged."""


@dataclass(frozen=True)
class CutChoice:
    """How the joint graph is cut: the budget in percent, if the strategy has one; the bytes that
    the chosen cut of the `frontier` keeps; ids of tensors forced by hand; whether others may wait
    on the host (`offload`), and the backward compute a value more than once (`per_use`)."""

    strategy: str = _set(DEFAULT, "strategy", "keep_strategy", choices=tuple(STRATEGIES))
    budget: int | None = _set(None, "budget", "keep_budget", most=100)
    frontier: int | None = _set(None, "frontier", "keep_frontier", most=2**60)
    prices: str = _set("estimated", "prices", "keep_prices", choices=("estimated", "measured"))
    save: tuple[str, ...] = _set((), "save")
    recompute: tuple[str, ...] = _set((), "recompute")
    offload: bool = _set(False, "offload", "keep_offload")
    per_use: bool = _set(False, "per_use", "keep_per_use")

    @property
    def how(self) -> tuple[bool, bool]:
        """The switches, as `passes.cuts.cut.cut` takes them."""
        return self.offload, self.per_use

    @property
    def rule(self) -> Strategy:
        return STRATEGIES[self.strategy]

    @property
    def limit(self) -> float | int | None:
        """The budget for `passes.cuts.cut.cut`, or None."""
        if self.strategy == "frontier":
            return self.frontier
        return self.budget / 100 if self.rule.has_budget and self.budget is not None else None


@dataclass(frozen=True)
class Compile:
    """The target, "" for the best one here, and how it is timed."""

    target: str = _set("", "target", "keep_target")
    threads: int = _set(0, "threads", "keep_threads", most=256)
    repeats: int = _set(30, "repeats", "keep_repeats", least=3, most=1000)
    baselines: tuple[str, ...] = _set((), "", "keep_rivals", choices=BASELINES)
    variants: tuple[str, ...] = _set((), "", "keep_ways")


@dataclass(frozen=True)
class ScreenState:
    """The state of the screen. Steps have indices, -1 for the imported program, None for the last;
    for a recording, they are those of passes, None for the first to look at."""

    tab: str = _set(TABS[0], "tab", choices=(*TABS, *RECORDED_TABS))
    step: int | None = _set(None, "step", least=-1, most=10_000_000)
    selected: str = _set("", "node")  # or module, in the tab's graph
    fewer_than: int = _set(10, "below", "keep_fewer_than", most=1000)  # as in `View`
    choices: dict[str, bool | str] = field(default_factory=dict)  # of switches within tabs, by name
    modules: dict[str, dict[str, bool]] = field(default_factory=dict)  # opened and closed, by graph
    # For a recording; "" for the first that the pass changed.
    function: str = _set("", "function", "keep_recorded_function", clears=True)


@dataclass(frozen=True)
class Timing:
    """A timing of this session: its title and request, the result, and its document for files."""

    title: str
    request: BuildRequest
    result: TimeResult
    document: dict[str, Any]

    @property
    def run(self) -> dict[str, Any]:
        """The document with its result's fields, which alone a session's file has checked."""
        return {**self.document, **plain(self.result)}


@dataclass(frozen=True)
class SavedFinding:
    """A row of an accuracy report, or a try of a bisection, with its pipeline: what was compared,
    and its error. In a report, the outcome is "right", "over" (the limit in float32), "wrong" or
    "cannot be run", and `failure` says why. Node and scope are where the error first jumps, or
    ""."""

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
    """A kernel of a profile, its time in ms, its share in percent, and the ids of its nodes."""

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
    """A bisection: its `engine.jobs.bisect.Question`, suspects by name, and the verdict."""

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
    """A profile; the program was split at `captures`."""

    target: str = ""
    captures: tuple[str, ...] = ()
    rows: tuple[KernelTime, ...] = ()


RESULTS: dict[str, type] = {"accuracy": Accuracy, "bisection": SavedSearch, "profile": Kernels}
"""Results of buttons, by name."""


@dataclass(frozen=True)
class Session:
    """Everything that reproduces a screen: the pipeline's text ("" for the default), changed
    pipelines of other IRs and modes, by `pipeline_key`, the version of the TVM that answered, by
    IR, the screen's results (`viz.sessions.results`), and all timings, the oldest first."""

    version: int = VERSION
    ir: str = _set(ENGINES[0], "engine", "ir", choices=ENGINES)
    model: ModelChoice = ModelChoice()
    pipeline: str = _set("", "pipeline")
    pipelines: dict[str, str] = field(default_factory=dict)
    cut: CutChoice = CutChoice()
    build: Compile = Compile()
    look: ScreenState = ScreenState()
    engines: dict[str, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    timings: tuple[Timing, ...] = ()

    def text(self) -> str:
        return json.dumps(plain(self), ensure_ascii=False, indent=1, allow_nan=False)


def _settings(kind: type, where: str = "") -> Iterator[tuple[str, Setting]]:
    for one in fields(kind):
        if is_dataclass(one.default):
            yield from _settings(type(one.default), f"{one.name}.")
        else:
            yield f"{where}{one.name}", one.metadata.get("setting", Setting())


SETTINGS = dict(_settings(Session))  # each field of a session by its path, such as "model.batch"


def from_text(text: str | bytes) -> Session:
    """The session of a `Session.text`. Raises EngineError of kind "session" if it is invalid."""
    hint = "Export it again with this version of relascope."
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise EngineError("session", "This is not a session: it is not JSON.", "", hint) from wrong
    if not isinstance(value, dict) or value.get("version") != VERSION:
        said = value.get("version") if isinstance(value, dict) else None
        message = f"This is not a session of version {VERSION}."
        raise EngineError("session", message, f"version {said!r}"[:80], hint)
    with refusing("session", "The session cannot be read: {}.", "", hint):
        _check_plain(value)
        session = read(Session, value, "the session")
        _check_results(session.results)
        for problem in faults_of(session):
            raise ValueError(problem[1])
    return session


def _check_plain(value: Any) -> None:
    """Raise ValueError for text, numbers and depth that JSON allows and a session does not."""
    level = [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, str):
                one.encode()  # raises for a single surrogate
            elif isinstance(one, int) and abs(one) >= 2**63:
                raise ValueError(f"it contains a number of {len(str(one))} digits")
            elif isinstance(one, float) and not isfinite(one):
                raise ValueError("it contains a number that is not finite")
            elif isinstance(one, dict):
                inner += [*one, *one.values()]
            elif isinstance(one, list):
                inner += one
        if not inner:
            return
        level = inner
    raise ValueError(f"it nests values more than {_DEEPEST} deep")


def _check_results(results: dict[str, Any]) -> None:
    """Raise ValueError unless results have the format of `viz.sessions.results`."""
    anything = dict[str, Any]
    parts = {n: read(anything, results.get(n) or {}, n) for n in ("graphs", "cut", "errors")}
    read(tuple[anything, ...] | anything | None, results.get("steps"), "steps")
    read(tuple[Any, ...] | None, parts["cut"].get("captures"), "captures")
    rows = read(tuple[anything, ...] | None, parts["errors"].get("comparisons"), "comparisons")
    for name, kind in RESULTS.items():
        if (one := results.get(name)) is not None and "error" not in read(anything, one, name):
            read(kind, one, name)
    for row in rows or ():
        for name in ("max_abs", "max_rel"):
            read(float | None, row.get(name), f"{name} of comparisons")


def read(kind: Any, value: Any, where: str) -> Any:
    """A value of a type from a JSON value: a dataclass, a plain type, `X | None`, `tuple[X, ...]`
    or `dict[str, X]`. Raises ValueError, which begins with `where`, if it does not fit."""
    origin, args = get_origin(kind) or kind, get_args(kind)
    if kind is Any:
        return value
    if origin in (UnionType, Union):
        for one in args:
            with suppress(ValueError):
                return read(one, value, where)
    elif isinstance(value, str | list | dict) and len(value) > _LONGEST:
        pass
    elif is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = get_type_hints(kind)
        known = [f.name for f in fields(kind) if f.name in value]
        parts = {n: read(hints[n], value[n], f"{n} of {where}") for n in known}
        with suppress(TypeError):  # a field without a default is missing
            return kind(**parts)
    elif origin is tuple and isinstance(value, list):
        kinds = [args[0]] * len(value) if args[-1] is Ellipsis else args
        if len(kinds) == len(value):
            return tuple(read(k, v, where) for k, v in zip(kinds, value, strict=True))
    elif origin is dict and isinstance(value, dict):
        return {k: read(args[1], v, f"{k[:40]} of {where}") for k, v in value.items()}
    elif kind is float and (type(value) in (int, float) or value in ("inf", "-inf", "nan")):
        return float(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{where} is {str(value)[:40]!r}")


def get(session: Session, path: str) -> Any:
    return attrgetter(path)(session)


def set_all(session: Session, values: Mapping[str, Any]) -> Session:
    """The session with some values replaced, by path."""
    for path, value in values.items():
        part, _, name = path.rpartition(".")
        if part:
            part, name, value = "", part, replace(getattr(session, part), **{name: value})
        session = replace(session, **{name: value})
    return session


def faults_of(session: Session) -> list[tuple[str, str]]:
    """(path of the field, what is wrong) for each invalid value."""
    found = [
        (path, f"{path.rpartition('.')[2]} is {str(value)[:40]!r}")
        for path, setting in SETTINGS.items()
        if not setting.fits(value := get(session, path))
    ]
    model = session.model
    if not model.digest and model.name not in SAMPLES and not linkable(model.name):
        why = f"no model is called {model.name[:40]!r}"
        if "/" in model.name:
            why += " (an address opens no file. Drop the file on the page instead)"
        found.append(("model.name", why))
    if session.ir in ENGINES and model.gradient not in gradients(session.ir):
        found.append(("model.gradient", f"gradient is {model.gradient[:40]!r}"))
    texts = [("pipeline", session.ir, session.pipeline)] if session.pipeline else []
    for name, text in session.pipelines.items():
        if name in PIPELINES:
            texts.append(("pipelines", PIPELINES[name], text))
        else:
            found.append(("pipelines", f"no pipeline is called {name[:40]!r}"))
    for path, ir, text in texts:
        try:
            if ir in ENGINES:
                read_pipeline(ir, text)
        except ValueError as wrong:
            found.append((path, str(wrong)[:300]))
    return found


def pipeline_key(ir: str, training: bool, gradient: str = "tvm") -> str:
    """The state's key of a mode's pipeline."""
    own = f"_{gradient}" if training and gradient != "tvm" else ""
    return f"pipeline_{ir}_{'training' if training else 'inference'}{own}"


PIPELINES = {
    pipeline_key(ir, training, gradient): ir
    for ir in ENGINES
    for training in (False, True)
    for gradient in (gradients(ir) if training else ("tvm",))
}
"""The IR of each pipeline in the state, by its key."""


def pipeline_text(session: Session) -> str:
    """The pipeline's text, also for the default one."""
    model = session.model
    gradient = model.gradient if model.training else "tvm"
    return session.pipeline or str(default_pipeline(session.ir, model.training, gradient))
