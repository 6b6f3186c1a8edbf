"""`bisect` and `reduce`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from relascope.commands.shared import (
    Connect,
    Document,
    Engine,
    first_target,
    pipeline_of,
    source_of,
    write,
)
from relascope.engine.jobs import bisect as bisection
from relascope.engine.jobs import reduce as reduction
from relascope.viz.rows import fault, tables


def bisect(args: argparse.Namespace, connect: Connect) -> Document:
    """The first pass that makes a pipeline wrong, slow, or crash."""
    with Engine(args, connect) as ask:
        result = _bisected(args, ask)
    document = tables.bisect_document(args.engine, result)
    if args.output:
        write(args.output, json.dumps(document, ensure_ascii=False))
    return document


def reduce(args: argparse.Namespace, connect: Connect) -> Document:
    """Bisect, then narrow the fault inside the pass to a few nodes, as a report that runs."""
    fault.check_folder(args.out)
    with Engine(args, connect) as ask:
        found = _bisected(args, ask)
        made = None
        if not reduction.cannot(found):
            made = reduction.narrow(ask, args.engine, found, most=args.tries)
    if made is not None and made.report is not None:
        fault.write(made.report, args.out)
    return fault.document(args.engine, found, made, str(args.out))


def _bisected(args: argparse.Namespace, ask: Callable[..., Any]) -> bisection.Bisection:
    source, pipeline = source_of(args), pipeline_of(args)
    ask("load", source)  # what cannot be opened is no fault of a pass
    question = bisection.Question(
        source,
        pipeline,
        args.target or first_target(ask),
        args.kind or "",
        args.factor,
        args.threads,
        args.repeats,
    )
    return bisection.bisect(ask, args.engine, question)
