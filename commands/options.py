"""The options of the command line, in the groups that commands share."""

from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from relascope.engine.jobs import variants
from relascope.engine.jobs.accuracy import DTYPES
from relascope.engine.jobs.bisect import FACTOR, MEMORY, SECONDS
from relascope.engine.jobs.bisect import KINDS as FAULTS
from relascope.engine.jobs.own_test import SECONDS as TEST_SECONDS
from relascope.engine.limits import KINDS, calls_of
from relascope.engine.protocol.source import INPUTS, set_of
from relascope.engine.protocol.times import BASELINES
from relascope.passes.catalogue import GRADIENTS
from relascope.passes.cuts.budget import parse_budget
from relascope.passes.cuts.cut import DEFAULT, STRATEGIES
from relascope.passes.search.reduce import MOST

_REPEATED: dict[str, Any] = {"action": "append", "default": []}
_SWITCH: dict[str, Any] = {"action": "store_true"}


def model(command: ArgumentParser) -> None:
    """The model and its inputs."""
    add = command.add_argument
    count: dict[str, Any] = {"type": positive, "metavar": "N"}
    add(
        "model",
        metavar="MODEL",
        help="a sample's name, a TorchScript trace (.pt), an exported program (.pt2), an ONNX "
        "model (.onnx), a Relay or Relax module as text, TVM's JSON or an archive of it with "
        "parameters (.tar), a name such as hf:bert, torchvision:resnet18 or timm:NAME, a folder "
        "with a config.json, or code of yours, which is run: FILE.py:NAME or MODULE:NAME",
    )
    about = "parameters of a Relay or Relax module, as written by tvm.runtime.save_param_dict"
    add("--params", type=Path, metavar="FILE", help=about)
    add("--training", **_SWITCH, help="train mode, with gradients")
    add("--batch", **count, help="batch size of a sample or a named model")
    add("--tokens", **count, help="tokens of a sample or a named model")
    drawn: dict[str, Any] = {"action": "store_const", "const": "random", "default": ""}
    about = "use random weights for a named model, not those on this machine"
    add("--random-weights", dest="weights", **drawn, help=about)
    run_kernels(command)
    seed_and_tensors(command)
    add("--dtype", choices=DTYPES, default=DTYPES[0], help="type of parameters and floating inputs")
    about = "one input of a model file, such as hidden=1x14x768:float32; repeatable, in order"
    add("--input", **_REPEATED, metavar="NAME=SHAPE:DTYPE", help=about)
    about = "size for a dynamic dimension of an exported program, such as x.0=4; repeatable"
    add("--pin", **_REPEATED, metavar="NAME=N", help=about)
    about = "only this submodule, such as encoder.layer.3, on its inputs when the whole model "
    about += "runs"
    add("--module", default="", metavar="PATH", help=about)
    add("--call", **count, default=1, help="which of the submodule's calls, if there are several")


def run_kernels(command: ArgumentParser) -> None:
    """Whether a file's code may run."""
    about = "run the kernels in a module's file, which are code, in the sandboxed engine"
    command.add_argument("--run-kernels", **_SWITCH, help=about)


def search(command: ArgumentParser) -> None:
    about = "list models of the installed libraries whose names contain or match this (*bert*), "
    about += "with their parameters"
    command.add_argument("--search", metavar="TEXT", help=about)


def gradient(command: ArgumentParser) -> None:
    about = "whose gradient to use in training: TVM's, or PyTorch's joint graph"
    command.add_argument("--gradient", choices=list(GRADIENTS), default="tvm", help=about)


def passes(command: ArgumentParser) -> None:
    """The pipeline, and the person's own passes."""
    about = "a pipeline such as 'cse|bind|fold', or 'default', or 'default|-fold' without a pass; "
    about += "or one of TVM's own, 'tvm:zero', which `passes tvm:` lists"
    command.add_argument("--passes", metavar="TEXT", help=about)
    about = "apply this pass only to the first N places, as PASS(count=N) in --passes; repeatable"
    command.add_argument("--count", **_REPEATED, metavar="PASS=N", help=about)
    pass_file(command)
    limits(command)


def seed_and_tensors(command: ArgumentParser) -> None:
    """The values of inputs."""
    add = command.add_argument
    add("--seed", type=int, default=0, metavar="N", help="seed of all random values")
    about = "saved inputs (.npy, .npz, .safetensors, .pt); each of several files is one set; "
    about += "repeatable"
    add("--tensors", **_REPEATED, metavar="FILE", help=about)


def limits(command: ArgumentParser) -> None:
    """Limits of each pass, build and call."""
    add = command.add_argument
    about = "stop a pass or a build that takes longer, and count it as failed"
    add("--limit-seconds", type=_ratio, default=0.0, metavar="S", help=about)
    about = "the same for one that needs more memory, in MiB on top of what the engine had before"
    add("--limit-memory", type=_ratio, default=0.0, metavar="M", help=about)
    about = f"fail a whole call that takes longer, by kind: {', '.join(KINDS)}; such as "
    about += "import=60,build=600"
    add("--limit-calls", type=partial(_by, calls_of), default={}, metavar="KIND=S,…", help=about)


def one_pass(command: ArgumentParser) -> None:
    about = "a pass to show in full, or `tvm:` for TVM's pipelines"
    command.add_argument("name", metavar="NAME", nargs="?", help=about)
    about = "run the examples in --pass-file; exit with status 3 if one fails"
    command.add_argument("--test", **_SWITCH, help=about)


def pass_file(command: ArgumentParser) -> None:
    about = "Python file with passes of your own to use in pipelines, or a folder of "
    about += "such files; repeatable"
    command.add_argument("--pass-file", **_REPEATED, metavar="FILE", help=about)


def tolerance(command: ArgumentParser) -> None:
    about = "count differences above this as wrong, relative to the tensor's scale, in float64 "
    about += "too"
    command.add_argument("--rtol", type=_ratio, metavar="R", help=about)
    about = "ignore absolute differences up to this"
    command.add_argument("--atol", type=_ratio, default=0.0, metavar="A", help=about)


def values(command: ArgumentParser) -> None:
    about = f"values of the inputs: {', '.join(INPUTS)}, or set2 of several --tensors"
    own: dict[str, Any] = {"type": _value, "default": INPUTS[0]}
    command.add_argument("--inputs", dest="values", **own, metavar="KIND", help=about)


def own_test(command: ArgumentParser) -> None:
    add = command.add_argument
    about = "program of yours that judges each module by its exit status: 0 is good, 1 to 127 bad, "
    about += "125 cannot be judged"
    add("--test", type=Path, metavar="PROGRAM", help=about)
    about = "stop a run of --test that takes longer, and count it as bad"
    add("--test-seconds", type=_ratio, default=TEST_SECONDS, metavar="S", help=about)


def bisect(command: ArgumentParser) -> None:
    """The goal of a search."""
    values(command)
    target(command)
    add = command.add_argument
    add("--kind", choices=FAULTS, help="kind of fault to search for; default: wrong or crash")
    about = "a pass is slow if the pipeline takes more than F times as long with it as without it"
    add("--factor", type=_ratio, default=FACTOR, metavar="F", help=about)
    about = "or if the pass itself takes longer than S seconds"
    add("--pass-seconds", type=_ratio, default=SECONDS, metavar="S", help=about)
    about = "for --kind memory: a pass is bad if it leaves more than this many MiB allocated"
    add("--pass-memory", type=_ratio, default=MEMORY, metavar="MIB", help=about)
    own_test(command)
    threads(command)
    about = "run the passes, build and run each try N times; one bad run makes it bad (default: "
    about += "1); for --kind slow, also the rounds that are timed (default: 30)"
    add("--repeats", type=positive, metavar="N", help=about)


def report(command: ArgumentParser, needed: bool = False) -> None:
    """The folder of a report."""
    about = "folder to write the report to"
    command.add_argument("--out", type=Path, required=needed, metavar="FOLDER", help=about)


def reduce(command: ArgumentParser) -> None:
    """The folder of a report, and limits of the search."""
    report(command, needed=True)
    about = "how many pieces to try at most"
    command.add_argument("--tries", type=positive, default=MOST, metavar="N", help=about)


class _Peak(Action):
    """Chooses the strategy `peak`, with a budget."""

    def __call__(self, parser: Any, args: Namespace, value: Any, option: str | None = None) -> None:
        args.strategy, args.budget = "peak", value


def strategy(command: ArgumentParser) -> None:
    """The cut."""
    add = command.add_argument
    about = "how to choose the values that the forward saves"
    add("--strategy", choices=list(STRATEGIES), default=DEFAULT, help=about)
    about = "for the strategies frontier, budget and peak: a fraction of keep_all's bytes (0.5, "
    budget = partial(_by, parse_budget)
    add("--budget", type=budget, metavar="B", help=about + "50%%) or bytes (4MiB)")
    about = "stay below this peak of a whole step: as --strategy peak --budget B"
    add("--peak", action=_Peak, type=budget, metavar="B", help=about)
    command.set_defaults(save=[], recompute=[], offload=False, per_use=False)


def by_hand(command: ArgumentParser) -> None:
    """The cut, with choices by hand."""
    strategy(command)
    for name, does in (("--save", "save"), ("--recompute", "recompute")):
        about = f"{does} this node of the joint graph, or those of a pattern such as 'layer.*.mlp "
        about += ":: matmul' (modules :: operator) or 'dropout_mask_*', and choose the rest around "
        about += f"them{', after host: on the host' if name == '--save' else ''}; repeatable"
        command.add_argument(name, **_REPEATED, metavar="ID", help=about)
    about = "let captures wait on the host if that lowers the peak; --strategy peak then copies "
    about += "instead of recomputing where that takes less time. On the CPU, the host is "
    about += "simulated; only Relax builds it"
    command.add_argument("--offload", **_SWITCH, help=about)
    about = "compute recomputed values again for later readers, where that lowers the peak, not "
    about += "once for all; --strategy peak counts on it, min_cut does so anyway, within its limit"
    command.add_argument("--recompute-per-use", dest="per_use", **_SWITCH, help=about)


def captures(command: ArgumentParser) -> None:
    """The cut, the costs of its work, and measurements of it."""
    by_hand(command)
    add = command.add_argument
    about = "price of recomputing: from a roofline, or as measured for the forward's kernels here"
    add("--prices", choices=("estimated", "measured"), default="estimated", help=about)
    about = "measure the split's time and peak memory; with --frontier, also the strategies'"
    add("--measure", **_SWITCH, help=about)
    add("--frontier", **_SWITCH, help="also list all cuts on the frontier of bytes and time")


def check(command: ArgumentParser) -> None:
    """The parts of each step's row."""
    values(command)
    add = command.add_argument
    add("--check", **_SWITCH, help="compare with PyTorch after each step")
    about = "list every node that a step added, removed or changed, with its origin, counts and "
    about += "sizes"
    add("--changes", **_SWITCH, help=about)
    about = "show when each storage of a memory plan is in use, and which overlap"
    add("--memory", **_SWITCH, help=about)
    about = "write the pipeline as a Python script that runs it pass by pass and checks it"
    add("--export", type=Path, metavar="FILE.py", help=about)
    about = "compare each node with PyTorch's tensor, and tell rounding from errors"
    add("--inside", **_SWITCH, help=about)
    add("--text", dest="text_diff", **_SWITCH, help="print what changed in the IR's text")
    add("--print", dest="printed", **_SWITCH, help="print the IR's text after each pass")
    about = "the same, only after passes that changed it"
    add("--print-changed", dest="print_changed", **_SWITCH, help=about)
    about = "verify graph and types after each pass; exit with status 3 if one is broken, a pass "
    about += "fails, or, with --check, a step is wrong"
    add("--verify-each", dest="verify", **_SWITCH, help=about)
    add("--stop-after", dest="last", metavar="PASS|N", help="stop after this pass, or after step N")
    tolerance(command)
    target(command)
    strategy(command)


def accuracy(command: ArgumentParser) -> None:
    """The parts of the accuracy report."""
    tolerance(command)
    target(command)
    strategy(command)
    command.set_defaults(dtype=None, strategy=None)
    about = f"values of the inputs: some of {', '.join(INPUTS)}, and set2 of several --tensors, "
    about += "separated by commas, or all; one line each"
    command.add_argument("--inputs", type=_kinds, default=(), metavar="KINDS", help=about)


def target(command: ArgumentParser) -> None:
    command.add_argument("--target", metavar="T", help="TVM target; default: the best one here")


def threads(command: ArgumentParser) -> None:
    about = "threads for TVM and PyTorch; default: all cores"
    command.add_argument("--threads", type=positive, default=0, metavar="N", help=about)


def time(command: ArgumentParser) -> None:
    tasks(command)
    command.add_argument("--repeats", type=positive, default=30, metavar="N", help="runs per row")


def baselines(command: ArgumentParser) -> None:
    """How to time, beside what, in which variants, and the file of earlier runs."""
    time(command)
    add = command.add_argument
    about = "also time this beside PyTorch eager; it compiles first, which takes a while; "
    about += "repeatable"
    add("--baseline", **_REPEATED, choices=BASELINES, help=about)
    about = "also time other ways of building in the same run: some of "
    about += f"{', '.join(variants.VARIANTS)}, separated by commas, or all"
    add("--variants", metavar="NAMES", help=about)
    about = "append the run to a file: as CSV if its name ends in .csv, else as a line of JSON"
    add("--history", type=Path, metavar="FILE", help=about)


def tasks(command: ArgumentParser) -> None:
    """The target and the threads of kernels."""
    target(command)
    threads(command)


def tune(command: ArgumentParser) -> None:
    """The tasks to tune, and the number of trials."""
    tasks(command)
    add, about = command.add_argument, "keys or names of tasks, separated by commas; default: all"
    add("--tasks", metavar="KEYS", help=about)
    add("--top", type=positive, metavar="N", help="tune the N tasks that take the largest share")
    about = "schedules to measure per task, in addition to those measured before"
    add("--trials", type=positive, default=64, metavar="N", help=about)


def profile(command: ArgumentParser) -> None:
    """The kernels to list, and a file with a timeline of all."""
    about = "write one run's kernels as a trace for chrome://tracing or Perfetto"
    command.add_argument("--trace", type=Path, metavar="FILE", help=about)
    about = "print only the kernels that compute this operator, such as conv2d, in order, with "
    about += "their shapes and their share of the machine's peak"
    command.add_argument("--operator", default="", metavar="NAME", help=about)


def lint(command: ArgumentParser) -> None:
    """The costs of findings, and timings for them."""
    by_hand(command)
    time(command)
    about = "also time the kernels: each finding gets its time, and what the build removed by "
    command.add_argument("--measure", **_SWITCH, help=about + "itself is left out")


def building(command: ArgumentParser) -> None:
    """The target of a build, and its files."""
    add = command.add_argument
    about = "TVM target; its device need not be here, such as 'cuda -arch=sm_90'"
    add("--target", metavar="T", required=True, help=about)
    add("--code", **_SWITCH, help="also print each kernel's code")
    about = "write the library's object files and the code to this new folder"
    add("-o", dest="output", type=Path, metavar="FOLDER", help=about)


def output(command: ArgumentParser) -> None:
    about = "also write the result to a file"
    command.add_argument("-o", dest="output", type=Path, metavar="FILE", help=about)


def _by(read: Callable[[str], Any], text: str) -> Any:
    """An argument of a command, read for argparse, which shows a ValueError's message."""
    try:
        return read(text)
    except ValueError as wrong:
        raise ArgumentTypeError(str(wrong)) from wrong


def _kinds(text: str) -> tuple[str, ...]:
    kinds = INPUTS if text == "all" else tuple(dict.fromkeys(k.strip() for k in text.split(",")))
    kinds = tuple(INPUTS[0] if set_of(k) == 1 else k for k in kinds)
    if strange := [k for k in kinds if k not in INPUTS and not set_of(k)]:
        known = ", ".join(INPUTS)
        hint = "the shape of a file's input is --input" if set("=:") & set(text) else "all for all"
        raise ArgumentTypeError(f"no inputs are called {strange[0]!r}; known: {known}; {hint}")
    return kinds


def _value(text: str) -> str:
    (kind, *more) = _kinds(text)
    if more:
        raise ArgumentTypeError("one kind of inputs at a time")
    return kind


def _ratio(text: str) -> float:
    with suppress(ValueError):
        if float(text) > 0:
            return float(text)
    raise ArgumentTypeError(f"{text} is not a positive number")


def positive(text: str) -> int:
    """A positive whole number, for argparse."""
    with suppress(ValueError):
        if int(text) > 0:
            return int(text)
    raise ArgumentTypeError(f"{text} is not a positive whole number")
