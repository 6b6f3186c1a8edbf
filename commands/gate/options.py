"""The options of the gate's commands, in groups."""

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

from relascope.commands import options
from relascope.engine.jobs.bulk import LONGEST
from relascope.engine.protocol.fault import OF_TEST
from relascope.viz.rows.gate.baseline import KINDS


def baseline(command: ArgumentParser) -> None:
    """The measurements of a baseline, and its file."""
    options.values(command)
    options.tolerance(command)
    options.target(command)
    _measured(command)
    about = "file to write the baseline to"
    command.add_argument("-o", dest="output", type=Path, metavar="FILE", required=True, help=about)


def conditions(command: ArgumentParser) -> None:
    """What makes `check` fail, and its baseline."""
    add = command.add_argument
    about = "exit with status 3 on any of these: "
    about += f"{', '.join(KINDS)} (with commas); default: all with --baseline, else wrong and error"
    add("--fail-on", type=_kinds, metavar="KINDS", help=about)
    about = "compare with this file from `relascope baseline`; any "
    about += "difference that is not an improvement exits with status 3, or only those of --fail-on"
    add("--baseline", type=Path, metavar="FILE", help=about)
    add("--update", action="store_true", help="overwrite the baseline's file with the result")
    about = "also write the differences as Markdown, for a comment on GitHub"
    add("--markdown", type=Path, metavar="FILE", help=about)
    _measured(command)


def _measured(command: ArgumentParser) -> None:
    about = "also compare the time of a run with PyTorch eager's, with its spread"
    command.add_argument("--speed", action="store_true", help=about)
    options.threads(command)


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(k.strip() for k in text.split(",")))
    if strange := [k for k in kinds if k not in KINDS]:
        raise ArgumentTypeError(f"{strange[0]!r} is unknown; choose from {', '.join(KINDS)}")
    return kinds


def bulk(command: ArgumentParser) -> None:
    """The models and pipelines, the workers, and the file of lines."""
    add = command.add_argument
    about = "samples, names and files, as MODEL elsewhere; a folder stands for all model files in "
    add("models", nargs="+", metavar="MODEL", help=about + "it, and `samples` all samples")
    about = "a pipeline, as in --passes, or @FILE with one per line; repeatable; default: default"
    add("--pipelines", action="append", default=[], metavar="TEXT", help=about)
    add("--training", action="store_true", help="train mode, with gradients")
    add("--slow", action="store_true", help="also find the pass that makes a correct one slow")
    outcomes = ("wrong", "crash", OF_TEST, "slow", "rounding", "not opened")
    about = f"exit with status 3 if a line has one of these outcomes: {', '.join(outcomes)}"
    add("--fail-on", action="append", choices=outcomes, metavar="OUTCOME", help=about)
    _runs(command)
    options.pass_file(command)
    nothing = dict.fromkeys(("input", "pin", "tensors", "count"), ())
    unsaid = dict.fromkeys(("params", "batch", "tokens"))
    command.set_defaults(run_kernels=False, weights="", seed=0, dtype="float32", gradient="tvm")
    command.set_defaults(**nothing, **unsaid, module="", call=1)


def coverage(command: ArgumentParser) -> None:
    """What fails, the workers, and the file of lines."""
    about = "exit with status 3 if a pipeline of TVM's, or ours, does not match"
    command.add_argument("--fail", action="store_true", help=about)
    _runs(command)
    command.set_defaults(limit_seconds=LONGEST, pass_file=())


def _runs(command: ArgumentParser) -> None:
    """The workers, the file of lines, and how each run is judged."""
    add = command.add_argument
    about = "engines to run at once; default: one per core"
    add("--workers", type=options.positive, metavar="N", help=about)
    about = "append each line to this file as it is ready, and skip those already in it"
    add("-o", dest="output", type=Path, metavar="FILE", help=about)
    for group in (options.target, options.tolerance, options.own_test, options.limits):
        group(command)
