"""The options of the command line, in the groups that commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from relascope.engine.jobs import bisect as bisection
from relascope.engine.protocol.times import BASELINES
from relascope.passes.catalogue import GRADIENTS
from relascope.passes.cuts import cut as cuts
from relascope.passes.cuts.budget import parse_budget
from relascope.passes.search.reduce import MOST


def model(command: argparse.ArgumentParser) -> None:
    """Which model, and its inputs."""
    command.add_argument("model", metavar="MODEL", help="a sample's name, or a TorchScript file")
    command.add_argument("--training", action="store_true", help="train mode, with the gradient")
    command.add_argument("--batch", type=_positive, metavar="N", help="batch size of a sample")
    command.add_argument("--tokens", type=_positive, metavar="N", help="tokens of a sample")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="of all random values")
    about = "of parameters and floating inputs"
    command.add_argument("--dtype", choices=("float32", "float64"), default="float32", help=about)
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=SHAPE:DTYPE",
        help="one input of a file, such as hidden=1x14x768:float32; repeat in order",
    )


def gradient(command: argparse.ArgumentParser) -> None:
    """Whose gradient."""
    command.add_argument(
        "--gradient",
        choices=list(GRADIENTS),
        default="tvm",
        help="whose gradient, in training: TVM's, or PyTorch's joint graph imported whole",
    )


def passes(command: argparse.ArgumentParser) -> None:
    """The pipeline, and passes of one's own."""
    command.add_argument(
        "--passes", metavar="TEXT", help="a pipeline such as 'cse|bind|fold', or 'default'"
    )
    pass_file(command)


def one_pass(command: argparse.ArgumentParser) -> None:
    """A pass by its name."""
    command.add_argument("name", metavar="NAME", nargs="?", help="a pass, to be shown in full")


def pass_file(command: argparse.ArgumentParser) -> None:
    """Passes of one's own."""
    command.add_argument(
        "--pass-file",
        action="append",
        default=[],
        metavar="FILE",
        help="Python file with passes of your own, which can stand in pipelines, or a folder of "
        "such files; repeat",
    )


def bisect(command: argparse.ArgumentParser) -> None:
    """What a search looks for."""
    command.add_argument(
        "--kind", choices=bisection.KINDS, help="what to look for; wrong or crash otherwise"
    )
    command.add_argument(
        "--factor",
        type=_ratio,
        default=bisection.FACTOR,
        metavar="F",
        help="slow is what takes longer than F times PyTorch eager",
    )


def reduce(command: argparse.ArgumentParser) -> None:
    """Where a report goes, and how long it may be looked for."""
    command.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="where to write the report"
    )
    command.add_argument(
        "--tries", type=_positive, default=MOST, metavar="N", help="pieces to try at most"
    )


def strategy(command: argparse.ArgumentParser) -> None:
    """The cut."""
    command.add_argument(
        "--strategy",
        choices=list(cuts.STRATEGIES),
        default=cuts.DEFAULT,
        help="which values the forward saves",
    )
    command.add_argument(
        "--budget",
        type=_budget,
        metavar="B",
        help="for the strategies frontier and budget: a fraction of keep_all's bytes (0.5, 50%%) "
        "or bytes (4MiB)",
    )
    command.set_defaults(save=[], recompute=[])


def by_hand(command: argparse.ArgumentParser) -> None:
    """The cut, with what is forced by hand."""
    strategy(command)
    for name, does in (("--save", "save"), ("--recompute", "compute again")):
        command.add_argument(
            name,
            action="append",
            default=[],
            metavar="ID",
            help=f"{does} this node of the joint graph and choose the rest around it; repeat",
        )


def captures(command: argparse.ArgumentParser) -> None:
    """The cut, what its work costs, and what is measured of it."""
    by_hand(command)
    command.add_argument(
        "--prices",
        choices=("estimated", "measured"),
        default="estimated",
        help="what computing again costs: by a roofline, or as the forward's kernels took here",
    )
    command.add_argument(
        "--measure",
        action="store_true",
        help="build and time the split, and its peak memory; with --frontier, of the strategies "
        "too",
    )
    command.add_argument(
        "--frontier",
        action="store_true",
        help="also every best cut of bytes against work, and the strategies beside them",
    )


def check(command: argparse.ArgumentParser) -> None:
    """What is said of each step."""
    command.add_argument("--check", action="store_true", help="compare with PyTorch after each")
    command.add_argument(
        "--changes",
        action="store_true",
        help="every node that a step added, removed or changed, with its origin; counts and sizes",
    )
    command.add_argument(
        "--export",
        type=Path,
        metavar="FILE.py",
        help="write the pipeline as a Python script that runs it pass by pass and checks it",
    )
    command.add_argument(
        "--inside",
        action="store_true",
        help="each node after each step against PyTorch's own tensor, and whether it is rounding",
    )
    command.add_argument(
        "--text", dest="text_diff", action="store_true", help="the IR's text, as a difference"
    )
    command.add_argument("--target", metavar="T", help="TVM target; the best one here otherwise")
    strategy(command)


def accuracy(command: argparse.ArgumentParser) -> None:
    """What the accuracy report holds."""
    command.add_argument("--target", metavar="T", help="TVM target; the best one here otherwise")
    strategy(command)
    command.set_defaults(dtype=None, strategy=None)


def target(command: argparse.ArgumentParser) -> None:
    """What is compiled for."""
    command.add_argument("--target", metavar="T", help="TVM target; the best one here otherwise")


def time(command: argparse.ArgumentParser) -> None:
    """How it is timed."""
    command.add_argument("--target", metavar="T", help="TVM target; the best one here otherwise")
    command.add_argument(
        "--threads",
        type=_positive,
        default=0,
        metavar="N",
        help="for TVM and PyTorch alike; all cores otherwise",
    )
    command.add_argument("--repeats", type=_positive, default=30, metavar="N", help="runs a row")


def rivals(command: argparse.ArgumentParser) -> None:
    """How it is timed, and beside what."""
    time(command)
    command.add_argument(
        "--rival",
        action="append",
        default=[],
        choices=BASELINES,
        help="time this beside PyTorch eager, too; it compiles first, which takes a while; repeat",
    )


def lint(command: argparse.ArgumentParser) -> None:
    """What findings cost, and what is timed for that."""
    by_hand(command)
    time(command)
    command.add_argument(
        "--measure",
        action="store_true",
        help="time the kernels: each finding has its time, and what the build removed by itself "
        "is left out",
    )


def output(command: argparse.ArgumentParser) -> None:
    """A file to write."""
    command.add_argument("-o", dest="output", type=Path, metavar="FILE", help="write a file, too")


def _budget(text: str) -> float | int:
    try:
        return parse_budget(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from wrong


def _ratio(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value
