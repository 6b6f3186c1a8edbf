"""Bisection with an engine: which pass makes a pipeline wrong, slow, or crash?

Each try of `passes.search.bisect.search` is one question to the engine, asked by the name
of its function; so a try that ends the engine's process is a finding like any other, and the next
one finds a new process. Knows no TVM; the page and the command line run it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.jobs import accuracy
from relascope.engine.jobs.accuracy import DTYPES, OURS, Tolerance
from relascope.engine.jobs.cut import with_cut
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import Variant
from relascope.passes.catalogue import info, recorded
from relascope.passes.pipeline import Pipeline
from relascope.passes.search.bisect import IMPORT, Found, Verdict, half_way, kept_on, search

KINDS = ("wrong", "slow", "crash")
FACTOR = 1.5
_MEASURED = ("wrong", "slow")  # what only a program that runs can be
_CRASHES = ("pass", "engine")  # kinds of errors that a pass can be to blame for


_FINE = {
    "": "runs and agrees with PyTorch",
    "wrong": "agrees with PyTorch",
    "slow": "is not slower than that with any pass",
    "crash": "does not crash",
}


@dataclass(frozen=True)
class Question:
    """What is asked of a pipeline.

    Args:
        kind: "wrong" (over the limits of `accuracy`), "slow", "crash" (a pass raises, the
            program cannot be built or run, or the engine's process ends); "" for wrong or crash,
            whichever it is.
        factor: slow is a pass with which the pipeline takes longer than this times what it takes
            without that pass, both timed in turns.
        threads, repeats: of the timing; see `engine.server.session.PipelineSession.time`.
        tolerance: what is wrong.
    """

    source: ModelSource
    pipeline: Pipeline
    target: str
    kind: str = ""
    factor: float = FACTOR
    threads: int = 0
    repeats: int = 10
    tolerance: Tolerance = OURS


@dataclass(frozen=True)
class Try:
    """One try.

    Args:
        pipeline: what was tried.
        last: index of the last step that was on, -1 for the imported program; of what was timed,
            of the step that was left out, -1 for the whole pipeline.
        outcome: "good", "wrong", "slow" (the whole takes too long beside it), "crash" or "cannot
            be run".
        worst: the tensor that is nearest to its limit, or farthest over it; "" where none was
            compared.
        max_abs, max_rel, limit: of `worst`.
        ratio: of the whole pipeline's time to that of this try, where it was timed; of the whole,
            the largest.
        error: what the engine said, where it crashed or could not be run.
    """

    pipeline: Pipeline
    last: int
    outcome: str
    worst: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    limit: float | None = None
    ratio: float | None = None
    error: EngineError | None = None


@dataclass(frozen=True)
class Bisection:
    """What was found.

    Args:
        kind: what is the matter: "wrong", "slow" or "crash"; "" where nothing is.
        found: the suspects; see `passes.search.bisect.Found`.
        log: every try, in order.
        double: where it is wrong in float32, the smallest wrong pipeline again in float64, with
            the node where the error first jumps: it tells rounding from a fault. A question about
            float32 whose answer was found in float64 is about float64 in the result.
    """

    question: Question
    kind: str
    found: Found
    log: tuple[Try, ...]
    double: accuracy.Row | None = None

    @property
    def compiles(self) -> int:
        """How many tries the search took."""
        return len(self.log)


def bisect(
    ask: Ask, ir: str, question: Question, tell: Callable[[Try], None] = lambda one: None
) -> Bisection:
    """Find the first pass that makes a pipeline bad; see `passes.search.bisect.search` for how.

    Args:
        ask: asks the engine. What it raises other than an EngineError ends the search; run again
            with an `ask` that remembers its answers, it goes on from there.
        tell: called with each try as it is done.

    Raises:
        EngineError: the whole pipeline cannot be run, and that is not what is asked about: it
            crashes where the question is "wrong" or "slow", or no pass can be to blame (its kind
            is "input", "target", "cancelled", …).
    """
    log: list[Try] = []
    pipeline = question.pipeline
    if question.kind in _MEASURED:
        pipeline = _built(ir, pipeline)
    if question.kind == "slow":
        return _slow(ask, ir, question, pipeline, tell)

    def run(part: Pipeline) -> Try:
        done = _try(ask, replace(question, pipeline=part))
        log.append(done)
        tell(done)
        return done

    whole = run(pipeline)
    if whole.outcome == "good" and question.kind != "crash" and question.source.dtype == DTYPES[0]:
        asked, source = question, replace(question.source, dtype=DTYPES[1])
        question = replace(question, source=source)
        whole = run(pipeline)  # what float32's limit hides
        if whole.outcome != "wrong":
            question, whole = asked, log[0]
    if whole.error is not None and (whole.outcome != "crash" or question.kind in _MEASURED):
        raise whole.error
    kind = whole.outcome
    if kind == "good" or question.kind not in ("", kind):
        return Bisection(question, "", Found(()), tuple(log))
    if kind != "crash":
        pipeline = _built(ir, pipeline)

    def judge(part: Pipeline) -> Verdict:
        if part == pipeline:
            return Verdict.BAD
        if half_way(ir, pipeline, part):
            return Verdict.CANNOT_RUN
        done = run(part)
        outcome = done.outcome
        if outcome == kind and not _lacks(ir, part, kept, done.error, whole.error):
            return Verdict.BAD
        if outcome in ("crash", "cannot be run"):
            return Verdict.CANNOT_RUN
        return Verdict.GOOD

    kept = kept_on(ir, pipeline)
    found = search(pipeline, judge, kept)
    double = None
    one = any(s.name == recorded.NAME for s in pipeline)  # a recorded module has one precision
    single = question.source.dtype == DTYPES[0] and not one
    if kind == "wrong" and single and found.bad is not None:
        source = replace(question.source, dtype="float64")
        stage = accuracy.Stage("forward", source, found.bad, tolerance=question.tolerance)
        (double,) = accuracy.run(ask, stage, question.target)
        if double.passed and found.suspects == (IMPORT,):
            # Float32 rounds by more than the limit wherever one looks: a fault hides behind that.
            wide = replace(question, source=source)
            if (whole := _try(ask, wide)).outcome == "wrong":
                beyond = bisect(ask, ir, wide, tell)
                return replace(beyond, log=(*log, *beyond.log))
    return Bisection(question, kind, found, tuple(log), double)


def _lacks(
    ir: str,
    part: Pipeline,
    kept: Collection[int],
    error: EngineError | None,
    whole: EngineError | None,
) -> bool:
    """Whether a try fails in another way than the whole: a step that was kept on raises, most
    likely for want of one that was switched off."""
    if error is None or whole is None or error.kind != "pass" or error.where == whole.where:
        return False
    entries = [info(ir, part.steps[i]) for i in kept if i < len(part)]
    return any(error.where.startswith((e.name, e.title)) for e in entries)


def tried(ask: Ask, question: Question, pipeline: Pipeline) -> Try:
    """One try of another pipeline than the question's."""
    return _try(ask, replace(question, pipeline=pipeline))


def _built(ir: str, pipeline: Pipeline) -> Pipeline:
    """With the steps switched off that are only for looking, and so change nothing."""
    for index, step in enumerate(pipeline):
        if step.enabled and info(ir, step).looking:
            pipeline = pipeline.switched(index, False)
    return pipeline


def _try(ask: Ask, question: Question) -> Try:
    on = [i for i, step in enumerate(question.pipeline) if step.enabled]
    done = Try(question.pipeline, on[-1] if on else IMPORT, "good")
    try:
        return _checked(ask, question, done)
    except EngineError as error:
        if error.kind == "cancelled":
            raise
        crash = error.kind in _CRASHES
        return replace(done, outcome="crash" if crash else "cannot be run", error=error)


def _checked(ask: Ask, question: Question, done: Try) -> Try:
    source = question.source
    found = ask("check", BuildRequest(source, question.pipeline, question.target))
    limit = question.tolerance.limit(source.dtype)
    row = accuracy.filled(accuracy.Row("", "", source.dtype, False), found, limit)
    worst = next(c for c in found if c.name == row.worst)
    outcome = "good" if row.passed else "wrong"
    errors = worst.name, worst.max_abs, worst.max_rel, row.limit
    return Try(done.pipeline, done.last, outcome, *errors)


def _slow(
    ask: Ask, ir: str, question: Question, pipeline: Pipeline, tell: Callable[[Try], None]
) -> Bisection:
    """The pass without which the pipeline gains most: all are timed in turns, in one run.

    What cannot be built without a pass says nothing of it.

    Raises:
        EngineError: the whole pipeline cannot be built, or does not run.
    """
    source, kept = question.source, kept_on(ir, pipeline)

    def request(part: Pipeline) -> BuildRequest:
        asked = BuildRequest(source, part, question.target, question.threads, question.repeats)
        if source.training:
            graph: Graph = ask("graph_after", source, part, len(part) - 1)
            if graph.forward_outputs is not None:
                return with_cut(ask, asked)
        return asked

    whole, variants = request(pipeline), []
    free = [i for i, step in enumerate(pipeline) if step.enabled and i not in kept]
    for index in free:
        try:
            part = request(pipeline.switched(index, False))
            variants.append(Variant(f"without {index}", part))
        except EngineError as error:
            if error.kind == "cancelled":
                raise
    result = ask("time", whole, (), tuple(variants))
    phase = result.rows[-1].phase
    # To eager, which runs in the same turns: what disturbs the machine disturbs all.
    paces = {r.what: r.ratio_to_eager for r in result.rows if r.phase == phase and r.ratio_to_eager}
    own = next(iter(paces.values()))
    tries: dict[int, Try] = {}
    for index in free:
        if (found := paces.get(f"{ir}, without {index}")) is not None:
            ratio = own / found
            without = pipeline.switched(index, False)
            tries[index] = Try(without, index, _pace(ratio, question), ratio=ratio)
    most = max((t.ratio or 0.0 for t in tries.values()), default=1.0)
    done = Try(pipeline, IMPORT, _pace(most, question), ratio=most)
    log = (done, *tries.values())
    for one in log:
        tell(one)
    if done.outcome == "good":
        return Bisection(question, "", Found(()), log)
    worst = max(tries, key=lambda i: tries[i].ratio or 0.0)
    return Bisection(question, "slow", Found((worst,), pipeline, tries[worst].pipeline), log)


def _pace(ratio: float, question: Question) -> str:
    return "slow" if ratio > question.factor else "good"


def verdict(ir: str, result: Bisection) -> str:
    """What was found, in a few sentences."""
    pipeline, kind = result.question.pipeline, result.kind
    if not kind and any(s.name == recorded.NAME for s in pipeline):
        return (
            "Nothing to find: every recorded module that can be run computes what the first does."
        )
    if not kind:
        return f"Nothing to find: the whole pipeline {_FINE[result.question.kind]}."
    make = f"makes it {kind}"
    names = [_name(ir, pipeline, i) for i in result.found.suspects]
    bad = next((t for t in result.log if t.pipeline == result.found.bad), result.log[0])
    if result.found.suspects == (IMPORT,):
        text = f"The imported program is at fault, before any pass: {_of(bad)}."
    elif len(names) == 1:
        text = f"{names[0]} {make}: {_of(bad)}."
        good = next((t for t in result.log if t.pipeline == result.found.good), None)
        if good is not None and kind != "slow":
            text += f" Without it: {_of(good)}."
    else:
        text = f"One of {', '.join(names)} {make}: {_of(bad)}."
        text += " What lies between cannot be run by itself."
    return " ".join(filter(None, (text, _rounding(result))))


def _name(ir: str, pipeline: Pipeline, index: int) -> str:
    if index == IMPORT:
        return "the import"
    step = pipeline.steps[index]
    if step.name == recorded.NAME:
        return f"Pass {recorded.number_of(step)}, {info(ir, step).title},"
    return f"Step {index + 1}, {step.name} ({info(ir, step).title}),"


def _of(one: Try) -> str:
    if one.error is not None:
        return one.error.message.partition("\n")[0].rstrip(".")  # the rest is in the log
    if one.ratio is not None:
        return f"{one.ratio:.2f} times the time without it"
    return f"{one.worst} is off by {one.max_rel:.1e} of its scale (limit {one.limit:.0e})"


def _rounding(result: Bisection) -> str:
    double = result.double
    if result.kind != "wrong":
        return ""
    if double is None:
        single = result.question.source.dtype == "float32"
        return "" if single else "That is in float64: it is wrong, not rounded."
    if double.failure is not None:
        return f"In float64 it cannot be run: {double.failure.message}"
    if double.passed:
        return "It is rounding: in float64 the same is within its limit."
    bad = double.first_bad
    where = ""
    if bad is not None:
        where = f", first at {bad.title}{bad.within}"
    return f"It is wrong, not rounded: float64 is over its limit, too{where}."
