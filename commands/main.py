"""The same jobs as the page's, without a browser: `relascope COMMAND … --json`.

With --json, stdout is exactly one JSON document; progress and logs go to stderr. The exit status is
0 when the job was done, 1 when it was not (then the document is {"error": …}) and where a replay
finds something else, 2 for wrong usage, 3 where a gate finds what `--fail-on` or a baseline names.
What a command needs is imported when that command is run."""

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from relascope.core.errors import EngineError, refusing
from relascope.core.place import check_python
from relascope.core.version import __version__
from relascope.core.visible import visible
from relascope.engine.registry import ENGINES

if TYPE_CHECKING:
    from relascope.commands.shared import Connect
    from relascope.engine.client import EngineClient

_NO_ENGINE = (
    *("page", "engines", "install-relay", "compare"),
    *("replay", "record", "open", "diff", "viewer"),
)

_BESIDE = ("compare", "gradients")  # words for a `diff` of what always differs
_TEXTS = {"open": "open_recording", "compare": "diff", "gradients": "diff"}  # or equal names

_MODEL = "model gradient passes"
_COMMANDS = f"""
page | installation | installation.served_options limits | open the page
engines | installation | | list the engines, and what is missing
install-relay | installation | installation.relay_options | install Relay's TVM
models | graphs | search | list the samples, or search for models by name
modules | graphs | model limits | list a model's modules, each with its time
inputs | graphs | model limits | list a file's inputs and open sizes
passes | graphs | one_pass pass_file | list passes and pipelines, or show one
graph | graphs | {_MODEL} output handing_on.looks | print a model's graph
step | stepping | {_MODEL} check output | show what each pass of a pipeline does
compare | compiles.diff:both_engines | {_MODEL} | diff one model in Relay and in Relax
check | stepping | {_MODEL} accuracy gate.options.conditions output |
    check each stage against PyTorch, or a baseline
baseline | gate.baseline | {_MODEL} gate.options.baseline |
    record what a model compiles to, for check
pipelines | gate.bulk | model gradient gate.options.coverage |
    check a model in each of TVM's pipelines
bulk | gate.bulk | gate.options.bulk | check many models with many pipelines
bisect | faults | {_MODEL} bisect tolerance output report |
    find the first pass that makes a result bad
reduce | faults | {_MODEL} bisect tolerance reduce |
    narrow a pass's fault to the smallest module
captures | cuts | {_MODEL} captures time output | show what the forward saves for the backward
gradients | compiles.diff:both_gradients | model passes compiles.diff.gradients_options |
    diff TVM's gradient of a model and PyTorch's
compile | building:compile_model | {_MODEL} by_hand building | build for a target
time | building:time_model | {_MODEL} by_hand baselines output | time a build
profile | building | {_MODEL} by_hand time profile output | time every kernel
tasks | tuning | {_MODEL} by_hand tasks output | list the kernels that can be tuned
tune | tuning | {_MODEL} by_hand tune output | tune the kernels
replay | sessions | sessions.replay_options | run a session file again
record | compiles.recordings:record_program | compiles.recordings.record_options | record a compile
open | compiles.recordings:open_recording | compiles.recordings.open_options | look at a recording
diff | compiles.diff | compiles.diff.diff_options |
    compare two models, pipelines, sessions or recordings
viewer | handing_on | handing_on.viewer_options |
    write a folder of files that shows what -o wrote, without a server
lint | building | {_MODEL} lint output | list what could be faster, and the pass for it
"""
"""A command's name, the module of its function and, if different, the function's name, its groups
of options, and one line. A group is in `options`, or in the module before it."""


def main(argv: Sequence[str] | None = None, connect: "Connect | None" = None) -> int:
    """Run one command, by default with this process's arguments, and return the exit status;
    `connect` makes the client of an IR's engine, and by default starts one."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help", "--version")):
        argv.insert(0, "page")
    as_json = "--json" in argv
    try:
        args, document = _run(argv, connect)
    except EngineError as error:
        return _fail(error, as_json)
    except ModuleNotFoundError as missing:
        if (missing.name or "relascope").startswith("relascope"):
            raise
        hint = f"Run `{Path(sys.executable).name} -m pip install -r requirements.txt`."
        return _fail(EngineError("engine", f"{missing}.", sys.prefix, hint), as_json)
    except KeyboardInterrupt:
        return _fail(EngineError("cancelled", "Stopped from the keyboard."), as_json)
    if as_json:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    else:
        name = _TEXTS.get(args.command, args.command.replace("-", "_"))
        text = getattr(_module("text"), name)(document)
    return _status(args.command, document) if _print(text, sys.stdout) else 1


def _status(command: str, document: dict[str, Any]) -> int:
    differ = document.get("same") is False and command not in _BESIDE
    if document.get("cancelled") or differ or document.get("status"):
        return 1
    return 3 if document.get("fails") else 0


def _run(
    argv: Sequence[str], connect: "Connect | None"
) -> tuple[argparse.Namespace, dict[str, Any]]:
    check_python()
    args = parser(argv[0]).parse_args(argv)
    args.argv = argv
    if not args.verbose:  # the message is enough; Python would print the engine's log, too
        logging.getLogger("relascope.engine").addHandler(logging.NullHandler())
    if args.trust_files:
        from relascope.engine.sandbox import TRUST

        os.environ[TRUST] = "1"  # which engines inherit
    if files := getattr(args, "pass_file", ()):
        from relascope.passes.catalogue.user import name_files

        with refusing("usage", "{}.", "--pass-file", "A pass is a function of one `program`."):
            name_files(files)
    from relascope.commands.shared import Command, engine_of
    from relascope.engine.client import EngineClient

    if getattr(args, "engine", "") is None:
        args.engine = engine_of(getattr(args, "models", None) or [getattr(args, "model", None)])
    with Command(args, _with_tvms_pipelines(args, connect or EngineClient)) as command:
        return args, args.run(command)


def _fail(error: EngineError, as_json: bool) -> int:
    if as_json:
        _print(json.dumps({"error": error.to_json()}, ensure_ascii=False), sys.stdout)
    where = f" ({error.where})" if error.where else ""
    hint = f"\nhint: {error.hint}" if error.hint else ""
    if error.instead:
        parts = " or --module ".join(error.instead)
        hint += f"\nhint: To open a part without it, add --module {parts}."
    _print(f"error: {error.message}{where}{hint}", sys.stderr)
    return 2 if error.kind == "usage" else 1


_NOT_ASCII = re.compile(r"[^\n\t -~]")


def _print(text: str, stream: TextIO) -> bool:
    """Write visible text only; whether that was possible."""
    text = visible(text)
    if (stream.encoding or "utf-8").lower() != "utf-8":
        text = _NOT_ASCII.sub(lambda sign: json.dumps(sign[0])[1:-1], text)
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # for the rest, at exit
        if isinstance(error, BrokenPipeError):  # the reader, `head` say, has seen enough
            return True
        if stream is sys.stdout:
            _print(f"error: The result cannot be written: {error.strerror}.", sys.stderr)
        return False
    return True


def _with_tvms_pipelines(args: argparse.Namespace, connect: "Connect") -> "Connect":
    """Spell out TVM's pipelines in the arguments, as the engine reads them. Returns a `connect`
    that starts no second engine of one that was asked here."""
    from relascope.passes.catalogue import with_tvms
    from relascope.passes.catalogue.tvm_named import MARK

    asked: dict[str, EngineClient] = {}
    for name in ("passes", "passes_b", "pipelines"):  # that are, or list, their texts
        given = getattr(args, name, None) or ""
        texts = [given] if isinstance(given, str) else given
        if not any(MARK in text for text in texts):
            continue
        second = args.engine_b if name == "passes_b" else None
        ir = str(second or getattr(args, "engine", ENGINES[0]))
        if ir not in asked:
            asked[ir] = connect(ir)
        known = asked[ir].call("pipelines", getattr(args, "target", None) or "").pipelines
        with refusing("usage", "{}.", f"--{name.replace('_', '-')}", "See: relascope passes tvm:"):
            spelled = [with_tvms(ir, t, known) if MARK in t else t for t in texts]
        setattr(args, name, spelled[0] if isinstance(given, str) else spelled)
    return lambda ir: asked.pop(ir, None) or connect(ir)


def _module(name: str) -> Any:
    return import_module(f"relascope.commands.{name}")


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of the command line, with one command's options, or (None) with all."""
    about = "See, step, cut, compile and time TVM graphs of PyTorch models. Without a command the "
    about += "page is opened."
    whole = argparse.ArgumentParser(prog="relascope", description=about, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"relascope {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for row in re.split(r"\n(?=\S)", _COMMANDS.strip()):
        name, function, groups, about = (part.strip() for part in row.split("|"))
        one = commands.add_parser(name, help=about, allow_abbrev=False)
        if command not in (None, name):
            continue
        module, _, attribute = function.partition(":")
        run = getattr(_module(module), attribute or name.replace("-", "_"))
        one.description = run.__doc__
        one.set_defaults(run=run)
        if name not in _NO_ENGINE:
            about = "the TVM to use; default: relax for a module that relay's TVM cannot read, "
            one.add_argument("--engine", choices=ENGINES, help=about + "else relay")
        one.add_argument("--json", action="store_true", help="print one JSON document")
        about = "open model files from others even if the system offers no sandbox"
        one.add_argument("--trust-files", action="store_true", help=about)
        one.add_argument("--verbose", action="store_true", help="print the engine's log to stderr")
        for group in groups.split():
            module, _, attribute = group.rpartition(".")
            getattr(_module(module or "options"), attribute)(one)
    return whole


if __name__ == "__main__":
    sys.exit(main())
