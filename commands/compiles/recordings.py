"""`record` and `open`: the passes of one's own compile, written down and looked at."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.core.place import IMPORT_ROOT
from relascope.recorder import reading
from relascope.recorder.reading import PassRun
from relascope.recorder.writing import LEVELS

Document = dict[str, Any]
_START = Path(reading.__file__).parent / "start"
_SLOW = 0.02  # of all time, from which a pass is slow
FILTERS = ("changed", "slow", "failed")


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
    add("file", type=Path, metavar="FILE", help="a recording")
    add("--only", choices=FILTERS, help="only passes that changed something, are slow, or failed")
    add("--step", type=int, metavar="N", help="the text of what pass N changed")


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
    """The passes of a recording: nested as they ran, with times, and what each changed."""
    found = reading.read(args.file)
    whole = sum(p.seconds or 0.0 for p in found.passes if not p.depth)
    rows = [_row(p) for p in found.passes if _wanted(p, args.only, whole)]
    totals: dict[str, list[float]] = {}
    for one in found.passes:
        totals.setdefault(one.name, []).append(one.own_seconds or 0.0)
    by_time = sorted(totals.items(), key=lambda item: -sum(item[1]))
    return {
        "file": str(args.file),
        "about": found.about,
        "whole": found.whole,
        "seconds": whole,
        "passes": rows,
        "totals": [{"pass": n, "runs": len(t), "own_seconds": sum(t)} for n, t in by_time],
        "diff": None if args.step is None else found.diff(args.step),
    }


def _wanted(one: PassRun, only: str | None, whole: float) -> bool:
    if only == "changed":
        return bool(one.touched)
    if only == "slow":
        return (one.own_seconds or 0.0) > _SLOW * whole
    return only is None or one.failure is not None or one.seconds is None


def _row(one: PassRun) -> Document:
    touched = one.touched
    return {
        "number": one.number,
        "depth": one.depth,
        "pass": one.name,
        "opt_level": one.opt_level,
        "seconds": one.seconds,
        "own_seconds": one.own_seconds,
        "functions": None if one.before is None else len(one.before),
        "touched": None if touched is None else list(touched),
        "failure": one.failure,
        "ended": one.seconds is not None,
    }
