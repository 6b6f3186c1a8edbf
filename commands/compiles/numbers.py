"""`open` with --errors, --bisect or --reduce: the numbers of a recorded compile, in an engine."""

import argparse
from pathlib import Path

from relascope.commands.faults import narrowed
from relascope.commands.options import run_kernels, seed_and_tensors, target, tolerance
from relascope.commands.shared import Command, Document, check_folder
from relascope.core.errors import EngineError
from relascope.core.scratch import Scratch
from relascope.recorder.reading import Recording
from relascope.viz.rows import tables
from relascope.viz.rows.recorded_numbers import (
    Part,
    RecordedNumbers,
    first_words,
    ir_of,
    parts,
    same_tvm,
    verdict,
    why_none,
)


def number_options(add_to: argparse.ArgumentParser) -> None:
    """What is asked of the modules, and on which inputs."""
    add = add_to.add_argument
    add("--errors", action="store_true", help="run the module after each pass, and compare")
    add("--bisect", action="store_true", help="the first pass that makes the numbers wrong")
    about = "bisect, and narrow the fault inside the pass to a few nodes, as a report that runs"
    add("--reduce", type=Path, metavar="FOLDER", help=about)
    run_kernels(add_to)
    seed_and_tensors(add_to)
    target(add_to)
    tolerance(add_to)


def needs_engine(args: argparse.Namespace) -> bool:
    """Whether an engine is asked."""
    return bool(args.errors or args.bisect or args.reduce)


def numbers(command: Command, recording: Recording) -> Document:
    """Run a recording's modules and compare them, or look for the pass that breaks them.

    Raises:
        EngineError: kind "file"; they cannot be run.
    """
    args = command.args
    if args.reduce:
        check_folder(args.reduce, "report", "--reduce")
    args.engine = ir_of(recording)
    found = parts(recording, args.run_kernels)
    if not found:
        name = recording.path.name
        message = f"{name} has no two modules that could be run and compared."
        raise EngineError("file", f"{message} {why_none(recording)}", name)
    document: Document = {"file": str(args.file), "engine": args.engine}
    document |= {"errors": None, "bisection": None, "reduction": None}
    with Scratch() as folder:
        same_tvm(recording, command("describe").version)
        tensors = tuple(map(Path, args.tensors))
        held = RecordedNumbers(recording, Path(folder), args.seed, tensors, args.run_kernels)
        document["target"] = best = command.target
        given = best, command.tolerance
        if args.errors:
            document["errors"] = [
                {**_about(recording, one), "rows": held.errors(command, one, *given)}
                for one in found
            ]
        if args.bisect or args.reduce:
            document |= _searched(command, held, found, best)
    return document


def _about(recording: Recording, part: Part) -> Document:
    return {"against": first_words(recording, part), "end": part.end or None}


def _searched(
    command: Command, held: RecordedNumbers, found: tuple[Part, ...], best: str
) -> Document:
    """Of the first part that is bad, which pass makes it so; else that none does in any part."""
    args = command.args
    searches = held.search(command, args.engine, found, best, command.tolerance)
    done = [(one.part, one.result) for one in searches if one.result is not None]
    part, result = done[-1]
    documents = [tables.bisect_document(args.engine, each) for _, each in done]
    bisection = {**documents[-1], "model": str(args.file), **_about(held.recording, part)}
    bisection["log"] = [row for document in documents for row in document["log"]]
    bisection["compiles"] = sum(each.compiles for _, each in done)
    bisection["verdict"] = verdict(args.engine, held.recording, searches)
    told: Document = {"bisection": bisection}
    if args.reduce and result.kind:
        reduced = narrowed(command, result, args.reduce, "--reduce")
        told["reduction"] = {**reduced, "model": str(args.file), "bisection": bisection["verdict"]}
    return told
