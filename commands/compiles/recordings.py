"""`record` and `open`: record, inspect and run the passes of the person's own compile."""

import argparse
import os
import subprocess
from pathlib import Path

from relascope.commands import handing_on, options
from relascope.commands.faults import modules_of, narrowed, searched
from relascope.commands.installation import serve, served_options
from relascope.commands.shared import Command, Document, check_folder, write, writing
from relascope.core.errors import EngineError, refusing
from relascope.engine.protocol.source import INPUTS
from relascope.recorder import environment, reading
from relascope.recorder.reading import Recording
from relascope.recorder.writing import LEVELS
from relascope.viz.handed_on.recorded import LARGEST
from relascope.viz.rows import recording as passes_of
from relascope.viz.rows.recorded_numbers import part_row
from relascope.viz.sessions import store


def record_options(add_to: argparse.ArgumentParser) -> None:
    """The file, the parts of each pass to record, and the program."""
    add = add_to.add_argument
    add("-o", "--output", type=Path, default=Path("run.rsc"), help="file to write")
    add("--level", choices=LEVELS, default="text", help="what to keep of each pass")
    add("--env", action="store_true", help="print the variables that turn recording on, and stop")
    about = "leave out the data for `relascope viewer`, as for recordings above 8 MiB"
    add("--no-page", action="store_true", help=about)
    about = "the program to record, after --: python compile.py …"
    add("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM", help=about)


def open_options(add_to: argparse.ArgumentParser) -> None:
    """The file, and the parts of it to show."""
    add = add_to.add_argument
    add("file", type=Path, metavar="FILE", help="a recording; on the page, also a model file")
    add("--print", action="store_true", help="print the passes instead of opening the page")
    about = "only passes that changed something, are slow, or failed"
    add("--only", choices=passes_of.FILTERS, help=about)
    add("--step", type=int, metavar="N", help="print how pass N changed the text")
    about = "with --step: write the module after pass N, which other commands open as a model"
    add("--module", type=Path, metavar="FILE.json", help=about)
    add("--errors", action="store_true", help="run the module after each pass, and compare")
    add("--bisect", action="store_true", help="find the first pass that makes the numbers wrong")
    about = "bisect, narrow the fault to a few nodes, and write a report that runs"
    add("--reduce", type=Path, metavar="FOLDER", help=about)
    for group in ("own_test", "run_kernels", "seed_and_tensors", "target", "tolerance"):
        getattr(options, group)(add_to)
    add_to.set_defaults(kind=None, repeats=None, values=INPUTS[0])  # as `bisect` without them
    about = "write the recording as one page that needs no server (.html), again with the data for "
    about += "`relascope viewer` (.rsc), its passes as a table (.csv), or what --json "
    about += "prints (.json)"
    add("-o", dest="output", type=Path, metavar="FILE", help=about)
    served_options(add_to)
    options.limits(add_to)


def record_program(command: Command) -> Document:
    """Run a program and write down every pass of each compile of TVM's in it."""
    args = command.args
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    told = environment.variables(args.output, args.level, os.environ.get("PYTHONPATH", ""))
    if args.env:
        return {"file": str(args.output), "environment": told}
    if not program:
        hint = "Write it after --: relascope record -o run.rsc -- python compile.py"
        raise EngineError("usage", "No program is given.", "record", hint)
    with writing(args.output, "-o"):
        for old in environment.files(args.output):
            old.unlink()
        args.output.touch()
        args.output.unlink()
    with refusing("usage", "The program cannot be started: {}.", program[0], "", OSError):
        done = subprocess.run(program, env={**os.environ, **told}, check=False)
    written = environment.files(args.output)
    if not written:
        message = f"The program ran no pass of TVM's. Its exit status was {done.returncode}."
        hint = "Only Python programs can be recorded, started without -E, -I and -S."
        raise EngineError("usage", message, program[0], hint)
    found = [reading.read(p) for p in written]
    for one in found if not args.no_page else ():
        if one.whole and one.path.stat().st_size <= LARGEST:
            handing_on.put_page(one, one.path)
    files = [{"file": str(one.path), "passes": len(one.passes)} for one in found]
    whole = {"status": done.returncode, "passes": sum(len(one.passes) for one in found)}
    return {"file": str(written[0]), **whole, "files": files}


def open_recording(command: Command) -> Document:
    """Open the page on a recording, or print its passes: nested, with times and changes.

    With --errors, --bisect or --reduce, run the modules that it has in an engine."""
    args = command.args
    if not args.file.is_file():
        raise EngineError("file", f"There is no file {str(args.file)!r}.", str(args.file))
    if args.errors or args.bisect or args.reduce:
        if args.output:
            message = "Numbers cannot be written with -o."
            raise EngineError("usage", message, "-o", "Use --json and redirect its output.")
        return numbers(command, reading.read(args.file))
    if args.step is None and not any((args.json, args.print, args.only, args.module, args.output)):
        serve(args, {store.OPEN: str(args.file.resolve())})
    handing_on.check_ending(args, *handing_on.LISTS, handing_on.RECORDING)
    found = reading.read(args.file)
    rows = passes_of.pass_rows(found)
    diff = None if args.step is None else passes_of.step_diff(found, args.step)
    if args.module:
        if args.step is None:
            said = "Writing a module needs the number of a pass."
            raise EngineError("usage", said, "--module", "Add --step N.")
        run = passes_of.pass_of(found, args.step)
        write(args.module, passes_of.module_text(found, run, after=True), "--module")
    document = {
        "file": str(args.file),
        **passes_of.recording_document(found, rows),
        "passes": [r for r in rows if passes_of.passes_filter(r, args.only)],
        "diff": diff,
    }
    if args.output:
        handing_on.recorded(args.output, found, document)
        document["written"] = None if args.print else str(args.output)
    return document


def numbers(command: Command, recording: Recording) -> Document:
    """Run a recording's modules and compare them, or search for the pass that breaks them. Raises
    EngineError, kind "file", if they cannot be run."""
    args = command.args
    if args.reduce:
        check_folder(args.reduce, "report", "--reduce")
    held, found = modules_of(command, recording)
    document: Document = {"file": str(args.file), "engine": args.engine, "target": command.target}
    document |= {"errors": None, "bisection": None, "reduction": None}
    if args.errors:
        given = command.target, command.tolerance
        document["errors"] = [
            {**part_row(one), "rows": held.errors(command, one, *given)} for one in found
        ]
    if args.bisect or args.reduce:
        result, document["bisection"] = bisected = searched(command, held, found)
        if args.reduce and result.kind:
            document["reduction"] = narrowed(command, bisected, args.reduce, "--reduce")
    return document
