"""`bulk`: many models through many pipelines; `pipelines`: one through each of TVM's."""

import argparse
import hashlib
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from relascope.commands.faults import test_of
from relascope.commands.shared import Command, Connect, Document, ProgressLine, writing
from relascope.core.errors import EngineError, refusing
from relascope.engine.client import EngineClient
from relascope.engine.jobs.bulk import OUTCOMES, Row, Task, run_task, through_tvms
from relascope.engine.limits import Limits
from relascope.engine.protocol.fault import OF_TEST
from relascope.passes.catalogue import default_pipeline
from relascope.passes.pipeline import TvmPipelines
from relascope.samples import SAMPLES
from relascope.viz.rows.gate import pipelines as pipeline_rows

_FILES = (".pt", ".pt2", ".onnx", ".json", ".tar", ".relay", ".relax")
_BAD = {
    **dict.fromkeys(("wrong", "crash", OF_TEST), "breaks"),
    "rounding": "rounds",
    "slow": "slows",
}
"""A culprit's effect, by outcome."""


def bulk(command: Command) -> Document:
    """Judge many models through many pipelines, bisect what is bad, and count the culprits.

    Lines are written to -o as they are found; the same command goes on where it was stopped."""
    found, resumed = lines_of(command, list(_tasks(command)))
    return {**document_of(found, command.args.fail_on or ()), "resumed": resumed}


def document_of(rows: Sequence[Row], fail_on: Sequence[str]) -> Row:
    """The document of `bulk`."""
    counts = Counter(r["outcome"] for r in rows)
    return {
        "rows": list(rows),
        "outcomes": {o: counts[o] for o in OUTCOMES if counts[o]},
        "culprits": culprits(rows),
        "fails": any(r["outcome"] in fail_on for r in rows),
    }


def culprits(rows: Iterable[Row]) -> list[Row]:
    """A row for each pass, the worst first; `models` are named once each. If there are several
    suspects, none is certain, so each counts as `suspected`."""
    found: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        if row["outcome"] not in _BAD:
            continue
        sure = len(row["culprits"]) == 1
        for name in row["culprits"] or ["(not found)"]:
            does = _BAD[row["outcome"]] if sure or not row["culprits"] else "suspected"
            found.setdefault(name, {}).setdefault(does, set()).add(row["model"])
    words = ("breaks", "slows", "rounds", "suspected")
    lines = [
        {
            "pass": name,
            **{w: len(by.get(w, ())) for w in words},
            "models": sorted(set().union(*by.values())),
        }
        for name, by in found.items()
    ]
    return sorted(lines, key=lambda r: (*(-int(r[w]) for w in words), str(r["pass"])))


def lines_of(command: Command, tasks: Sequence[Task]) -> tuple[list[Row], int]:
    """The lines of tasks, in their order, and how many were known from an earlier run. They are
    found by --workers engines, and each is added to -o at once."""
    args = command.args
    known = _known(args.output)
    found = [known[t.key] for t in tasks if t.key in known]
    left = [t for t in tasks if t.key not in known]
    line = ProgressLine(sys.stderr)
    workers = args.workers or len(os.sched_getaffinity(0))
    try:
        for task, row in in_threads(left, command.connect, command.limits, workers):
            found.append(row)
            _add(args.output, row)
            line(len(found) / len(tasks), f"{len(found)} of {len(tasks)}: {task.model}")
    finally:
        line.clear()
    order = {t.key: i for i, t in enumerate(tasks)}
    found.sort(key=lambda r: order[r["key"]])
    return found, len(tasks) - len(left)


def _tasks(command: Command) -> Iterator[Task]:
    """Each model with every pipeline. Raises EngineError, kind "usage" or "file", if one is not."""
    args = command.args
    test = test_of(args, slow=args.slow)
    for model in _models(args.models):
        for text in _pipelines(args.pipelines):
            given = {**vars(args), "model": model, "passes": text}
            one = Command(argparse.Namespace(**given), command.connect)
            source = one.source
            about = one.engine, model, source, text, one.pipeline, args.target or ""
            files = (source.model, *args.pass_file, *filter(None, (args.test,)))
            yield Task(*about, args.slow, one.tolerance, digest_of(files), test=test)


def digest_of(paths: Iterable[str | Path]) -> str:
    """A digest of the files among some paths, so that changed ones are run again."""
    found = hashlib.sha256()
    for path in map(Path, paths):
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            if file.is_file():
                found.update(file.read_bytes())
    return found.hexdigest()[:16]


def _models(given: list[str]) -> Iterator[str]:
    """Models by name; "samples" is all samples, and a folder all model files in it."""
    for name in given:
        path = Path(name)
        if name == "samples":
            yield from SAMPLES
        elif path.is_dir() and not (path / "config.json").is_file():
            files = sorted(str(f) for f in path.iterdir() if f.suffix in _FILES)
            if not files:
                hint = f"Files of models end in {', '.join(_FILES)}."
                raise EngineError("usage", "There is no model in this folder.", name, hint)
            yield from files
        else:
            yield name


def _pipelines(given: list[str]) -> list[str]:
    """Pipelines as texts; @FILE has one in each line."""
    found: list[str] = []
    for text in given or ["default"]:
        if not text.startswith("@"):
            found.append(text)
            continue
        about = "The file of pipelines cannot be read.", text[1:], "Write one pipeline a line."
        with refusing("file", *about, OSError, ValueError):
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        found += [x.strip() for x in lines if x.strip() and not x.startswith("#")]
    return list(dict.fromkeys(found))


def _known(path: Path | None) -> dict[str, Row]:
    """Lines of an earlier run, by their keys, without one cut off when the run was killed."""
    if path is None or not path.exists():
        return {}
    known: dict[str, Row] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(text)
            known[row["key"]] = row
        except (ValueError, KeyError, TypeError):
            continue
    return known


def _add(path: Path | None, row: Row) -> None:
    """Add a line, below one that may be cut off."""
    if path is None:
        return
    with writing(path, "-o"), path.open("a+b") as file:
        file.seek(0, os.SEEK_END)
        torn = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        file.write((("\n" if torn else "") + json.dumps(row, ensure_ascii=False) + "\n").encode())


def pipelines(command: Command) -> Document:
    """Run a model through TVM's own pipelines: each as it is, the last one without each of its
    passes, and the first one with each other pass in front. What is bad is bisected.

    Lines are written to -o as they are found; the same command goes on where it was stopped."""
    args, source = command.args, command.source
    with command:  # the workers have their own engines
        theirs: TvmPipelines = command("pipelines", args.target or "")
        target = command.target
        against = command("load", source, True).against
    ours = Task(
        command.engine,
        args.model,
        source,
        "default",
        default_pipeline(command.engine, args.training, args.gradient),
        target,
        tolerance=command.tolerance,
        digest=digest_of((source.model, *filter(None, (args.test,)))),
        test=test_of(args),
    )
    tasks = list(through_tvms(ours, theirs))
    found, resumed = lines_of(command, tasks)
    about = {"model": args.model, "engine": command.engine, "target": target, "against": against}
    whole = {task.key for task in tasks if task.search}
    return {**about, **pipeline_rows.document(found, whole, args.fail), "resumed": resumed}


def in_threads(
    tasks: Sequence[Task], connect: Connect, limits: Limits, workers: int
) -> Iterator[tuple[Task, Row]]:
    """Each task with its line, as they are found, by as many engines as workers."""
    engines: list[EngineClient] = []

    def one(task: Task) -> Row:
        known: dict[str, EngineClient] = own.__dict__
        if task.engine not in known:
            known[task.engine] = connect(task.engine)
            engines.append(known[task.engine])
        known[task.engine].limit(limits)
        return run_task(known[task.engine].call, task)

    own = threading.local()
    pool = ThreadPoolExecutor(workers)
    try:
        waiting = {pool.submit(one, task): task for task in tasks}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for engine in engines:
            engine.close()
