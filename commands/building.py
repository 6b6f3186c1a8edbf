"""The commands that build: for a target that need not be here, and to be timed."""

import argparse
import json
import time
from pathlib import Path

from relascope.commands import handing_on
from relascope.commands.shared import (
    Connect,
    Document,
    EngineCalls,
    about,
    cut_request,
    fleet_of,
    pipeline_of,
    request_of,
    source_of,
    write,
)
from relascope.core.errors import EngineError
from relascope.engine.jobs import variants
from relascope.engine.protocol.request import BuildRequest
from relascope.viz.rows import artefact, timings


def compile_model(args: argparse.Namespace, connect: Connect) -> Document:
    """Build for a target, whose device need not be here: sizes, and each kernel's code."""
    source, pipeline = source_of(args), pipeline_of(args)
    if args.output:
        _check_folder(args.output)
    folder = str(args.output.absolute()) if args.output else ""
    with EngineCalls(args, connect) as ask:
        request = BuildRequest(source, pipeline, args.target)
        found = ask("compile", cut_request(args, ask, request), folder)
    return about(args, source, pipeline) | artefact.document(found, args.code)


def time_model(args: argparse.Namespace, connect: Connect) -> Document:
    """Compile, compare with PyTorch, and time against PyTorch eager, in one way or several."""
    handing_on.check_ending(args, ".html", ".json", ".csv")
    source, pipeline = source_of(args), pipeline_of(args)
    fleet = fleet_of(args)
    if fleet is not None:
        _check_there(args)
    with EngineCalls(args, connect) as ask:
        request = request_of(args, ask)
        taken: tuple[variants.Offer, ...] = ()
        if args.variants:
            offered = variants.offers(args.engine, ask("describe").targets, request.target)
            taken = variants.chosen(args.variants, offered)
        made = variants.variants(request, taken, lambda one: cut_request(args, ask, one))
        request = cut_request(args, ask, request)
        if fleet is not None:
            result = ask("time_remote", request, fleet)
        else:
            result = ask("time", request, tuple(args.baseline), made)
        names = ("model", "batch", "tokens", "dtype", "training")
        facts: Document = {name: getattr(source, name) for name in names}
        facts |= {"repeats": args.repeats, "when": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        strategy = args.strategy if source.training else None
        document = timings.run_document(result, args.engine, str(pipeline), strategy, facts)
        if args.output:
            handing_on.times(args, ask, source, pipeline, result, document)
    if args.history:
        _append(args.history, document)
    return document


def _check_there(args: argparse.Namespace) -> None:
    """Refuse what is not done on a fleet's device.

    Raises:
        EngineError: kind "usage".
    """
    if args.baseline or args.variants:
        message = "On a device of a fleet the program is timed by itself."
        hint = "Leave them out: PyTorch is not there."
        raise EngineError("usage", message, "--baseline, --variants", hint)
    if not args.target:
        message = "What the devices of the fleet are is not said."
        hint = "Give a target, such as 'llvm -mtriple=aarch64-linux-gnu' or 'cuda -arch=sm_90'."
        raise EngineError("usage", message, "--target", hint)


def _append(path: Path, document: Document) -> None:
    new = not path.exists() or not path.stat().st_size
    if path.suffix == ".csv":
        text = timings.history_csv([document], head=new)
    else:
        text = json.dumps(document, ensure_ascii=False) + "\n"
    write(path, text, "--history", "a")


def _check_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = "The library needs a folder of its own, and there is something here."
        raise EngineError("usage", message, str(folder), "Give another -o.")
