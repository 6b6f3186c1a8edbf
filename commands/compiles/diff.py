"""`diff`: compare two models, files, pipelines, sessions or recordings."""

import argparse
import statistics
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, cast

from relascope.commands import options
from relascope.commands.installation import serve, served_options
from relascope.commands.shared import Command, Document, write
from relascope.engine.jobs.step import step
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.times import TimeResult
from relascope.engine.registry import ENGINES
from relascope.passes import catalogue
from relascope.passes.pipeline import Pipeline
from relascope.viz.compare.align import Alignment
from relascope.viz.compare.match import match
from relascope.viz.compare.runs import ComparedRun, compare, run_of
from relascope.viz.handed_on.difference import difference_sheet
from relascope.viz.rows import tables
from relascope.viz.sessions import replay, store
from relascope.viz.sessions.state import ModelChoice, ScreenState, Session, pipeline_text

_ROUNDS = 3  # of each side's timing, in turns
_B = "_b"
_COMMON = ("--pass-file", "--limit-seconds", "--limit-memory", "--limit-calls")


class _Second:
    """Adds the options of a group a second time, for B: `--batch-b` beside `--batch`."""

    def __init__(self, command: argparse.ArgumentParser) -> None:
        self._command = command

    def add_argument(self, name: str, **how: Any) -> None:
        """Like a parser's; options not given for B are A's."""
        if not name.startswith("-"):
            about = "what to compare it with: anything that A can be"
            self._command.add_argument("other", metavar="B", help=about)
        elif name not in _COMMON:
            for gone in ("default", "help"):
                how.pop(gone, None)
            own = how.pop("dest", name.strip("-").replace("-", "_")) + _B
            about = f"{name} for B; default: as for A"
            given = {**how, "dest": own, "default": None, "help": about}
            self._command.add_argument(f"{name}-b", **given)


def diff_options(command: argparse.ArgumentParser) -> None:
    """The two sides, and the parts of their comparison."""
    add = command.add_argument
    add("--engine", choices=ENGINES, default=ENGINES[0], help="the TVM to use")
    for group in (options.model, options.gradient, options.passes, measured):
        group(command)
    second = cast(argparse.ArgumentParser, _Second(command))
    second.add_argument("--engine", choices=ENGINES)
    for group in (options.model, options.gradient, options.passes, options.target):
        group(second)
    about = "open the page on both, with their graphs beside each other, and print nothing"
    add("--page", action="store_true", help=about)
    served_options(command)
    options.output(command)


def gradients_options(command: argparse.ArgumentParser) -> None:
    """The same of `gradients`; only Relax has both."""
    measured(command)
    command.set_defaults(engine="relax")


def measured(command: argparse.ArgumentParser) -> None:
    """How to build and time both sides."""
    options.time(command)
    about = "build and time both in turns, with their errors against PyTorch"
    command.add_argument("--measure", action="store_true", help=about)
    by_hand: dict[str, Any] = {"save": [], "recompute": [], "offload": False, "per_use": False}
    command.set_defaults(strategy=options.DEFAULT, budget=None, **by_hand)


def diff(command: Command) -> Document:
    """Compare two models, files, pipelines, sessions or recordings.

    Steps are aligned and the first after which the programs differ is named; graphs are matched
    there and at the end. Without --passes of either, what is imported is compared."""
    args, given = command.args, vars(command.args)
    first = argparse.Namespace(**{k: v for k, v in given.items() if not k.endswith(_B)})
    over = {k.removesuffix(_B): v for k, v in given.items() if k.endswith(_B) and v is not None}
    second = argparse.Namespace(**{**vars(first), "model": args.other, **over})
    connect = cache(command.connect)  # one engine for sides of one IR
    a, b = Command(first, connect), Command(second, connect)
    if args.page:
        _open_page(args, a, b)
    with a, b, tempfile.TemporaryDirectory(prefix="relascope-") as folder:
        runs, requests = [], []
        for name, side in (("a", a), ("b", b)):
            run, request = _run(side, Path(folder, name))
            runs.append(run)
            requests.append((side, request))
        document = compare(*runs)
        if args.other == args.model:
            document |= _operators(*runs)
        document["times"] = _times(requests) if args.measure else None
        if args.output and args.output.suffix == ".html":
            write(args.output, difference_sheet(document, *runs).html())
            return document
    return command.written(document)


def both_engines(command: Command) -> Document:
    """A model in Relay and in Relax: the same as `diff MODEL MODEL --engine-b relax`.

    An engine without the chosen gradient uses TVM's."""
    chosen, (a, b) = command.args.gradient, ENGINES
    both = [chosen if chosen in catalogue.gradients(ir) else "tvm" for ir in ENGINES]
    sides = {"engine": a, "engine_b": b, "gradient": both[0], "gradient_b": both[1]}
    return _with_itself(command, measure=False, **sides)


def both_gradients(command: Command) -> Document:
    """TVM's gradient of a model and PyTorch's, after default pipelines; Relay has TVM's only.

    The same as `diff MODEL MODEL --engine relax --training --gradient-b pytorch --passes default`.
    """
    sides = {"training": True, "gradient": "tvm", "gradient_b": "pytorch"}
    return _with_itself(command, passes=command.args.passes or "default", **sides)


def _with_itself(command: Command, **sides: Any) -> Document:
    args = command.args
    if command.recorded:
        raise command.recorded.refusal
    given = {**vars(args), "other": args.model, "page": False, "output": None, **sides}
    return {"model": args.model, **diff(Command(argparse.Namespace(**given), command.connect))}


def _operators(a: ComparedRun, b: ComparedRun) -> Document:
    """The operators of two IRs for each PyTorch operator of a model; none for one IR."""
    graphs = [g for run in (a, b) if (g := run.graph(len(run.steps) - 1)) is not None]
    if a.ir == b.ir or len(graphs) < 2:
        return {}
    engines: Document = {}
    for run, graph in zip((a, b), graphs, strict=True):
        size = {"nodes": len(graph), "edges": graph.edge_count}
        engines[run.ir] = {"pipeline": run.about["pipeline"], **size, "error": None}
    return {"engines": engines, **tables.alignment_document(Alignment(match(*graphs)))}


def _open_page(args: argparse.Namespace, first: Command, second: Command) -> NoReturn:
    """Save both as sessions, and become the page's server on the first."""
    other = _kept_session(second, lambda session: session, "B of relascope diff")
    choices: dict[str, bool | str] = {"keep_against": "session", "keep_against_session": other}
    look = ScreenState("Side by side", choices=choices)
    here = _kept_session(first, lambda session: replace(session, look=look), "relascope diff")
    serve(args, {store.OPEN: f"{store.OF_SESSION}{here}"})


def _kept_session(side: Command, made: Callable[[Session], Session], about: str) -> str:
    args, path = side.args, Path(side.args.model)
    with tempfile.TemporaryDirectory(prefix="relascope-") as folder:
        files: list[tuple[str, str]] = []
        if _is_session(path):
            session, model = replay.read(path, Path(folder))
            files = [(model, session.model.digest)] if model else []
            files += [(str(f), f.name) for f in Path(folder, "tensors").glob("*")]
        else:
            source = side.source
            pipeline = str(side.pipeline) if args.passes else ""
            name = path.name if source.digest else source.model
            about_model = ModelChoice.of(source, name, "\n".join(args.input))
            session = Session(ir=args.engine, model=about_model, pipeline=pipeline)
            files = [(source.model, source.digest)] if source.digest else []
            files += source.tensors
        ident = store.new_id()
        store.put(ident, made(session), f"{session.model.name}, {about}", files)
    return ident


def _is_session(path: Path) -> bool:
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return False
    with zipfile.ZipFile(path) as archive:
        return "session.json" in archive.namelist()


Request = Callable[[], BuildRequest]


def _run(side: Command, folder: Path) -> tuple[ComparedRun, Request]:
    """One side, and its build."""
    args = side.args
    path, label, session = Path(args.model), args.model, None
    if _is_session(path):
        folder.mkdir()
        session, args.model = replay.whole(path, folder)
        label = f"{path.name}: {session.model.name}"
    if session is None or side.recorded:
        whole = args.passes or side.recorded
        source, pipeline = side.source, side.pipeline if whole else Pipeline()
    else:
        args.engine, args.training = session.ir, session.model.training
        source = session.model.source(args.model)
        text = pipeline_text(session) if args.passes is None else args.passes
        pipeline = catalogue.read_pipeline(session.ir, text)
    about = side.recorded.about if side.recorded else None
    run = run_of(side, side.engine, source, pipeline, label, about)

    def request() -> BuildRequest:
        sound = step(side, source, pipeline).sound
        return side.cut_request(BuildRequest(source, sound, side.target, args.threads))

    return run, request


def _times(sides: list[tuple[Command, Request]]) -> Document:
    """Both built and timed against PyTorch eager in turns, some rounds each."""
    asked = [
        (side, replace(request(), repeats=max(1, side.args.repeats // _ROUNDS)))
        for side, request in sides
    ]
    found: list[list[TimeResult]] = [[], []]
    for turn in range(_ROUNDS):
        for at in (0, 1) if turn % 2 == 0 else (1, 0):
            one, request_of = asked[at]
            found[at].append(one.timed("time", request_of))
    sides_of = zip("ab", found, asked, strict=True)
    rows = [_times_of(name, made.target, results) for name, results, (_, made) in sides_of]
    # Other work can only make runs longer, eager's too, so the best round counts.
    was, now = (min(r["of_rounds_ms"]) for r in rows)
    notes = list(dict.fromkeys(n for results in found for r in results for n in r.notes))
    return {"rows": rows, "b_over_a": (now / was if was else None), "notes": notes}


def _times_of(side: str, target: str, results: list[TimeResult]) -> Document:
    """One side's rounds of the last timed phase."""
    own = [r for result in results for r in result.rows if r.max_abs_error is not None]
    own = [r for r in own if r.phase == own[-1].phase]
    return {
        "side": side,
        "target": target,
        "phase": own[-1].phase,
        "median_ms": statistics.median(r.median_ms for r in own),
        "of_rounds_ms": [r.median_ms for r in own],
        "ratio_to_eager": statistics.median(r.ratio_to_eager or 0.0 for r in own),
        "max_abs_error": max(r.max_abs_error or 0.0 for r in own),
        "build_seconds": results[0].build_seconds,
    }
