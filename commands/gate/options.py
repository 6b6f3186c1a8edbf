"""The options of the gate's commands, in groups."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from relascope.commands import options
from relascope.viz.rows.gate.baseline import KINDS


def baseline(command: ArgumentParser) -> None:
    """What is measured for a baseline, and where it goes."""
    options.values(command)
    options.tolerance(command)
    options.target(command)
    _measured(command)
    about = "where the baseline is written"
    command.add_argument("-o", dest="output", type=Path, metavar="FILE", required=True, help=about)


def conditions(command: ArgumentParser) -> None:
    """What makes `check` fail, and what it is held to."""
    add = command.add_argument
    about = "end with exit status 3 where this is found: some of "
    about += f"{', '.join(KINDS)}, separated by commas; without --baseline, wrong and error alone"
    add("--fail-on", type=_kinds, metavar="KINDS", help=about)
    about = "hold what the model compiles to against this file of `relascope baseline`; any "
    about += "difference that is no improvement ends with exit status 3, or those of --fail-on"
    add("--baseline", type=Path, metavar="FILE", help=about)
    about = "write what it compiles to now into the file of --baseline"
    add("--update", action="store_true", help=about)
    _measured(command)


def _measured(command: ArgumentParser) -> None:
    about = "also the time of a run against PyTorch eager's, with its spread"
    command.add_argument("--speed", action="store_true", help=about)
    about = "for TVM and PyTorch alike; all cores otherwise"
    command.add_argument("--threads", type=options.positive, default=0, metavar="N", help=about)


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(k.strip() for k in text.split(",")))
    if strange := [k for k in kinds if k not in KINDS]:
        known = ", ".join(KINDS)
        raise ArgumentTypeError(f"nothing is called {strange[0]!r} here; known: {known}")
    return kinds


def bulk(command: ArgumentParser) -> None:
    """Which models and pipelines, who works, and where lines go."""
    add = command.add_argument
    about = "samples, names and files as MODEL elsewhere; a folder is all model files in it, "
    add("models", nargs="+", metavar="MODEL", help=about + "and `samples` all samples")
    about = "a pipeline, as --passes has it, or @FILE with one a line; repeat; else the default one"
    add("--pipelines", action="append", default=[], metavar="TEXT", help=about)
    add("--training", action="store_true", help="train mode, with the gradient")
    add("--slow", action="store_true", help="also look for the pass that makes a right one slow")
    outcomes = ("wrong", "crash", "slow", "rounding", "not opened")
    about = f"end with exit status 3 where a line is one of these: {', '.join(outcomes)}"
    add("--fail-on", action="append", choices=outcomes, metavar="OUTCOME", help=about)
    about = "engines at once; as many as there are cores otherwise"
    add("--workers", type=options.positive, metavar="N", help=about)
    add("--dask", metavar="ADDRESS", help="of a Dask scheduler, whose workers do the work instead")
    about = "add each line to this file as it is found, and leave out those that it has"
    add("-o", dest="output", type=Path, metavar="FILE", help=about)
    options.target(command)
    options.tolerance(command)
    options.pass_file(command)
    options.limits(command)
    nothing = dict.fromkeys(("input", "pin", "tensors", "count"), ())
    usual: dict[str, Any] = {"weights": "", "seed": 0, "dtype": "float32", "gradient": "tvm"}
    unsaid = dict.fromkeys(("params", "batch", "tokens"))
    command.set_defaults(**nothing, **usual, **unsaid, module="", call=1)
