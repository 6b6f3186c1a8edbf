"""`bisect` and `reduce`."""

import shlex
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from relascope.commands.shared import Command, Document, check_folder, scratch, write_files
from relascope.core.errors import EngineError
from relascope.engine import jobs
from relascope.engine.jobs import nth
from relascope.engine.jobs.accuracy import DTYPES
from relascope.engine.jobs.bisect import Bisection, Question
from relascope.engine.jobs.own_test import OwnTest
from relascope.engine.jobs.reduce import cannot, narrow
from relascope.engine.protocol.fault import OF_TEST
from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import Pipeline
from relascope.passes.search.reduce import MOST
from relascope.recorder.reading import Recording
from relascope.viz.rows import fault, recorded_numbers, tables
from relascope.viz.rows.recorded_numbers import Part, RecordedNumbers

BisectedDocument = tuple[Bisection, Document]
"""A bisection, and its document."""


def bisect(command: Command) -> Document:
    """The first pass that makes a pipeline wrong, slow, or crash.

    Of a pass on our rewriters, also the application of it that does, and to which node. MODEL may
    be a recording with modules."""
    out = command.args.out
    if out:
        check_folder(out, "report", "--out")
    _, document = found = _bisected(command, within=True)
    document["report"] = None
    if out:
        whole = narrowed(command, found, out, "--out", most=1)
        document["report"] = whole["report"]
        if whole["report"] is None:
            document["verdict"] += f" There is no report. {whole['verdict']}"
    return command.written(document)


def reduce(command: Command) -> Document:
    """Bisect, then narrow the fault inside the pass to a few nodes, as a report that runs."""
    args = command.args
    check_folder(args.out, "report", "--out")
    return narrowed(command, _bisected(command), args.out, "--out", args.tries)


def narrowed(
    command: Command, bisected: BisectedDocument, folder: Path, option: str, most: int = MOST
) -> Document:
    """The document of a bisection's reduction, after writing its report to the option's folder."""
    bisection, document = bisected
    made = None
    if not cannot(bisection):
        said = shlex.join(["relascope", *command.args.argv])
        ir, limits = command.engine, command.limits
        made = narrow(command, ir, bisection, most=most, limits=limits, command=said)
    if made is not None and made.report is not None:
        from relascope.viz.handed_on.fault import with_page

        report = with_page(made.report)
        write_files(report.files, folder, option)
        made = replace(made, report=report)
    return fault.document(command.engine, bisection, document, made, str(folder))


def test_of(args: Namespace, **judges: object) -> OwnTest | None:
    """The person's own test of the options. Raises EngineError, kind "usage", if it cannot be run,
    or conflicts with the other options in `judges`."""
    if args.test is None:
        return None
    judges |= {"rtol": args.rtol, "atol": args.atol}
    if given := [f"--{name}" for name, value in judges.items() if value]:
        message = "With a test of your own, that test alone decides what is bad."
        raise EngineError("usage", message, "--test", f"Leave out {' and '.join(given)}.")
    return OwnTest.of(args.test, args.test_seconds)


def _bisected(command: Command, within: bool = False) -> BisectedDocument:
    """A search, and its document; with `within`, also for the application inside the pass."""
    args, source, pipeline = command.args, command.source, command.pipeline
    if command.recorded:
        if args.kind in ("slow", "memory"):
            said = "Recorded passes cannot run again, so they are not measured."
            raise EngineError("usage", said, "--kind", "Search for one that is wrong or crashes.")
        names = "batch", "tokens", "input", "pin", "params", "module"
        given = [f"--{name}" for name in names if getattr(args, name)]
        if given or args.dtype != DTYPES[0]:
            said = "Recorded modules run as they are: from their function main, on its types."
            raise EngineError("usage", said, (*given, "--dtype")[0], "Leave it out.")
        return searched(command, *modules_of(command, command.recorded.recording))
    command("load", source)  # a file that cannot be opened is not a pass's fault
    limits = {"seconds": args.pass_seconds, "memory": args.pass_memory}
    timed = {"factor": args.factor, "threads": args.threads, "repeats": args.repeats or 30}
    question = replace(_question(command, source, pipeline), **limits, **timed)
    result = jobs.bisect.bisect(command, command.engine, question)
    inside = nth.nth(command, command.engine, result) if within else None
    return result, tables.bisect_document(command.engine, result, inside)


def _question(command: Command, source: ModelSource, pipeline: Pipeline) -> Question:
    args = command.args
    test = test_of(args, kind=args.kind, errors=getattr(args, "errors", None))
    about = source, pipeline, command.target, OF_TEST if test else args.kind or ""
    return Question(*about, tolerance=command.tolerance, runs=args.repeats or 1, test=test)


def modules_of(command: Command, recording: Recording) -> tuple[RecordedNumbers, tuple[Part, ...]]:
    """The modules of a recording, which an engine runs from here on, and its parts. Raises
    EngineError, kind "file", if they cannot be run."""
    args = command.args
    args.model, args.engine = "", recorded_numbers.ir_of(recording)
    found = recorded_numbers.parts(recording, args.run_kernels)
    if not found:
        name = recording.path.name
        message = f"{name} has no two modules that can be run and compared."
        flag = not args.run_kernels and recorded_numbers.parts(recording, kernels=True)
        hint = "Run them, in the sandbox, with --run-kernels." if flag else ""
        raise EngineError("file", f"{message} {recorded_numbers.why_none(recording)}", name, hint)
    recorded_numbers.same_tvm(recording, command("describe").version)
    folder = Path(tempfile.mkdtemp(dir=scratch().name))
    how = args.seed, tuple(map(Path, args.tensors)), args.run_kernels, args.values
    return RecordedNumbers(recording, folder, *how), found


def searched(command: Command, numbers: RecordedNumbers, parts: Sequence[Part]) -> BisectedDocument:
    """A search for the pass that breaks the first bad part of a recorded compile."""
    ir = command.engine
    done, verdict = numbers.search(command, ir, parts, partial(_question, command))
    documents = [tables.bisect_document(ir, each) for _, each in done]
    log = [row for document in documents for row in document["log"]]
    part, result = done[-1]
    of = {"model": str(numbers.recording.path), "log": log, "verdict": verdict}
    compiles = sum(each.compiles for _, each in done)
    return result, {**documents[-1], **recorded_numbers.part_row(part), **of, "compiles": compiles}
