"""The commands that build: for a target that need not be here, and to be timed."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from relascope.commands.shared import (
    Connect,
    Document,
    Engine,
    cut_request,
    fleet_of,
    fleet_options,
    pipeline_of,
    request_of,
    source_of,
    write,
)
from relascope.core.errors import EngineError
from relascope.engine.jobs import variants
from relascope.engine.protocol.request import BuildRequest
from relascope.viz.rows import artefact, timings


def compile_options(command: argparse.ArgumentParser) -> None:
    """What is built for, and what is kept of it."""
    command.add_argument(
        "--target",
        metavar="T",
        required=True,
        help="a TVM target, whose device need not be here: 'cuda -arch=sm_90'",
    )
    command.add_argument("--code", action="store_true", help="print each kernel's code, too")
    command.add_argument(
        "-o",
        dest="output",
        type=Path,
        metavar="FOLDER",
        help="write the library's object files and the code into this new folder",
    )


def time_options(command: argparse.ArgumentParser) -> None:
    """What is timed in the same run, and where runs are kept."""
    command.add_argument(
        "--ways",
        metavar="NAMES",
        help=f"time other ways of building in the same run: some of {', '.join(variants.WAYS)}, "
        "separated by commas, or all",
    )
    command.add_argument(
        "--history",
        type=Path,
        metavar="FILE",
        help="add the run to a file: lines of CSV where it ends in .csv, else one line of JSON",
    )
    fleet_options(command)


def compile_model(args: argparse.Namespace, connect: Connect) -> Document:
    """Build for a target, whose device need not be here: sizes, and each kernel's code."""
    source, pipeline = source_of(args), pipeline_of(args)
    if args.output:
        _check_folder(args.output)
    folder = str(args.output.absolute()) if args.output else ""
    with Engine(args, connect) as ask:
        request = BuildRequest(source, pipeline, args.target)
        found = ask("compile", cut_request(args, ask, request), folder)
    return {
        "model": source.model,
        "engine": args.engine,
        "pipeline": str(pipeline),
        "strategy": args.strategy if source.training else None,
        **artefact.document(found, args.code),
    }


def time_model(args: argparse.Namespace, connect: Connect) -> Document:
    """Compile, compare with PyTorch, and time against PyTorch eager, in one way or several."""
    source, pipeline = source_of(args), pipeline_of(args)
    fleet = fleet_of(args)
    if fleet is not None:
        _check_there(args)
    with Engine(args, connect) as ask:
        request = request_of(args, ask)
        taken: tuple[variants.Offer, ...] = ()
        if args.ways:
            offered = variants.offers(args.engine, ask("describe").targets, request.target)
            taken = variants.chosen(args.ways, offered)
        made = variants.variants(request, taken, lambda one: cut_request(args, ask, one))
        request = cut_request(args, ask, request)
        if fleet is not None:
            result = ask("time_remote", request, fleet)
        else:
            result = ask("time", request, tuple(args.rival), made)
    document = timings.run_document(
        result,
        args.engine,
        str(pipeline),
        args.strategy if source.training else None,
        {
            "model": source.model,
            "batch": source.batch,
            "tokens": source.tokens,
            "dtype": source.dtype,
            "training": source.training,
            "repeats": args.repeats,
            "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        },
    )
    if args.output:
        if args.output.suffix == ".csv":
            write(args.output, timings.csv_text(document["rows"], (*timings.COLUMNS, "target")))
        else:
            write(args.output, json.dumps(document, ensure_ascii=False))
    if args.history:
        _append(args.history, document)
    return document


def _check_there(args: argparse.Namespace) -> None:
    """Refuse what is not done on a fleet's device.

    Raises:
        EngineError: kind "usage".
    """
    if args.rival or args.ways:
        raise EngineError(
            "usage",
            "On a device of a fleet the program is timed by itself.",
            "--rival, --ways",
            "Leave them out: PyTorch is not there.",
        )
    if not args.target:
        raise EngineError(
            "usage",
            "What the devices of the fleet are is not said.",
            "--target",
            "Give a target, such as 'llvm -mtriple=aarch64-linux-gnu' or 'cuda -arch=sm_90'.",
        )


def _append(path: Path, document: Document) -> None:
    new = not path.exists() or not path.stat().st_size
    if path.suffix == ".csv":
        text = timings.history_csv([document], head=new)
    else:
        text = json.dumps(document, ensure_ascii=False) + "\n"
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as wrong:
        raise EngineError(
            "file",
            f"Cannot write: {wrong.strerror or wrong}.",
            str(path),
            "Give another --history.",
        ) from wrong


def _check_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EngineError(
            "usage",
            "The library needs a folder of its own, and there is something here.",
            str(folder),
            "Give another -o.",
        )
