"""Shared parts of commands: their arguments' meaning, an engine for one command, and files."""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from relascope.core.errors import EngineError, refusing
from relascope.core.scratch import Scratch
from relascope.engine.client import EngineClient
from relascope.engine.files.formats import is_program, is_recording, only_relax
from relascope.engine.jobs.accuracy import Tolerance
from relascope.engine.jobs.cut import with_cut
from relascope.engine.limits import NO_LIMITS, Limits
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import (
    CODE,
    ModelSource,
    bundled,
    file_digest,
    has_name,
    parse_inputs,
    source_from_file,
    with_tensors,
)
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import info, typed_pipeline
from relascope.passes.catalogue.entry import COUNT
from relascope.passes.cuts.cut import Cut, Joint, cut
from relascope.passes.pipeline import Pipeline
from relascope.recorder.reading import read
from relascope.samples import SAMPLES
from relascope.viz.compare.recording import RecordedCompile
from relascope.viz.rows import tables
from relascope.viz.rows.formats import duration

Connect = Callable[[str], EngineClient]
Document = dict[str, Any]
_PIECE = ("module", "call")
_OWN_CODE = 60.0  # s


class Command:
    """A running command: its arguments, their meaning, and an engine until it ends. Calling it asks
    the engine, which is connected when it is first asked, and shows progress. The arguments
    are read anew each time, for commands change some."""

    def __init__(self, args: argparse.Namespace, connect: Connect) -> None:
        self.args, self.connect = args, connect
        self._line = ProgressLine(sys.stderr)

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *exc: object) -> None:
        self._line.clear()
        if client := vars(self).pop("_client", None):
            client.close()

    @property
    def recorded(self) -> RecordedCompile | None:
        """The recording of MODEL, which answers in place of an engine; None for a model."""
        return _recorded(str(getattr(self.args, "model", "")))

    @cached_property
    def _client(self) -> EngineClient:
        client = self.connect(self.engine)
        if self.limits != NO_LIMITS:
            client.limit(self.limits)
        return client

    def __call__(self, method: str, *arguments: Any) -> Any:
        if self.recorded:
            return self.recorded(method, *arguments)
        return self._client.call(method, *arguments, on_progress=self._line)

    def own_code(self, method: str, *arguments: Any) -> Any:
        """The same for the person's own code, which may never end: by default a minute at most."""
        self._client.limit(replace(self.limits, seconds=self.limits.seconds or _OWN_CODE))
        try:
            return self(method, *arguments)
        finally:
            self._client.limit(self.limits)

    def timed(self, method: str, *arguments: Any) -> Any:
        """The same for long calls of even pace: progress shows the time left."""
        began: list[tuple[float, float]] = []

        def show(fraction: float, text: str) -> None:
            began.append((fraction, time.perf_counter()))
            (first, start), last = began[0], began.pop() if len(began) > 1 else began[0]
            if last[0] > first:
                left = (1 - last[0]) * (last[1] - start) / (last[0] - first)
                text += f"; {duration(left)} left"
            self._line(fraction, text)

        return self._client.call(method, *arguments, on_progress=show)

    @property
    def engine(self) -> str:
        """The IR of --engine, or of a recording."""
        return self.recorded.ir if self.recorded else str(self.args.engine)

    @property
    def limits(self) -> Limits:
        """The limits of --limit-seconds, --limit-memory and --limit-calls."""
        names = ("seconds", "memory", "calls")
        return Limits(**{n: v for n in names if (v := getattr(self.args, f"limit_{n}", None))})

    @property
    def source(self) -> ModelSource:
        """The model of MODEL and its options; of a recording, --module names a function. Raises
        EngineError if they do not fit."""
        if not self.recorded:
            return _source_of(self.args)
        if self.args.training:
            raise self.recorded.refusal
        return replace(self.recorded.source, module=self.args.module)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of --passes, or the default one; a recording's is what ran. Raises
        EngineError if it cannot be read."""
        args = self.args
        if self.recorded and not (args.passes or args.count):
            return self.recorded.pipeline
        if self.recorded:
            said = "The passes of a recording are those that ran."
            raise EngineError("usage", said, "--passes, --count", "Leave it out.")
        where = "--passes" if args.passes else "--training, --gradient"
        with refusing("usage", "{}.", where, "See: relascope passes"):
            text = "default" if args.passes is None else args.passes
            pipeline = typed_pipeline(args.engine, text, args.training, args.gradient)
        with refusing("usage", "{}.", "--count", "Write PASS=N of a pass in the pipeline."):
            return _counted(args, pipeline)

    @property
    def target(self) -> str:
        """The target of --target, or the best one here."""
        return str(self.args.target or self("describe").best)

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance of --rtol and --atol."""
        return Tolerance(self.args.rtol, self.args.atol)

    def cut(self, joint: Joint) -> Cut:
        """The cut by --strategy and the options beside it; options without effect are named on
        stderr. Raises EngineError of kind "usage" if the graph cannot be cut so."""
        args = self.args
        where = "--strategy, --budget, --peak, --save, --recompute, --offload, --recompute-per-use"
        hint = "See: relascope captures --help"
        with refusing("usage", "The graph cannot be cut this way: {}.", where, hint):
            how = args.save, args.recompute, args.offload, args.per_use
            found = cut(joint, args.strategy, args.budget, *how)
        for line in tables.idle_lines(found):
            print(f"relascope: {line}", file=sys.stderr)
        return found

    def request(self) -> BuildRequest:
        """What to build and how to run it, by the options, without a split."""
        repeats = getattr(self.args, "repeats", BuildRequest.repeats)
        return BuildRequest(self.source, self.pipeline, self.target, self.args.threads, repeats)

    def cut_request(self, request: BuildRequest | None = None) -> BuildRequest:
        """The same, or another pipeline's `request`; for training, split at the options' cut."""
        return with_cut(self, request or self.request(), self.cut)

    def about(self, source: ModelSource, pipeline: Pipeline, built: bool = True) -> Document:
        """The head of a document: its program, and for a build its strategy."""
        head: Document = {"model": source.model, "engine": self.engine, "pipeline": str(pipeline)}
        head |= {name: getattr(source, name) for name in _PIECE if source.module}
        strategy = {"strategy": self.args.strategy if source.training else None} if built else {}
        return head | strategy

    def written(self, document: Document) -> Document:
        """The document, after writing it to the file of -o, if any."""
        if self.args.output:
            write(self.args.output, json.dumps(document, ensure_ascii=False))
        return document


class ProgressLine:
    """Progress as one line that overwrites itself on a terminal; silent elsewhere."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream if stream.isatty() else None
        self._width = 0

    def __call__(self, fraction: float, text: str) -> None:
        """Show a fraction (0 to 1) and the present work."""
        if self._stream is not None:
            line = f"{fraction:4.0%}  {text}"[:100]
            self._stream.write("\r" + line.ljust(self._width))
            self._stream.flush()
            self._width = len(line)

    def clear(self) -> None:
        """Leave the line empty for the next output."""
        if self._stream is not None and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def _source_of(args: argparse.Namespace) -> ModelSource:
    if args.gradient != "tvm" and not args.training:
        said = "Inference has no gradient to choose."
        raise EngineError("usage", said, "--gradient", "Add --training.")
    names = ("seed", "training", "dtype", "gradient", "values", *_PIECE)
    given: dict[str, Any] = {n: getattr(args, n) for n in names if hasattr(args, n)}
    args.model = model = _named(args.model)
    if model in SAMPLES or has_name(model):
        if args.input and not model.startswith(f"{CODE}:"):
            said = f"The model {args.model} defines its own inputs."
            raise EngineError("usage", said, "--input", "Use --batch and --tokens, or give a file.")
        if args.pin:
            said = f"The model {args.model} has no dynamic dimension."
            raise EngineError("usage", said, "--pin", "Use --batch and --tokens.")
        given |= {"weights": args.weights, "inputs": parse_inputs("\n".join(args.input))}
        return with_tensors(ModelSource(model, args.batch, args.tokens, **given), args.tensors)
    if args.weights:
        said = "Only named models, such as hf:bert, can have random weights."
        raise EngineError("usage", said, "--random-weights", "Leave it out.")
    if not Path(args.model).exists():
        samples = f"Samples: {', '.join(SAMPLES)}. More names: relascope models --search TEXT."
        raise EngineError("file", "There is no sample or file of this name.", args.model, samples)
    path = bundled((args.model, args.params), scratch().name) if args.params else args.model
    source = source_from_file(path, "\n".join(args.input), pins="\n".join(args.pin))
    return with_tensors(replace(source, **given, kernels=args.run_kernels), args.tensors)


@cache
def _recorded(model: str) -> RecordedCompile | None:
    path = Path(model)
    known = path.is_file() and is_recording(path)
    return RecordedCompile(read(path), file_digest(path)) if known else None


@cache
def scratch() -> Scratch:
    """A folder until the command ends."""
    return Scratch()


def engine_of(models: Iterable[str | None]) -> str:
    """The engine of models without --engine: Relax if one is a module of Relax only."""
    paths = (Path(name) for name in models if name)
    return ENGINES[any(path.is_file() and only_relax(path) for path in paths)]


def _named(text: str) -> str:
    """The typed text as a `ModelSource.model`: with full paths of folders and of code. Only
    `FILE.py:NAME` and `MODULE:NAME` run code, which a line on standard error says. Raises
    EngineError of kind "usage" if it is a Python file that holds no module as TVMScript."""
    path = Path(text)
    if (path / "config.json").is_file():
        return f"hf:{path.resolve()}"
    if text in SAMPLES or has_name(text):
        return text
    if path.is_file():
        if path.suffix == ".py" and not is_program(path):
            said = f"{path.name} is not TVMScript, and is not run as other code by its path alone."
            hint = f"To run it as your own code, name its model or function: {text}:NAME."
            raise EngineError("usage", said, text, hint)
        return text
    file, mark, name = text.rpartition(".py:")
    own = mark and Path(f"{file}.py").is_file() and name.isidentifier()
    if own or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        print(f"Running {text}, which is code.", file=sys.stderr)
        where = f"{Path(f'{file}.py').resolve()}:{name}" if own else Path.cwd() / text
        return f"{CODE}:{where}"
    return text


def _counted(args: argparse.Namespace, pipeline: Pipeline) -> Pipeline:
    """The pipeline with the counts of --count. Raises ValueError if no such pass counts."""
    for text in args.count:
        name, _, count = text.partition("=")
        if not any(step.name == name for step in pipeline):
            raise ValueError(f"the pipeline has no step {name!r}")
        for index, step in enumerate(pipeline):
            if step.name == name:
                pipeline = pipeline.with_parameter(index, COUNT, count)
                info(args.engine, name).count(pipeline.steps[index])
    return pipeline


def check_folder(folder: Path, what: str, option: str) -> None:
    """Refuse a folder (EngineError, kind "usage") that is not empty, or is a file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"The {what} needs a new or empty folder."
        raise EngineError("usage", message, str(folder), f"Give another {option}.")


def write_files(files: Mapping[str, bytes], folder: Path, option: str) -> None:
    """Write files into a folder as `writing`; scripts are made executable."""
    with writing(folder, option):
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if content.startswith(b"#!"):  # a person's own test
                path.chmod(0o755)


def writing(path: Path, option: str) -> AbstractContextManager[None]:
    """Raise an error of writing as an EngineError of kind "file" that names its option."""
    return refusing("file", "Cannot write: {}.", str(path), f"Give another {option}.", OSError)


def write(path: Path, text: str | bytes, option: str = "-o", mode: Literal["w", "a"] = "w") -> None:
    """Write a file, or add to it, as `writing`."""
    with writing(path, option), path.open(f"{mode}b") as file:
        file.write(text.encode("utf-8", "replace") if isinstance(text, str) else text)
