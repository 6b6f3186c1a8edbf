"""One model through one pipeline, judged, and bisected where it is bad: a line of a large table."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.jobs import bisect, nth
from relascope.engine.jobs.accuracy import OURS, Tolerance
from relascope.engine.jobs.bisect import IMPORT, Bisection, Question
from relascope.engine.jobs.own_test import OwnTest
from relascope.engine.jobs.runs import at_run
from relascope.engine.limits import limit_crossed
from relascope.engine.protocol.fault import OF_TEST
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import read_pipeline, with_tvms
from relascope.passes.catalogue.tvm_named import MARK
from relascope.passes.pipeline import Pipeline, TvmPipelines

OUTCOMES = ("right", "rounding", "slow", "wrong", "crash", OF_TEST, "cannot be run", "not opened")
LONGEST = 30.0
"""The default limit of each pass and each build of TVM's pipelines, in seconds."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The task of one line. `target` "" is the best one where it runs; `slow` also looks for slow
    passes where it is right; `digest` is that of its files; a `test` alone decides what is bad."""

    engine: str
    model: str
    source: ModelSource
    name: str
    pipeline: Pipeline
    target: str = ""
    slow: bool = False
    tolerance: Tolerance = OURS
    digest: str = ""
    search: bool = True
    test: OwnTest | None = None

    @property
    def key(self) -> str:
        """Identifies it, the same in every run."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def through_tvms(ours: Task, theirs: TvmPipelines) -> Iterator[Task]:
    """Tasks of a model through TVM's own pipelines: each unchanged, the last one without each of
    its passes, and the first one with each other pass before it; only unchanged ones are bisected.
    `ours`, relascope's pipeline, comes first, and is alone in training: TVM's have no gradient."""

    def task(name: str, search: bool = False) -> Task:
        text = with_tvms(ours.engine, name, known)
        return replace(ours, name=name, pipeline=read_pipeline(ours.engine, text), search=search)

    yield ours
    if ours.source.training:
        return
    known = theirs.pipelines
    whole = [MARK + name for name in known]
    yield from (task(name, True) for name in whole)
    steps = dict.fromkeys(s.name for s in Pipeline.parse(known[whole[-1].removeprefix(MARK)]))
    yield from (task(f"{whole[-1]}|-{n}") for n in steps if n in theirs.left_out)
    yield from (task(f"{n}|{whole[0]}") for n in theirs.in_front)


def run_task(ask: Ask, task: Task) -> Row:
    """Judge, and bisect if it is bad. If the process ends, asks once more, because the cause may be
    outside. Raises EngineError of kind "cancelled"."""
    began = time.perf_counter()
    row, tries = _found(ask, task), 1
    if row["ended"]:
        row, tries = _found(ask, task), 2
    del row["ended"]
    about = {"key": task.key, "engine": task.engine, "model": task.model, "pipeline": task.name}
    return {**about, **row, "tries": tries, "seconds": round(time.perf_counter() - began, 2)}


def _found(ask: Ask, task: Task) -> Row:
    try:
        ask("load", task.source)
        target = task.target or ask("describe").best
    except EngineError as error:
        return _failed("not opened", error)
    about = task.source, task.pipeline, target, "" if task.test is None else OF_TEST
    question = Question(*about, threads=1, repeats=10, tolerance=task.tolerance, test=task.test)
    if not task.search:
        return _tried(ask, question)
    try:
        result = bisect.bisect(ask, task.engine, question)
        if not result.kind and task.slow:
            whole = Question(task.source, task.pipeline, target, "slow", threads=1)
            result = bisect.bisect(ask, task.engine, whole)
        inside = nth.nth(ask, task.engine, result)
    except EngineError as error:
        return _failed("crash" if error.kind in bisect.CRASHES else "cannot be run", error)
    said = [bisect.verdict(task.engine, result)]
    said += [nth.verdict(task.engine, result, inside)] if inside else []
    ended = any(t.error is not None and t.error.kind == "engine" for t in result.log)
    steps = result.question.pipeline.steps
    return {
        "outcome": _outcome(result),
        "culprits": ["import" if i == IMPORT else steps[i].name for i in result.culprits.suspects],
        "verdict": " ".join(said),
        "failure": _failure(result.log[0].error),
        "max_rel": result.log[0].max_rel,
        "also": result.also,
        "ended": ended and result.kind == "crash",
    }


def _tried(ask: Ask, question: Question) -> Row:
    done, at = bisect.tried(ask, question), ""
    others = done.outcome == "good" and question.test is None
    bad, _ = bisect.elsewhere(ask, question) if others else (None, ())
    if bad is not None:
        done = bisect.tried(ask, replace(question, source=bad))
        at = f"At {at_run(bad)}. "
    said = done.test.words if done.test is not None else ""
    verdict = at + (said if done.error is None else done.error.message.partition("\n")[0])
    outcome = _failure(done.error) or {"good": "right"}.get(done.outcome, done.outcome)
    ended = done.error is not None and done.error.kind == "engine" and outcome == "crash"
    row: Row = {"outcome": outcome, "culprits": [], "verdict": verdict}
    return {**row, "max_rel": done.max_rel, "ended": ended}


def _failure(error: EngineError | None) -> str:
    if error is not None and error.kind == "type":
        return "ill-formed" if "not well-formed" in error.message else "type changed"
    return "hang" if error is not None and limit_crossed(error) == "seconds" else ""


def _failed(outcome: str, error: EngineError) -> Row:
    message = error.as_finding().message
    said = {"outcome": outcome, "culprits": [], "verdict": message.partition("\n")[0]}
    return {**said, "ended": error.kind == "engine"}


def _outcome(result: Bisection) -> str:
    if result.kind == "wrong" and result.double is not None and result.double.passed:
        return "rounding"
    return result.kind or "right"
