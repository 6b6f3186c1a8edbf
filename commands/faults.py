"""`bisect` and `reduce`."""

import shlex
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from relascope.commands.shared import Command, Document, check_folder, write_files
from relascope.core.errors import EngineError
from relascope.engine import jobs
from relascope.engine.jobs import nth
from relascope.engine.jobs.bisect import Bisection, Question
from relascope.engine.jobs.own_test import OwnTest
from relascope.engine.jobs.reduce import cannot, narrow
from relascope.engine.protocol.fault import OF_TEST
from relascope.passes.search.reduce import MOST
from relascope.viz.rows import fault, tables


def bisect(command: Command) -> Document:
    """The first pass that makes a pipeline wrong, slow, or crash.

    Of a pass on our rewriters, also the application of it that does, and to which node.
    """
    if command.args.out:
        check_folder(command.args.out, "report", "--out")
    result = _bisected(command)
    inside = nth.nth(command, command.engine, result)
    document = tables.bisect_document(command.engine, result, inside) | {"report": None}
    if command.args.out:
        whole = narrowed(command, result, command.args.out, "--out", most=1)
        document["report"] = whole["report"]
        if whole["report"] is None:
            document["verdict"] += f" There is no report. {whole['verdict']}"
    return command.written(document)


def reduce(command: Command) -> Document:
    """Bisect, then narrow the fault inside the pass to a few nodes, as a report that runs."""
    args = command.args
    check_folder(args.out, "report", "--out")
    found = _bisected(command)
    return narrowed(command, found, args.out, "--out", args.tries)


def narrowed(
    command: Command, bisection: Bisection, folder: Path, option: str, most: int = MOST
) -> Document:
    """The document of a reduction, after writing its report to the option's folder."""
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
    return fault.document(command.engine, bisection, made, str(folder))


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


def _bisected(command: Command) -> Bisection:
    args = command.args
    test = test_of(args, kind=args.kind)
    source, pipeline = command.source, command.pipeline
    command("load", source)  # a file that cannot be opened is not a pass's fault
    how = (
        OF_TEST if test else args.kind or "",
        args.factor,
        args.threads,
        args.repeats or 30,
        command.tolerance,
    )
    taken = args.repeats or 1, args.pass_seconds, args.pass_memory, test
    question = Question(source, pipeline, command.target, *how, *taken)
    return jobs.bisect.bisect(command, command.engine, question)
