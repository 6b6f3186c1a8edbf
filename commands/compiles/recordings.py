"""`record` and `open`: the passes of one's own compile, written down and looked at."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from typing import Any

from relascope.commands.installation import page_options, serve
from relascope.core.errors import EngineError
from relascope.core.place import IMPORT_ROOT
from relascope.recorder import reading
from relascope.recorder.writing import LEVELS
from relascope.viz.rows.recording import (
    FILTERS,
    pass_rows,
    step_diff,
    total_rows,
    wanted,
    whole_seconds,
)

Document = dict[str, Any]
_START = Path(reading.__file__).parent / "start"
OPEN = "RELASCOPE_OPEN"  # as `viz.panels.shell.keeping` reads it, which imports Streamlit


def record_options(add_to: argparse.ArgumentParser) -> None:
    """Which file, what of each pass, and the program."""
    add = add_to.add_argument
    add("-o", "--output", type=Path, default=Path("run.rsc"), help="the recording's file")
    add("--level", choices=LEVELS, default="text", help="what is kept of each pass")
    about = "the program that compiles, after --: python compile.py …"
    add("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM", help=about)


def open_options(add_to: argparse.ArgumentParser) -> None:
    """Which file, and what of it."""
    add = add_to.add_argument
    add("file", type=Path, metavar="FILE", help="a recording; on the page a model's file, too")
    add("--print", action="store_true", help="print the passes and open no page")
    add("--only", choices=FILTERS, help="only passes that changed something, are slow, or failed")
    add("--step", type=int, metavar="N", help="the text of what pass N changed")
    page_options(add_to)


def record_program(args: argparse.Namespace, connect: object) -> Document:
    """Run a program and write down every pass of each compile of TVM's in it."""
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        hint = "Write it after --: relascope record -o run.rsc -- python compile.py"
        raise EngineError("usage", "No program is named.", "record", hint)
    path = args.output.resolve()
    folders = (_START, IMPORT_ROOT, os.environ.get("PYTHONPATH", ""))
    told = {"RELASCOPE_RECORD": str(path), "RELASCOPE_RECORD_LEVEL": args.level}
    told |= {"RELASCOPE_RECORD_PROCESS": "1"}
    told["PYTHONPATH"] = os.pathsep.join(filter(None, map(str, folders)))
    path.unlink(missing_ok=True)
    try:
        done = subprocess.run(program, env={**os.environ, **told}, check=False)
    except OSError as wrong:
        message = f"{program[0]} cannot be started: {wrong.strerror}."
        raise EngineError("usage", message, program[0]) from wrong
    if not path.exists():
        message = f"The program ended with {done.returncode}, and has not imported tvm."
        raise EngineError("usage", message, program[0], "Only Python programs are recorded.")
    found = reading.read(path)
    return {"file": str(args.output), "status": done.returncode, "passes": len(found.passes)}


def open_recording(args: argparse.Namespace, connect: object) -> Document:
    """Open the page on a recording, or print its passes: nested, with times and changes."""
    if not args.file.is_file():
        raise EngineError("file", f"There is no file {str(args.file)!r}.", str(args.file))
    if not (args.json or args.print or args.only or args.step is not None):
        serve(args, {OPEN: str(args.file.resolve())})
    found = reading.read(args.file)
    rows = pass_rows(found)
    return {
        "file": str(args.file),
        "about": found.about,
        "whole": found.whole,
        "seconds": whole_seconds(found),
        "passes": [r for r in rows if wanted(r, args.only)],
        "totals": total_rows(rows),
        "diff": None if args.step is None else step_diff(found, args.step),
    }
