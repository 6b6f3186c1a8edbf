"""Bisection with an engine: which pass makes a pipeline wrong, slow, or crash? Knows no TVM.

Each try of `passes.search.bisect.search` is one question, so a try may end the engine's process."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from relascope.core.errors import EngineError
from relascope.engine.jobs import accuracy
from relascope.engine.jobs.accuracy import DTYPES, OURS, Tolerance
from relascope.engine.jobs.cut import with_cut
from relascope.engine.jobs.own_test import OwnTest
from relascope.engine.jobs.runs import (
    at_run,
    label_of,
    on_inputs,
    reach,
    runs_of,
    unfit,
    unfit_words,
)
from relascope.engine.limits import MIB
from relascope.engine.protocol.fault import OF_TEST, ScriptRun
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.results import PYTORCH, UNBUILT
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import INPUTS, ModelSource
from relascope.engine.protocol.times import Variant
from relascope.passes.catalogue import info, recorded
from relascope.passes.pipeline import Pipeline, Step
from relascope.passes.search.bisect import IMPORT, Culprits, Verdict, half_way, kept_on, search

KINDS = ("wrong", "slow", "crash", "memory")
FACTOR = 1.5
SECONDS, MEMORY = 10.0, 256.0
"""Limits of a pass itself: seconds, and MiB that stay."""
_MEASURED = ("wrong", "slow")  # only a program that runs can be so
CRASHES = ("pass", "type", "engine")
"""Kinds of errors that a pass can cause."""


_DOES = {
    "long": "is slow itself",
    "memory": "keeps memory",
    OF_TEST: "makes the test fail",
    **{kind: f"makes it {kind}" for kind in ("wrong", "slow", "crash")},
}


def does(kind: str, error: EngineError | None = None) -> str:
    """What a pass found by a search does, by `Bisection.kind` and the error, after its name."""
    return "breaks its types" if error is not None and error.kind == "type" else _DOES[kind]


@dataclass(frozen=True)
class Question:
    """A question about a pipeline. `kind` is "wrong" (over the limits of `accuracy`), "slow",
    "crash" (a pass raises, the program cannot be built or run, or the process ends), "memory"
    (stays after a pass), "bad" (by `test`, which judges the module of each try); "" for wrong or
    crash. A pass is slow if the pipeline takes more than `factor` times as long with it as without
    it, timed in turns. `runs` is how often each try runs passes, build and program: one bad run
    makes it bad. `seconds` and `memory` (MiB) are limits of a pass itself."""

    source: ModelSource
    pipeline: Pipeline
    target: str
    kind: str = ""
    factor: float = FACTOR
    threads: int = 0
    repeats: int = 10
    tolerance: Tolerance = OURS
    runs: int = 1
    seconds: float = SECONDS
    memory: float = MEMORY
    test: OwnTest | None = None


@dataclass(frozen=True)
class PassCost:
    """The cost of a pipeline's passes, the most of a question's runs: the step that took longest,
    its `seconds`, the step that kept most memory, and its bytes `kept`, as in `StepRecord`."""

    longest: int
    seconds: float
    keeper: int
    kept: int


@dataclass(frozen=True)
class Try:
    """One try. `last` is the index of the last step that was on, -1 for the import; when timed, of
    the step left out, -1 for the whole pipeline. `outcome` is "good", "wrong", "slow" (the whole
    takes too long beside it), "crash", "memory", "bad" or "cannot be run"; `worst` is the tensor
    nearest to its limit, or farthest over it, "" where none was compared. `ratio` is the whole
    pipeline's time over this try's, if timed; for the whole, the largest of these. `bad` counts the
    bad ones of all `runs`."""

    pipeline: Pipeline
    last: int
    outcome: str
    worst: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    limit: float | None = None
    ratio: float | None = None
    error: EngineError | None = None
    runs: int = 1
    bad: int = 0
    test: ScriptRun | None = None


Tell = Callable[[Try], None]


@dataclass(frozen=True)
class Bisection:
    """The result of a bisection. `kind` is the fault: "wrong", "slow" (the program), "long" (a pass
    itself), "crash", "memory" or "bad", and "" without one. `double`, if wrong
    in float32, is the smallest wrong pipeline in float64, with the node where the error first
    jumps, which distinguishes rounding from a fault; `question` is about float64 if the answer was
    found there. `taken` is the passes' cost, None for recorded ones; `also` has sentences on other
    runs with the same result, and on missing ones; see `runs_of`."""

    question: Question
    kind: str
    culprits: Culprits
    log: tuple[Try, ...]
    double: accuracy.AccuracyRow | None = None
    taken: PassCost | None = None
    against: str = PYTORCH
    also: tuple[str, ...] = ()

    @property
    def compiles(self) -> int:
        return sum(one.runs for one in self.log)


def bisect(ask: Ask, ir: str, question: Question, tell: Tell = lambda one: None) -> Bisection:
    """Find the first pass that makes a pipeline bad; see `passes.search.bisect.search` for how. Any
    exception of `ask` except EngineError ends the search, which continues if run again with an
    `ask` that remembers answers. Raises EngineError where the whole pipeline crashes and the
    question is "wrong" or "slow", or no pass can be to blame (kind "input", "target", "cancelled",
    …); or the user's own test fails."""
    if question.kind == "memory":
        return _memory(ask, question, tell)
    pipeline = question.pipeline
    if question.kind in _MEASURED:
        pipeline = accuracy.built(ir, pipeline)
    if question.kind == "slow":
        return _slow(ask, ir, question, pipeline, tell)
    return _FaultSearch(ask, ir, question, pipeline, tell).find()


class _FaultSearch:
    """Search for the pass that makes a pipeline wrong, crash, or bad by the user's own test.
    `question` becomes that of the answer: with a wider tolerance, another run, or float64."""

    def __init__(
        self, ask: Ask, ir: str, question: Question, pipeline: Pipeline, tell: Tell
    ) -> None:
        self.ask, self.ir, self.question, self.tell = ask, ir, question, tell
        self.pipeline, self.log = pipeline, list[Try]()
        self.against, self.also = PYTORCH, tuple[str, ...]()

    def run(self, part: Pipeline) -> Try:
        done = tried(self.ask, replace(self.question, pipeline=part))
        self.log.append(done)
        self.tell(done)
        return done

    def begin(self, at: Question) -> Try:
        """Try the whole pipeline, with an empty log."""
        self.log.clear()
        self.question = at
        whole = self.run(self.pipeline)
        if whole.outcome == "wrong":
            self.question = replace(at, tolerance=at.tolerance.fitted(self.ask("load", at.source)))
        return whole

    def whole(self) -> Try:
        """Try the whole pipeline; where it is good, also on other runs, or in float64."""
        whole = self.begin(self.question)
        if self.question.test is not None or whole.outcome not in ("good", "wrong"):
            return whole
        self.against = self.ask("load", self.question.source, True).against
        if whole.outcome == "wrong":
            return whole
        asked, source = self.question, self.question.source
        if self.against != PYTORCH:
            bad, self.also = elsewhere(self.ask, replace(asked, pipeline=self.pipeline))
            return whole if bad is None else self.begin(replace(asked, source=bad))
        if asked.kind in ("", "wrong") and source.dtype == DTYPES[0]:
            self.question = replace(asked, source=replace(source, dtype=DTYPES[1]))
            double = self.run(self.pipeline)  # what float32's limit hides
            if double.outcome == "wrong":
                return double
            self.question = asked
        return whole

    def find(self) -> Bisection:
        whole, question = self.whole(), self.question
        kind, error = whole.outcome, whole.error
        if error is not None and (kind != "crash" or question.kind in _MEASURED):
            raise error
        if kind == "good" or question.kind not in ("", kind):
            taken = _taken(self.ask, question) if question.test is None else None
            about = None, taken, self.against, self.also
            return Bisection(question, "", Culprits(()), tuple(self.log), *about)
        if kind == "wrong":
            self.pipeline = accuracy.built(self.ir, self.pipeline)
        kept = kept_on(self.ir, self.pipeline)
        found = search(self.pipeline, lambda part: self.judge(part, whole, kept), kept)
        if error is not None and found.suspects == (IMPORT,) and _unbuilt(error):
            raise error  # the target is at fault
        double = self.double(found, kind)
        if double is not None and double.passed and found.suspects == (IMPORT,):
            # Float32 rounds by more than the limit everywhere, which can hide a fault.
            wide = replace(question, source=replace(question.source, dtype=DTYPES[1]))
            if tried(self.ask, wide).outcome == "wrong":
                beyond = bisect(self.ask, self.ir, wide, self.tell)
                return replace(beyond, log=(*self.log, *beyond.log))
        return Bisection(question, kind, found, tuple(self.log), double, None, self.against)

    def judge(self, part: Pipeline, whole: Try, kept: Collection[int]) -> Verdict:
        if part == self.pipeline:
            return Verdict.BAD
        if self.question.test is None and half_way(self.ir, self.pipeline, part):
            return Verdict.CANNOT_RUN
        done = self.run(part)
        ours, theirs = done.error, whole.error
        if done.outcome == whole.outcome and not _lacks(self.ir, part, kept, ours, theirs):
            # An import that crashes in another way does not cause the whole pipeline's crash.
            if done.last == IMPORT and ours and theirs and ours.kind != theirs.kind:
                return Verdict.CANNOT_RUN
            return Verdict.BAD
        return Verdict.CANNOT_RUN if done.outcome in ("crash", "cannot be run") else Verdict.GOOD

    def double(self, found: Culprits, kind: str) -> accuracy.AccuracyRow | None:
        """The smallest wrong pipeline in float64; None where there is no other precision."""
        question = self.question
        single = question.source.dtype == DTYPES[0] and self.against == PYTORCH
        runs = single and not recorded.in_pipeline(question.pipeline)
        if kind != "wrong" or not runs or found.bad is None:
            return None
        source = replace(question.source, dtype=DTYPES[1])
        about = "", None, question.tolerance, question.runs
        stage = accuracy.Stage("forward", source, found.bad, *about)
        (row,) = accuracy.run(self.ask, stage, question.target)
        return row


def elsewhere(ask: Ask, question: Question) -> tuple[ModelSource | None, tuple[str, ...]]:
    """The first other run of a program that is bad; or sentences on those where it is good."""
    (others, left), good, off = runs_of(ask, question.source), list[str](), list[str]()
    for source in others:
        mixed = len({side for _, side in source.sides}) > 1
        if mixed and recorded.in_pipeline(question.pipeline):
            continue  # values may have other names in a recorded module
        done = tried(ask, replace(question, source=source))
        if done.outcome == "good":
            good.append(at_run(source))
        elif (error := unfit(ask, source, question.target)) is None:
            return source, ()
        else:
            off.append(unfit_words(source, error))
    return None, reach(good, off, left)


def _lacks(
    ir: str,
    part: Pipeline,
    kept: Collection[int],
    error: EngineError | None,
    whole: EngineError | None,
) -> bool:
    """Whether a try fails in another way than the whole: a kept step raises, most likely because
    it needs one that was switched off."""
    if error is None or whole is None or error.kind != "pass" or error.where == whole.where:
        return False
    entries = [info(ir, part.steps[i]) for i in kept if i < len(part)]
    return any(error.where.startswith((e.name, e.title)) for e in entries)


def _unbuilt(error: EngineError | None) -> bool:
    """Whether TVM could not build a program, because of its target or of a pass."""
    return error is not None and error.kind == "target" and error.message.startswith(UNBUILT)


def tried(ask: Ask, question: Question) -> Try:
    """Try the whole pipeline of a question, under the limit that its precision needs."""
    on = [i for i, step in enumerate(question.pipeline) if step.enabled]
    done = Try(question.pipeline, on[-1] if on else IMPORT, "good")
    if question.test is not None:
        return _tested(ask, question, question.test, done)
    try:
        return _checked(ask, question, done)
    except EngineError as error:
        crash = error.as_finding().kind in CRASHES or _unbuilt(error)
        return replace(done, outcome="crash" if crash else "cannot be run", error=error)


def _checked(ask: Ask, question: Question, done: Try) -> Try:
    source, runs = question.source, question.runs
    found = ask("check", BuildRequest(source, question.pipeline, question.target, runs=runs))
    limit = question.tolerance.limit(source.dtype)
    if any(map(limit.over, found)):
        limit = question.tolerance.fitted(ask("load", source)).limit(source.dtype)
    each = len(found) // runs
    bad = sum(any(map(limit.over, found[i : i + each])) for i in range(0, len(found), each))
    worst, outcome = limit.worst(found), "wrong" if bad else "good"
    errors = worst.name, worst.max_abs, worst.max_rel, limit.of(worst.name)
    return Try(done.pipeline, done.last, outcome, *errors, runs=runs, bad=bad)


def _tested(ask: Ask, question: Question, test: OwnTest, done: Try) -> Try:
    """A try that the user's own test judges, as often as the question says."""
    part, found = question.pipeline.upto(done.last), []
    for number in range(question.runs):
        try:
            before = ask("written", question.source, Pipeline())
            judged = ask("written", question.source, part, number) if len(part) else before
        except EngineError as error:
            return replace(done, outcome="cannot be run", error=error.as_finding())
        found.append(test.run(judged, before))
    bad = [run for run in found if run.verdict == OF_TEST]
    unclear = [run for run in found if run.verdict == "cannot be run"]
    worst = (bad or unclear or found)[0]
    why = None
    if worst in unclear:
        message = f"The test cannot judge the module: {worst.words}."
        why = EngineError("input", message, test.path)
    told = replace(done, outcome=worst.verdict, error=why, test=worst)
    return replace(told, runs=question.runs, bad=len(bad))


def _taken(ask: Ask, question: Question) -> PassCost | None:
    """The passes' cost; None where none ran, or none can run again."""
    if recorded.in_pipeline(question.pipeline):
        return None
    records = ask("step", question.source, question.pipeline, question.runs)
    ran = [i for i, r in enumerate(records) if r.enabled and r.error is None]
    if not ran:
        return None
    longest = max(ran, key=lambda i: records[i].seconds)
    keeper = max(ran, key=lambda i: records[i].kept_bytes)
    return PassCost(longest, records[longest].seconds, keeper, records[keeper].kept_bytes)


def _memory(ask: Ask, question: Question, tell: Tell) -> Bisection:
    taken, pipeline = _taken(ask, question), question.pipeline
    over = taken is not None and taken.kept > question.memory * MIB
    last = taken.keeper if taken is not None else IMPORT
    done = Try(pipeline, last, "memory" if over else "good", runs=question.runs)
    tell(done)
    return _of_pass(question, "memory" if over else "", last, (done,), taken)


def _of_pass(
    question: Question, kind: str, index: int, log: tuple[Try, ...], taken: PassCost | None
) -> Bisection:
    pipeline = question.pipeline
    culprits = (index,), pipeline.upto(index), pipeline.upto(index - 1)
    found = Culprits(*culprits) if kind else Culprits(())
    return Bisection(question, kind, found, log, None, taken)


def _slow(ask: Ask, ir: str, question: Question, pipeline: Pipeline, tell: Tell) -> Bisection:
    """The pass whose removal speeds the pipeline up most: all variants that can be built are timed
    in turns, in one run."""
    kept = kept_on(ir, pipeline)
    whole, variants = _to_time(ask, question, pipeline), []
    free = [i for i, step in enumerate(pipeline) if step.enabled and i not in kept]
    for index in free:
        try:
            part = _to_time(ask, question, pipeline.switched(index, False))
            variants.append(Variant(f"without {index}", part))
        except EngineError as error:
            error.as_finding()
    result = ask("time", whole, (), tuple(variants))
    # Relative to eager, which runs in the same turns: disturbances of the machine affect all.
    rows = [r for r in result.rows if r.phase == result.rows[-1].phase and r.ratio_to_eager]
    known = {r.what: rows[0].ratio_to_eager / r.ratio_to_eager for r in rows}
    paces = {i: known[what] for i in free if (what := f"{ir}, without {i}") in known}
    most = max(paces.values(), default=1.0)

    def timed(part: Pipeline, index: int, ratio: float) -> Try:
        return Try(part, index, "slow" if ratio > question.factor else "good", ratio=ratio)

    done = timed(pipeline, IMPORT, most)
    log = (done, *(timed(pipeline.switched(i, False), i, pace) for i, pace in paces.items()))
    for one in log:
        tell(one)
    taken = _taken(ask, question)
    if done.outcome == "good":
        long = taken is not None and taken.seconds > question.seconds
        index = taken.longest if taken is not None else IMPORT
        return _of_pass(question, "long" if long else "", index, log, taken)
    worst = max(paces, key=paces.__getitem__)
    found = Culprits((worst,), pipeline, pipeline.switched(worst, False))
    return Bisection(question, "slow", found, log, None, taken)


def _to_time(ask: Ask, question: Question, part: Pipeline) -> BuildRequest:
    """The request to time a pipeline's program, split where it has its gradient."""
    how = question.target, question.threads, question.repeats
    return with_cut(ask, BuildRequest(question.source, part, *how), required=False)


def verdict(ir: str, result: Bisection) -> str:
    pipeline, kind = result.question.pipeline, result.kind
    if not kind:
        said = f"Nothing to find: {_tried(result)}", *result.also, _took(ir, result)
        return " ".join(filter(None, said))
    names = [_name(ir, pipeline, i) for i in result.culprits.suspects]
    bad = next((t for t in result.log if t.pipeline == result.culprits.bad), result.log[0])
    if kind in ("long", "memory"):
        return f"{names[0]} {does(kind)}: {_too_much(result)}."
    if result.culprits.suspects == (IMPORT,):
        text = f"The imported program is at fault, before any pass: {_of(bad)}."
    elif len(names) == 1:
        text = f"{names[0]} {does(kind, bad.error)}: {_of(bad)}."
        good = next((t for t in result.log if t.pipeline == result.culprits.good), None)
        if good is not None and kind != "slow":
            text += f" Without it: {_of(good)}."
    else:
        text = f"One of {', '.join(names)} {does(kind, bad.error)}: {_of(bad)}."
        text += " The pipelines between them cannot be run alone."
    compared = kind == "wrong" and result.against != PYTORCH
    against = f"Numbers are compared with {result.against}." if compared else ""
    label = label_of(result.question.source)
    inputs = "" if label == INPUTS[0] else f"This was on {on_inputs(label)}."
    return " ".join(filter(None, (text, _rounding(result), inputs, against)))


def _tried(result: Bisection) -> str:
    """What was tried where nothing was found, as the rest of a sentence."""
    question, kind = result.question, result.question.kind
    runs = "once" if question.runs == 1 else f"{question.runs} times"
    values = f"{question.source.values} inputs" if not question.source.tensors else "saved inputs"
    on = f"on {values} (seed {question.source.seed})"
    if question.test is not None:
        return f"the test passes after the whole pipeline; it ran {runs}, with values {on}."
    if kind == "memory":
        return f"no pass left more than {question.memory:g} MiB behind; the passes ran {runs}."
    if kind == "slow":
        return (
            f"no single pass makes the program take more than {question.factor:g} times as long, "
            f"timed in {question.repeats} rounds {on}, and no pass takes longer than "
            f"{question.seconds:g} s."
        )
    if kind == "crash":
        return f"the whole pipeline does not crash, built and run {runs} {on}."
    dtypes = dict(zip((question.source.dtype, DTYPES[1]), result.log, strict=False))
    limits = [f"{t.limit:.0e} of the scale in {d}" for d, t in dtypes.items() if t.error is None]
    text = (
        f"the whole pipeline runs and agrees with {result.against} within {' and '.join(limits)}, "
        f"built and run {runs} {on}."
    )
    if recorded.in_pipeline(question.pipeline):
        text = (
            f"the last of {sum(s.enabled for s in question.pipeline)} recorded modules agrees with "
            f"the first within {' and '.join(limits)}, built and run {runs} {on}."
        )
    failed = next((t.error for t in result.log[1:] if t.error is not None), None)
    if failed is not None:
        text += f" In {DTYPES[1]} it could not be run: {failed.message.partition(chr(10))[0]}"
    return text


def _took(ir: str, result: Bisection) -> str:
    taken, pipeline = result.taken, result.question.pipeline
    if taken is None:
        return ""
    names = (_name(ir, pipeline, i).rstrip(",") for i in (taken.longest, taken.keeper))
    longest, keeper = (name.replace("Step", "step", 1) for name in names)
    memory = "no memory stayed"
    if taken.kept:
        memory = f"most memory stayed after {keeper}: {taken.kept / MIB:.1f} MiB"
    return f"The longest pass, {longest}, took {taken.seconds:.2g} s; {memory}."


def _too_much(result: Bisection) -> str:
    question, taken = result.question, result.taken
    assert taken is not None, "or no pass would be blamed for it"
    if result.kind == "long":
        return f"it took {taken.seconds:.3g} s (limit {question.seconds:g} s)"
    return f"{taken.kept / MIB:.1f} MiB stayed after it (limit {question.memory:g} MiB)"


def _name(ir: str, pipeline: Pipeline, index: int) -> str:
    if index == IMPORT:
        return "the import"
    step = pipeline.steps[index]
    return f"{'' if step.name == recorded.NAME else f'Step {index + 1}, '}{step_name(ir, step)},"


def step_name(ir: str, step: Step) -> str:
    """A step as it stands in a sentence: "fold (FoldConstant)", "Pass 7, FoldConstant"."""
    title = info(ir, step).title
    if step.name == recorded.NAME:
        return f"Pass {recorded.number_of(step)}, {title}"
    return step.name if title == step.name else f"{step.name} ({title})"


def _of(one: Try) -> str:
    if one.error is not None:
        return one.error.message.partition("\n")[0].rstrip(".")  # the rest is in the log
    if one.ratio is not None:
        return f"{one.ratio:.2f} times the time without it"
    often = f" in {one.bad} of {one.runs} runs" if one.bad else f" in all {one.runs} runs"
    if one.test is not None:
        return one.test.words + (often if one.runs > 1 else "")
    off = "right to" if one.outcome == "good" else "off by"
    of = f"{one.worst} is {off} {one.max_rel:.1e} of its scale (limit {one.limit:.0e})"
    return of + (often if one.runs > 1 else "")


def _rounding(result: Bisection) -> str:
    double = result.double
    if result.kind != "wrong":
        return ""
    if double is None:
        single = result.question.source.dtype == "float32"
        return "" if single else "This was in float64: it is wrong, not rounded."
    if double.failure is not None:
        return f"It cannot be run in float64: {double.failure.message}"
    if double.passed:
        return "It is rounding: float64 is within its limit."
    bad = double.first_bad
    where = "" if bad is None else f", first at {bad.title}{bad.within}"
    return f"It is wrong, not rounded: float64 is over its limit, too{where}."
