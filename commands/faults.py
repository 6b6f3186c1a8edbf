"""`bisect` and `reduce`."""

import argparse

from relascope.commands.shared import (
    Connect,
    Document,
    EngineCalls,
    pipeline_of,
    source_of,
    target_of,
    tolerance_of,
    written_out,
)
from relascope.core.errors import EngineError
from relascope.engine import jobs
from relascope.engine.jobs import nth
from relascope.engine.jobs.bisect import Bisection, Question
from relascope.engine.jobs.own_test import OwnTest
from relascope.engine.jobs.reduce import cannot, narrow
from relascope.engine.protocol.fault import OF_TEST
from relascope.engine.protocol.session import Ask
from relascope.viz.rows import fault, tables


def bisect(args: argparse.Namespace, connect: Connect) -> Document:
    """The first pass that makes a pipeline wrong, slow, or crash.

    Of a pass on our rewriters, also the application of it that does, and to which node.
    """
    with EngineCalls(args, connect) as ask:
        result = _bisected(args, ask)
        inside = nth.nth(ask, args.engine, result)
    return written_out(args, tables.bisect_document(args.engine, result, inside))


def reduce(args: argparse.Namespace, connect: Connect) -> Document:
    """Bisect, then narrow the fault inside the pass to a few nodes, as a report that runs."""
    fault.check_folder(args.out)
    with EngineCalls(args, connect) as ask:
        found = _bisected(args, ask)
        made = None
        if not cannot(found):
            made = narrow(ask, args.engine, found, most=args.tries, limits=ask.limits)
    if made is not None and made.report is not None:
        fault.write(made.report, args.out)
    return fault.document(args.engine, found, made, str(args.out))


def _bisected(args: argparse.Namespace, ask: Ask) -> Bisection:
    test = None if args.test is None else OwnTest.of(args.test, args.test_seconds)
    if test is not None and (args.kind or args.rtol or args.atol):
        message = "With a test of your own, that test alone decides what is bad."
        raise EngineError("usage", message, "--test", "Leave out --kind, --rtol and --atol.")
    source, pipeline = source_of(args), pipeline_of(args)
    ask("load", source)  # what cannot be opened is no fault of a pass
    how = (
        OF_TEST if test else args.kind or "",
        args.factor,
        args.threads,
        args.repeats or 30,
        tolerance_of(args),
    )
    taken = args.repeats or 1, args.pass_seconds, args.pass_memory, test
    question = Question(source, pipeline, target_of(args, ask), *how, *taken)
    return jobs.bisect.bisect(ask, args.engine, question)
