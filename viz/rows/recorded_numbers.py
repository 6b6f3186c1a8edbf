"""The numbers of a recorded compile: which of its modules can be run and compared.

A part of a compile is a sequence of one program's modules, pass by pass, with the same arguments
and results. An engine opens the first as a model, and each pass that changed it is a step of a
pipeline, to the module recorded after it. Errors, bisection and reduction work as on pipelines.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relascope.core.errors import EngineError, refusing
from relascope.core.graph import Graph, TensorType
from relascope.engine.files.formats import is_relax_json
from relascope.engine.jobs import accuracy, bisect
from relascope.engine.jobs.step import step
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import INPUTS, ModelSource, source_from_file, with_tensors
from relascope.passes.catalogue import recorded
from relascope.passes.pipeline import Pipeline
from relascope.recorder.reading import PassRun, Recording, walk
from relascope.recorder.writing import LEVELS
from relascope.viz.rows import Row, tables
from relascope.viz.rows.recording import module_text, no_module
from relascope.viz.rows.sections import Section, table

_COLUMNS = (
    "pass: name; verdict: error.verdict; against the first: error.max_rel; "
    "against the one before: step_error.max_rel; limit: error.limit; "
    "not compared?: failure.message"
)

_KERNELS = "It contains kernels, which are code, and running them was not allowed."


@dataclass(frozen=True)
class Part:
    """A program on its way through passes that keep its arguments and results."""

    by: PassRun  # the pass that returned its first module (`after`), or received it
    after: bool
    runs: tuple[PassRun, ...]  # that returned the others, in order
    end: str = ""  # from which pass on modules are not compared, and why


def check(recording: Recording) -> None:
    """Raise EngineError of kind "file" if a recording has no modules."""
    level, name = recording.about.get("level"), recording.path.name
    if level != LEVELS[-1]:
        message = f"{name} has no modules to run: it was recorded at the level {level}."
        hint = f"Record the compile again with relascope record --level {LEVELS[-1]} …"
        raise EngineError("file", message, name, hint)


def ir_of(recording: Recording) -> str:
    """The IR of a recording's modules. Raises EngineError of kind "file" if it has none."""
    check(recording)
    for run in recording.passes:
        if (text := recording.module(run.index, after=False)) is not None:
            return "relax" if is_relax_json(text) else "relay"
    name = recording.path.name
    raise EngineError("file", f"No pass of {name} received a module.", name)


def same_tvm(recording: Recording, version: str) -> None:
    """Raise EngineError of kind "file" if a recording's TVM is not the engine's version."""
    its, name = str(recording.about.get("tvm")), recording.path.name
    if its not in version.split():
        message = f"{name} was recorded with TVM {its[:60]}, but the engine here has {version}, "
        hint = "Open it where that TVM is installed, or record it with this one."
        raise EngineError("file", f"{message}which may read modules differently.", name, hint)


def why_not(recording: Recording, run: PassRun, after: bool, kernels: bool = False) -> str:
    """Why the module before or after a pass may not be run, with or without kernels, or ""."""
    side = run.after if after else run.before
    if side is None:
        return no_module(run)
    if "main" not in side:
        return 'It has no function "main" to run.'
    for content in dict.fromkeys([side["main"]] if kernels else side.values()):
        if not recording.has_graph(content):
            why = recording.no_graph(content)
            return f"Its graph is not known: {why[:200]}" if why else _KERNELS
    return ""


def parts(recording: Recording, kernels: bool = False) -> tuple[Part, ...]:
    """The parts of a recorded compile that have a pass, in order; raises as `check`. Programs that
    a pass makes for its own use, such as constants to fold, are left out. With `kernels`, kernels
    of Relax modules, which are code, may be run."""
    kernels = kernels and ir_of(recording) == "relax"
    return tuple(part for part in _all_parts(recording, kernels) if part.runs)


def why_none(recording: Recording) -> str:
    """Why there are no `parts`: where the programs end, else the first reason not to run one."""
    if ends := [part.end for part in _all_parts(recording) if part.end]:
        return " ".join(ends[:3])
    for run, after in ((r, after) for r in recording.passes for after in (False, True)):
        if why := why_not(recording, run, after):
            return f"Pass {run.number}, {run.name}: {why}"
    return "No pass in it returned another module."


def _all_parts(recording: Recording, kernels: bool = False) -> tuple[Part, ...]:
    """The same with parts of a single module."""
    check(recording)
    line: list[tuple[int, PassRun, bool]] = []  # module, pass, whether after it
    whole: list[list[tuple[int, PassRun, bool]]] = []
    follow: set[int] = set()  # passes that received the line's last module
    for run, around, ended in walk(recording.passes):
        module = recording.module_number(run.index, after=ended)
        if ended:
            if run.index in follow and module is not None and module != line[-1][0]:
                line.append((module, run, True))
            continue
        if not around and module is not None and (not line or line[-1][0] != module):
            whole.append(line := [(module, run, False)])
        if line and module == line[-1][0]:
            follow.add(run.index)
    return tuple(part for one in whole for part in _split(recording, one, kernels))


def _split(
    recording: Recording, line: Sequence[tuple[int, PassRun, bool]], kernels: bool
) -> list[Part]:
    """The parts of one program's modules that have the same arguments and results."""
    found: list[Part] = []
    signature: _Signature | None = None  # the last part's, unless it has ended
    for _, run, after in line:
        why = why_not(recording, run, after, kernels)
        its = None if why else _signature(recording, run, after)
        if signature is not None and its is not None:
            if _same(signature, its):
                found[-1] = replace(found[-1], runs=(*found[-1].runs, run))
                continue
            why = _other(signature, its)
        if signature is not None:
            found[-1] = replace(found[-1], end=f"From pass {run.number}, {run.name}, on: {why}")
        if its is not None:
            found.append(Part(run, after, ()))
        signature = its
    if signature is not None:
        found[-1] = replace(found[-1], end=_raised(recording, found[-1]))
    return found


def _raised(recording: Recording, part: Part) -> str:
    """A sentence on the innermost pass that raised on a part's last module, or ""."""
    by, after = (part.runs[-1], True) if part.runs else (part.by, part.after)
    last = recording.module_number(by.index, after)
    given = (r for r in recording.passes if recording.module_number(r.index, False) == last)
    stopped = (r for r in given if r.after is None and (r.failure is not None or r.seconds is None))
    run = max(stopped, key=lambda r: r.depth, default=None)
    return "" if run is None else f"Pass {run.number}, {run.name}: {no_module(run)}"


_Signature = tuple[tuple[tuple[str, TensorType], ...], tuple[tuple[str, TensorType], ...]]
"""The arguments of "main", by name, and its results, without names."""


def _signature(recording: Recording, run: PassRun, after: bool) -> _Signature:
    side = run.after if after else run.before
    graph: Graph | None = recording.graph(side["main"]) if side else None
    assert graph is not None, "checked by `why_not`"
    inputs, results = ([graph.by_id[i] for i in ids] for ids in (graph.inputs, graph.outputs))
    named = tuple((n.name, t) for n in inputs for t in n.outputs)
    return named, tuple(("", t) for n in results for t in n.outputs)


def _same(before: _Signature, after: _Signature) -> bool:
    return all(
        len(a) == len(b) and all(n == m and t.fits(u) for (n, t), (m, u) in zip(a, b, strict=True))
        for a, b in zip(before, after, strict=True)
    )


def _other(before: _Signature, after: _Signature) -> str:
    """A sentence on how a module's arguments or results differ from those of the one before."""
    takes = not _same((before[0], ()), (after[0], ()))
    sides = before[not takes], after[not takes]
    was, now = (", ".join(f"{n}: {t}" if n else str(t) for n, t in s) or "nothing" for s in sides)
    return f"It now {'takes' if takes else 'returns'} {now[:200]}, not {was[:200]}."


def first_words(part: Part) -> str:
    """A part's first module, in words that follow "Compared with"."""
    did = "returned" if part.after else "received"
    return f"the module that pass {part.by.number}, {part.by.name}, {did}"


def part_row(part: Part) -> Row:
    """With what a part's numbers are compared, and where and why it ends, or None."""
    return {"against": first_words(part), "end": part.end or None}


def numbers_table(rows: Sequence[Row], title: str = "") -> Section:
    """A table of rows of `RecordedNumbers.errors`."""
    return table(title, [{**r, "name": f"{r['number']} {r['pass']}"} for r in rows], _COLUMNS)


def _line(error: EngineError) -> str:
    return error.message.partition("\n")[0]


@dataclass(frozen=True)
class RecordedNumbers:
    """A recording whose modules, written into its `folder`, an engine runs, with their `kernels` if
    allowed, on `tensors` from files, or on inputs of a kind (`values`) that are drawn by a seed."""

    recording: Recording
    folder: Path
    seed: int = 0
    tensors: tuple[Path, ...] = ()
    kernels: bool = False
    values: str = INPUTS[0]

    def source(self, part: Part) -> ModelSource:
        """A part's first module as a model. Raises EngineError of kind "file" if that fails."""
        file = recorded.file_name(self._write(part.by, part.after))
        source = source_from_file(self.folder / file, seed=self.seed)
        source = with_tensors(source, self.tensors)
        return replace(source, kernels=self.kernels, values=self.values)

    def pipeline(self, part: Part) -> Pipeline:
        """The passes of a part; raises as `source`."""
        written = ((self._write(run, True), run.number, run.name) for run in part.runs)
        return Pipeline(tuple(recorded.recorded(*about) for about in written))

    def _write(self, run: PassRun, after: bool) -> int:
        """Write a module, once; its number."""
        module = self.recording.module_number(run.index, after)
        assert module is not None, "a part has only modules in the recording"
        file = self.folder / recorded.file_name(module)
        if not file.exists():
            text = module_text(self.recording, run, after)
            message = "A module of the recording cannot be written: {}."
            with refusing("file", message, str(self.folder), "", OSError):
                fresh = file.with_suffix(".new")
                fresh.write_text(text, encoding="utf-8")
                fresh.replace(file)
        return module

    def errors(
        self,
        ask: Ask,
        part: Part,
        target: str,
        given: accuracy.Tolerance,
        tell: Callable[[Row], None] = lambda row: None,
    ) -> list[Row]:
        """A row for each pass of a part, passed to `tell` when done: "number", "pass", "error"
        against the first module and "step_error" against the one before the pass, as in
        `viz.rows.tables.judged_row`; "failure" says why it cannot be compared."""
        rows: list[Row] = []
        source, pipeline = self.source(part), self.pipeline(part)
        stepped = step(ask, source, pipeline)
        last = part
        for index, run in enumerate(part.runs):
            row: Row = {"number": run.number, "pass": run.name}
            row |= {"error": None, "step_error": None, "failure": None}
            try:
                if (error := stepped.records[index].error) is not None:
                    raise error
                row["error"] = _judged(ask, source, stepped.sound.upto(index), target, given)
                own = replace(last, runs=(run,))
                about = self.source(own), self.pipeline(own), target, given
                row["step_error"] = row["error"] if last is part else _judged(ask, *about)
            except EngineError as error:
                row["failure"] = error.as_finding().to_json()
            else:
                last = Part(run, True, ())
            rows.append(row)
            tell(row)
        return rows

    def readable(self, ask: Ask, part: Part) -> tuple[Pipeline, str]:
        """The pipeline of a part without modules that cannot be read, and sentences on those.
        Raises EngineError if none can be read."""
        stepped = step(ask, self.source(part), self.pipeline(part))
        pairs = list(zip(part.runs, stepped.records, strict=True))
        # An ill-formed module is a finding, so it stays.
        failed = [(run, r.error) for run, r in pairs if r.error and r.error.kind != "type"]
        if len(failed) == len(part.runs):
            raise failed[0][1]
        left_out = [
            f"Pass {run.number}, {run.name}, is left out: {_line(error)}" for run, error in failed
        ]
        more = f" {len(left_out) - 3} more are left out." if len(left_out) > 3 else ""
        kept = (run for run, r in pairs if r.error is None or r.error.kind == "type")
        return self.pipeline(replace(part, runs=tuple(kept))), " ".join(left_out[:3]) + more

    def search(
        self,
        ask: Ask,
        ir: str,
        given: Sequence[Part],
        question: Callable[[ModelSource, Pipeline], bisect.Question],
    ) -> tuple[list[tuple[Part, bisect.Bisection]], str]:
        """Bisect parts in order, up to the first with a fault, by the question about each, with a
        line on each: its result, where it ends, and why. Raises EngineError if none can be."""
        done: list[tuple[Part, bisect.Bisection]] = []
        said: list[str] = []
        failure: EngineError | None = None
        for part in given:
            left_out = ""
            try:
                pipeline, left_out = self.readable(ask, part)
                done.append((part, bisect.bisect(ask, ir, question(self.source(part), pipeline))))
                words = bisect.verdict(ir, done[-1][1])
            except EngineError as error:
                finding = error.as_finding()
                failure = failure or finding
                words = f"It could not be searched: {_line(finding)}"
            words = f"From {first_words(part)}: {words}"
            said.append(" ".join(filter(None, (words, left_out, part.end))))
            if done and done[-1][1].kind:
                break
        if failure and not done:
            raise failure
        return done, "\n".join(said)


def _judged(
    ask: Ask, source: ModelSource, pipeline: Pipeline, target: str, given: accuracy.Tolerance
) -> Row:
    found = accuracy.judged(ask, source, lambda s: BuildRequest(s, pipeline, target), given)
    return tables.judged_row(found)
