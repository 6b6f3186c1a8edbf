"""The same jobs as the page's, without a browser: `python cli.py COMMAND … --json`.

With --json, stdout is exactly one JSON document; progress and logs go to stderr. The exit status is
0 when the job was done, 1 when it was not (then the document is {"error": …}), 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence

from relascope.commands import building, explain, options, tuning
from relascope.commands import text as texts
from relascope.commands.cuts import both_gradients, captures
from relascope.commands.faults import bisect, reduce
from relascope.commands.graphs import compare, graph, models, passes
from relascope.commands.shared import Connect
from relascope.commands.stepping import check, step
from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue.user import name_files
from relascope.viz.rows import artefact, fault
from relascope.viz.rows import tuning as tuned


def main(argv: Sequence[str] | None = None, connect: Connect = EngineClient) -> int:
    """Run one command and return the exit status.

    Args:
        argv: the arguments after the program's name; None takes them from the process.
        connect: makes the client of an engine from the name of its IR.
    """
    args = _parser().parse_args(argv)
    if not args.verbose:  # an error is told in words; Python would print the engine's log as well
        logging.getLogger("relascope.engine").addHandler(logging.NullHandler())
    try:
        _own_passes(args)
        document = args.run(args, connect)
    except EngineError as error:
        return _fail(args, error)
    except KeyboardInterrupt:
        return _fail(args, EngineError("cancelled", "Stopped from the keyboard."))
    text = json.dumps(document, ensure_ascii=False, allow_nan=False) if args.json else None
    try:
        print(args.text(document) if text is None else text, flush=True)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if document.get("cancelled") else 0


def _fail(args: argparse.Namespace, error: EngineError) -> int:
    if args.json:
        print(json.dumps({"error": error.to_json()}, ensure_ascii=False))
    where = f" ({error.where})" if error.where else ""
    print(f"error: {error.message}{where}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return 2 if error.kind == "usage" else 1


# The commands. Each takes the arguments and returns the document that --json prints.


# What some of them share.


def _own_passes(args: argparse.Namespace) -> None:
    try:
        name_files(getattr(args, "pass_file", []))
    except ValueError as wrong:
        raise EngineError(
            "usage", f"{wrong}.", "--pass-file", "A pass is a function of `program`."
        ) from wrong


# The arguments.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cli.py",
        description="See, step, cut, compile and time TVM graphs of PyTorch models.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    program = (options.model, options.gradient, options.passes)
    for name, run, text, help_, groups in (
        ("models", models, texts.models, "list the samples", ()),
        (
            "passes",
            passes,
            texts.passes,
            "list the passes and the default pipelines, or show one",
            (options.one_pass, options.pass_file),
        ),
        ("graph", graph, texts.graph, "the graph of a model", (*program, options.output)),
        (
            "step",
            step,
            texts.step,
            "what each pass of a pipeline does",
            (*program, options.check, options.output),
        ),
        ("compare", compare, texts.compare, "one model in Relay and in Relax", program),
        (
            "check",
            check,
            texts.check,
            "every stage against PyTorch, in float32 and float64",
            (*program, options.truth, options.output),
        ),
        (
            "bisect",
            bisect,
            texts.bisect,
            "the first pass that makes a pipeline bad",
            (*program, options.bisect, options.time, options.output),
        ),
        (
            "reduce",
            reduce,
            fault.text,
            "narrow a fault inside a pass; a report that runs",
            (*program, options.bisect, options.time, options.reduce),
        ),
        (
            "captures",
            captures,
            texts.captures,
            "what the forward saves for the backward",
            (*program, options.captures, options.time, options.output),
        ),
        (
            "gradients",
            both_gradients,
            texts.gradients,
            "TVM's gradient beside PyTorch's",
            (options.model, options.target),
        ),
        (
            "compile",
            building.compile_model,
            artefact.text,
            "build for a target, and see the code",
            (*program, options.by_hand, building.compile_options),
        ),
        (
            "time",
            building.time_model,
            texts.time,
            "compile, compare and time against PyTorch",
            (*program, options.by_hand, options.rivals, building.time_options, options.output),
        ),
        (
            "profile",
            explain.profile,
            texts.profile,
            "time every kernel by itself",
            (*program, options.by_hand, options.time, explain.trace_option, options.output),
        ),
        (
            "tasks",
            tuning.tasks,
            tuned.tasks_text,
            "the kernels that can be tuned",
            (*program, options.by_hand, tuning.options, options.output),
        ),
        (
            "tune",
            tuning.tune,
            tuned.tune_text,
            "measure schedules of kernels, and keep the best",
            (*program, options.by_hand, tuning.options, tuning.more_options, options.output),
        ),
        (
            "lint",
            explain.lint,
            texts.lint,
            "what could be faster, and the pass that makes it so",
            (*program, options.lint, options.output),
        ),
    ):
        command = commands.add_parser(name, help=help_, description=run.__doc__, allow_abbrev=False)
        command.set_defaults(run=run, text=text)
        if run is not compare:
            command.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="which TVM")
        command.add_argument("--json", action="store_true", help="print one JSON document")
        command.add_argument("--verbose", action="store_true", help="the engine's log, on stderr")
        for add in groups:
            add(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
