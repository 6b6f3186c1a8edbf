"""`baseline`, and `check --baseline`: compare a compile with an earlier one."""

from typing import Any

from relascope.commands import handing_on
from relascope.commands.shared import Command, Document, write
from relascope.core.errors import EngineError, refusing
from relascope.engine.jobs import baseline as jobs
from relascope.engine.protocol.source import INPUTS
from relascope.engine.registry import ENGINES
from relascope.viz.rows.gate import baseline as rows
from relascope.viz.rows.gate import comment

_TYPED = ("input", "pin")  # options of a file's sources


def baseline(command: Command) -> Document:
    """Write what a model compiles to, for `relascope check --baseline` to hold it to later."""
    document, output = _taken(command), command.args.output
    write(output, rows.write(document))
    return {**document, "file": str(output)}


def check_baseline(command: Command) -> Document:
    """`check --baseline`: what differs from a baseline, in a sentence each."""
    args = command.args
    handing_on.check_ending(args, *handing_on.LISTS)
    hint = "`relascope baseline MODEL -o FILE` writes one."
    with refusing("file", "Cannot read: {}.", str(args.baseline), hint, OSError):
        text = args.baseline.read_text("utf-8", "replace")
    then = rows.read(text, str(args.baseline))
    _as_then(command, then)
    now: Document | None = None
    try:
        now = _taken(command, then)
        compared = rows.compare(then, now)
    except EngineError as error:
        if error.kind not in ("pass", "engine", "operator") or args.update:  # not of a compile
            raise
        compared = rows.Compared((rows.crashed(error),))
    failing = compared.failing(args.fail_on or rows.KINDS)
    if args.update and now is not None:
        write(args.baseline, rows.write(now), "--baseline")
    document = {
        "model": then["model"],
        "engine": args.engine,
        "target": (now or then)["made"]["target"],
        "baseline": str(args.baseline),
        **compared.to_json(),
        "failing": [d.sentence for d in failing],
        "updated": bool(args.update),
        "fails": bool(failing) and not args.update,
        "now": now,
    }
    if args.output:
        handing_on.differences(command, document)
    if args.markdown:
        write(args.markdown, comment.comment(document, args.argv), "--markdown")
    return document


def _taken(command: Command, then: Document | None = None) -> Document:
    """The present compile of the model; apparently slower programs are timed again."""
    args, about = command.args, (command.source, command.pipeline, _target(command, then))
    document = jobs.take(command, args.engine, *about, args.speed, args.threads, command.tolerance)
    if then is not None:
        slow = [d.kind for d in rows.compare(then, document).failing(("compile", "speed"))]
        if slow:
            document = jobs.timed_again(command, document, *about, args.threads, "speed" in slow)
    document["options"] |= {name: getattr(args, name) for name in _TYPED if getattr(args, name)}
    document["tolerance"] = {"rtol": args.rtol, "atol": args.atol}
    document["passes"] = None if args.passes in (None, "default") else args.passes
    return document


def _target(command: Command, then: Document | None) -> str:
    """The target of --target, else the baseline's if it runs here, else the best one."""
    if not command.args.target and then is not None:
        known: str = then["made"]["target"]
        try:
            if command("target", known).runs_here:
                return known
        except EngineError as error:
            if error.kind != "target":
                raise
    return command.target


def _as_then(command: Command, then: Document) -> None:
    """Take options that were not given from the baseline; refuse others that differ from it."""
    args = command.args
    if args.engine not in (ENGINES[0], then["engine"]):
        _differs("engine", then["engine"], args.engine, "--engine")
    args.engine = then["engine"]
    args.values = args.inputs[0] if args.inputs else INPUTS[0]
    if args.passes is None:
        args.passes = then.get("passes")
    args.threads = args.threads or then["made"].get("threads", 0)
    held = then.get("tolerance", {})
    args.rtol, args.atol = args.rtol or held.get("rtol"), args.atol or held.get("atol", 0.0)
    for name in (*jobs.FACTS, *_TYPED):
        usual: Any = [] if name in _TYPED else jobs.FACTS[name]
        given, known = getattr(args, name), then["options"].get(name, usual)
        given = usual if given is None else given
        if given not in (usual, known):
            option = {"values": "inputs", "weights": "random-weights"}.get(name, name)
            _differs(name, known, given, f"--{option}")
        setattr(args, name, known)
    if (named := jobs.named(command.source.model)) != then["model"]:
        _differs("model", then["model"], named, "MODEL")


def _differs(what: str, then: Any, now: Any, option: str) -> None:
    message = f"The baseline has another {what}: {then}. This check has {now}."
    hint = "Leave the option out, or write another baseline: relascope baseline."
    raise EngineError("usage", message, option, hint)
