"""`tasks` and `tune`: the kernels of a model that can be tuned, and tuning them."""

import argparse
import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from relascope.commands.shared import Command, Document
from relascope.core.errors import EngineError
from relascope.engine.protocol import records
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.protocol.tuning import TuneTask
from relascope.passes.catalogue import last_built
from relascope.viz.rows.tuning import task_rows


def tasks(command: Command) -> Document:
    """The kernels of a model that can be tuned: calls, share of the time, best record."""
    request = command.cut_request()
    found: tuple[TuneTask, ...] = command("tasks", request)
    source, pipeline = request.source, request.pipeline
    graph = command("graph_after", source, pipeline, last_built(command.engine, pipeline))
    place = _place(command, command("describe"), request)
    document = {**_about(command, request), "records": str(place)}
    document["tasks"] = task_rows(found, graph)
    return command.written(document)


def tune(command: Command) -> Document:
    """Measure schedules of a model's kernels, and keep the best for builds to come."""
    args = command.args
    request = command.cut_request()
    found: tuple[TuneTask, ...] = command("tasks", request)
    keys = _chosen(found, args)
    engine: EngineInfo = command("describe")
    place = _place(command, engine, request)
    lines, began, result = len(records.read(place).trials), time.perf_counter(), None
    with contextlib.suppress(KeyboardInterrupt):  # the results are in the records
        result = command.timed("tune", request, keys, args.trials)
    book, tasks = records.read(place), {t.key: t for t in found}
    run = book.trials[-1].run if len(book.trials) > lines else ""
    tuned = [book.tuned(run, k, tasks[k].name, tasks[k].best_ms) for k in keys]
    shapes = {k: [list(a.shape) for a in tasks[k].arguments] for k in keys}
    document = {
        **_about(command, request),
        "machine": engine.machine,
        "records": str(place),
        "run": run,
        "seconds": time.perf_counter() - began,
        "cancelled": result is None,
        "notes": list(book.notes if result is None else result.notes),
        "tasks": [{**plain(t), "shapes": shapes[t.key]} for t in tuned],
        "curve": [{**plain(t), "name": tasks[t.task].name} for t in book.in_run(run)],
    }
    return command.written(document)


def _about(command: Command, request: BuildRequest) -> Document:
    return {
        **command.about(request.source, request.pipeline),
        "target": request.target,
        "threads": request.threads or len(os.sched_getaffinity(0)),
    }


def _place(command: Command, engine: EngineInfo, request: BuildRequest) -> Path:
    return records.folder(engine.ir, engine.version, request.target, request.threads)


def _chosen(found: Sequence[TuneTask], args: argparse.Namespace) -> tuple[str, ...]:
    """The keys of the requested tasks. Raises EngineError if a word names none."""
    if not args.tasks:
        return tuple(t.key for t in found[: args.top])
    keys: dict[str, None] = {}
    for word in args.tasks.split(","):
        named = [t.key for t in found if t.name == word or t.key.startswith(word)]
        if not word or not named:
            hint = "`relascope tasks` lists keys and names."
            raise EngineError("usage", f"The program has no task {word!r}.", "--tasks", hint)
        keys.update(dict.fromkeys(named))
    return tuple(keys)[: args.top]
