"""Bisection inside a pass: the application of a rewrite that makes a pipeline wrong, or crash.

A pass on our rewriters can stop after so many applications (`passes.applications`)."""

from dataclasses import dataclass, replace

from relascope.core.errors import EngineError
from relascope.engine.jobs.bisect import Bisection, Try, does, tried
from relascope.engine.protocol.fault import OF_TEST
from relascope.engine.protocol.results import Application
from relascope.engine.protocol.session import Ask
from relascope.passes.catalogue import info
from relascope.passes.catalogue.entry import COUNT
from relascope.passes.search.bisect import IMPORT, Verdict, nearest

_KINDS = ("wrong", "crash", OF_TEST)


@dataclass(frozen=True)
class Nth:
    """The application of a pass that breaks a pipeline. `index` is the step's; `number` counts from
    1, and is 0 where it is bad without any. `before` is the largest number known to be good:
    `number - 1` unless others cannot be run, -1 if none is. `place` is the application's, None
    where `number` is 0."""

    index: int
    number: int
    before: int
    of: int
    place: Application | None
    log: tuple[Try, ...]


def nth(ask: Ask, ir: str, result: Bisection) -> Nth | None:
    """Search on in the pass that bisection found for the application that breaks the pipeline; None
    where it found no single pass, the pass is slow, or its applications are not counted. Raises
    EngineError of kind "cancelled"."""
    suspects, pipeline = result.culprits.suspects, result.culprits.bad
    if result.kind not in _KINDS or len(suspects) != 1 or pipeline is None:
        return None
    index = suspects[0]
    if index == IMPORT or info(ir, pipeline.steps[index]).not_counted:
        return None
    source = result.question.source
    try:
        places: tuple[Application, ...] = ask("applications", source, pipeline, index)
    except EngineError as error:
        error.as_finding()
        return None  # the pass ends the process: its progress is unknown
    if not places:
        return None
    log: list[Try] = []

    def judge(count: int) -> Verdict:
        part = pipeline.with_parameter(index, COUNT, str(count))
        log.append(tried(ask, replace(result.question, pipeline=part)))
        if log[-1].outcome == result.kind:
            return Verdict.BAD
        return Verdict.GOOD if log[-1].outcome == "good" else Verdict.CANNOT_RUN

    if judge(0) is Verdict.BAD:
        return Nth(index, 0, -1, len(places), None, tuple(log))
    before, number = nearest(0, len(places), judge)
    return Nth(index, number, before, len(places), places[number - 1], tuple(log))


def verdict(ir: str, result: Bisection, nth: Nth) -> str:
    name = result.question.pipeline.steps[nth.index].name
    bad = does(result.kind)
    if not nth.number:
        return f"The fault also shows without any of the {nth.of} applications of {name}."
    assert nth.place is not None
    if nth.number - nth.before > 1:
        first = nth.before + 1
        return (
            f"One of its applications {first} to {nth.number} of {nth.of} {bad}; the programs "
            f"between them cannot be run. The last of them is to {nth.place.words}."
        )
    if nth.of == 1:
        return f"Its one application is to {nth.place.words}."
    return f"Application {nth.number} of {nth.of} {bad}: the one to {nth.place.words}."
