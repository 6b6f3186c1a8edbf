"""Narrow inside the pass that bisection found: the smallest piece that still shows the fault.

Each piece of `passes.search.reduce` is one question, so a piece may end the engine's process. Knows
no TVM."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from relascope.core.errors import EngineError, alike
from relascope.core.graph import Graph
from relascope.engine.jobs.bisect import FACTOR, Bisection, step_name
from relascope.engine.jobs.bisect import verdict as verdict_of_pass
from relascope.engine.jobs.own_test import OwnTest
from relascope.engine.jobs.runs import label_of, on_inputs
from relascope.engine.limits import MIB, NO_LIMITS, Limits, limit_crossed
from relascope.engine.protocol.fault import (
    OF_PASS,
    OF_TEST,
    Account,
    PieceResult,
    Report,
    Suspects,
    Suspicion,
)
from relascope.engine.protocol.session import Ask
from relascope.engine.protocol.source import INPUTS, ModelSource
from relascope.passes.catalogue import last_built, recorded
from relascope.passes.search.bisect import IMPORT, Verdict
from relascope.passes.search.reduce import MOST, Piece, PieceVerdict, operators, reduce, whole


@dataclass(frozen=True)
class PieceTry:
    nodes: int
    outputs: int
    shown: PieceResult


@dataclass(frozen=True)
class Reduction:
    """The result of narrowing. `source` is the model as it ran, in float64 where the fault shows
    there; `where` has the suspected passes of the last question; `piece` is the smallest that shows
    the fault, None where the whole program does not, and `operators` are those that it calls, in
    order. `minimal` says whether the fault goes away without any one of its nodes."""

    bisection: Bisection
    source: ModelSource
    where: Suspicion
    total: int
    log: tuple[PieceTry, ...]
    piece: Piece | None = None
    shown: PieceResult | None = None
    operators: tuple[str, ...] = ()
    minimal: bool = False
    report: Report | None = None


def narrow(
    ask: Ask,
    ir: str,
    bisection: Bisection,
    tell: Callable[[PieceTry], None] = lambda one: None,
    most: int = MOST,
    limits: Limits = NO_LIMITS,
    command: str = "",
) -> Reduction:
    """Narrow the fault that a bisection found to a small piece of the program before the pass.
    `ask` asks the engine; see `engine.jobs.bisect.bisect`. Tries `most` pieces at most, the whole
    program included. `limits` are the engine's, for the report of a fault that crosses one;
    `command` was run, or would do the same. Raises EngineError of kind "usage" where there is
    nothing to narrow, see `cannot`, and others where the program before the pass cannot be run."""
    source, where = _start(bisection)
    test, good = bisection.question.test, bisection.culprits.good
    search = _ReduceSearch(ask, source, tell, test, good is not None and where.last >= 0)
    graph, near, shows = search.begin(ir, where)
    total = len(whole(graph).nodes)
    if shows is None:
        return Reduction(bisection, source, where, total, tuple(search.log))
    where = shows
    found = reduce(graph, lambda piece: search.look(where, piece), near, most)
    assert found.piece is not None, "the whole shows the fault, or there would be no question"
    shown, named = search.results[found.piece], tuple(operators(graph, found.piece))
    about = bisection, source, where, total, tuple(search.log), found.piece, shown
    made = Reduction(*about, named, found.minimal)
    words = search_words(made, len(named))
    allowed = limits.seconds, limits.memory
    script = "" if test is None else f"test{Path(test.path).suffix}"
    told = script, verdict_of_pass(ir, bisection), command
    account = Account(Path(source.model).name, shown, words, found.minimal, *allowed, *told)
    report: Report = ask("report", source, where, found.piece, account)
    if test is not None:
        report = replace(report, files={**report.files, script: Path(test.path).read_bytes()})
    return replace(made, report=report)


def cannot(bisection: Bisection) -> str:
    """Why there is nothing to narrow, in a sentence; "" where there is."""
    if not bisection.kind:
        return "There is no fault to narrow: bisection found none."
    imported = set(bisection.culprits.suspects) <= {IMPORT} and bisection.question.test is None
    if bisection.culprits.bad is None or imported:
        return (
            "The imported program is at fault, before any pass: there is no pass to narrow. "
            "`relascope check` shows which node goes wrong first."
        )
    return ""


def _start(bisection: Bisection) -> tuple[ModelSource, Suspicion]:
    question, found = bisection.question, bisection.culprits
    steps = [i for i in found.suspects if i != IMPORT]
    if cannot(bisection):
        raise EngineError("usage", cannot(bisection), "bisection")
    assert found.bad is not None, "or there would be nothing to narrow"
    source = question.source
    double = bisection.double
    off = double is not None and not double.passed and double.failure is None
    if bisection.kind == "wrong" and off:
        source = replace(source, dtype="float64")  # where rounding cannot look like a fault
    wrong = question.tolerance.limit(source.dtype).outputs
    taken = bisection.taken
    limit = {"wrong": wrong, "slow": _slow(bisection), "crash": 0.0, OF_TEST: 0.0}
    if taken is not None:  # the geometric mean of the question's limit and the whole's cost
        limit["long"] = math.sqrt(question.seconds * max(question.seconds, taken.seconds))
        limit["memory"] = MIB * math.sqrt(question.memory * max(question.memory, taken.kept / MIB))
    # Options of this machine (its processor, its libraries) are left out of a report.
    target = question.target.split()[0]
    first, last = (steps[0], steps[-1]) if steps else (0, IMPORT)  # or the import as it is
    about = found.bad, first, last, bisection.kind, target, limit[bisection.kind]
    absolute = question.tolerance.absolute if bisection.kind == "wrong" else 0.0
    return source, Suspicion(*about, absolute=absolute, runs=question.runs)


def _slow(bisection: Bisection) -> float:
    """The ratio of times that shows the fault: the square root of the whole's, at most a
    bisection's factor."""
    bad = max((t.ratio for t in bisection.log if t.ratio), default=None)
    return min(FACTOR, max(1.1, math.sqrt(bad))) if bad else FACTOR


@dataclass
class _ReduceSearch:
    ask: Ask
    source: ModelSource
    tell: Callable[[PieceTry], None]
    test: OwnTest | None = None
    from_good: bool = False  # whether the test must call a piece good before the passes
    log: list[PieceTry] = field(default_factory=list)
    first: PieceResult | None = None
    results: dict[Piece, PieceResult] = field(default_factory=dict)

    def begin(self, ir: str, where: Suspicion) -> tuple[Graph, tuple[str, ...], Suspicion | None]:
        """The graph, where to look first, and the question under which the whole shows the fault.
        If the passes themselves crash, nothing is built. If TVM's build crashes without them, too,
        operators are built one by one. If the fault does not show after the suspects, the steps
        after them run, too."""
        unbuilt, built = (replace(where, building=b) for b in (False, True))
        ways = {
            "crash": (unbuilt, built, replace(built, plain=True)),
            OF_TEST: (built, unbuilt),
        }.get(where.kind, (unbuilt if where.kind in OF_PASS else built,))
        has_tail = last_built(ir, where.pipeline) > where.last and where.kind not in OF_PASS
        for way, tail in itertools.product(ways, (False, True) if has_tail else (False,)):
            asked = replace(way, tail=tail)
            try:
                start: Suspects = self.ask("suspects", self.source, asked)
            except EngineError as death:
                if where.kind != OF_TEST or not asked.building or death.kind != "engine":
                    raise
                continue  # it cannot run here: values inside will be random
            piece = whole(start.graph)
            if not piece.outputs:
                return start.graph, (), None
            if self.look(asked, piece).verdict is Verdict.BAD:
                return start.graph, start.near, asked
            if self.log[-1].shown.outcome == "refused":
                break
        return start.graph, (), None

    def look(self, where: Suspicion, piece: Piece) -> PieceVerdict:
        if self.first is not None and self.results.get(piece) is self.first:  # the whole, again
            return PieceVerdict(Verdict.BAD, self.first.outputs)
        shown = self._shown(where, piece)
        done = PieceTry(len(piece.nodes), len(piece.outputs), shown)
        self.log.append(done)
        self.tell(done)
        if shown.outcome == where.kind and self._same(shown):
            self.first = self.first or shown
            self.results[piece] = shown
            return PieceVerdict(Verdict.BAD, shown.outputs)
        return PieceVerdict(Verdict.GOOD if shown.outcome == "good" else Verdict.CANNOT_RUN)

    def _shown(self, where: Suspicion, piece: Piece) -> PieceResult:
        if self.test is not None:
            for _ in range(where.runs):
                shown = self._tested(self.test, where, piece)
                if shown.outcome != "good":
                    break
            return shown
        try:
            answer: PieceResult = self.ask("narrow", self.source, where, piece)
        except EngineError as death:
            if death.kind != "engine":
                raise
            ended = PieceResult("crash", error=death, crash=limit_crossed(death) or "ends")
            if not (where.building or where.tail):
                return ended
            # Do the passes end the process, or can the piece not be run at all?
            try:
                self.ask("narrow", self.source, where, piece, True)
            except EngineError as other:
                if other.kind != "engine":
                    raise
                return PieceResult("cannot be run", error=other)
            return ended
        return answer

    def _tested(self, test: OwnTest, where: Suspicion, piece: Piece) -> PieceResult:
        """The user's own test: bad after the passes and, if the whole is, good before them."""
        try:
            files = self.ask("written_piece", self.source, where, piece)
        except EngineError as error:
            return PieceResult("cannot be run", error=error.as_finding())
        run = test.run(files["module"], files["before"])
        if run.verdict == OF_TEST and self.from_good:
            ahead = test.run(files["before"], files["before"])
            if ahead.verdict != "good":
                outcome = "bad before" if ahead.verdict == OF_TEST else ahead.verdict
                return PieceResult(outcome, test=ahead)
        return PieceResult(run.verdict, test=run)

    def _same(self, shown: PieceResult) -> bool:
        """Whether an error is the whole program's, except for numbers in it."""
        if self.first is None or shown.error is None or self.first.error is None:
            return True
        same = alike(shown.error.message, self.first.error.message)
        return shown.crash == self.first.crash and same


def search_words(result: Reduction, count: int) -> str:
    question = result.bisection.question
    size = f"{count} operator{'s' if count != 1 else ''}"
    left = len(result.piece.nodes) if result.piece else 0
    label = label_of(question.source)
    what = (
        f"the pipeline `{question.pipeline}` on the model {Path(question.source.model).name}"
        f"{' in training' if question.source.training else ''}"
        f"{f' on {on_inputs(label)}' if label != INPUTS[0] else ''}"
    )
    if recorded.in_pipeline(question.pipeline):
        what = "a recorded compile"
    before = " before it" if result.where.last >= 0 else ""
    text = (
        f"In {what}, bisection found {'the pass' if before else 'the import'} in "
        f"{result.bisection.compiles} compiles. Of the {result.total} nodes that the program"
        f"{before} computes, {left} {'is' if left == 1 else 'are'} left ({size}), after "
        f"{len(result.log)} {'try' if len(result.log) == 1 else 'tries'}."
    )
    if len(result.log) == 1 and left > 1:
        return f"{text} No smaller part of it was tried."
    if result.minimal:
        return f"{text} Without any one of them, the fault does not show."
    return f"{text} The search stopped there; fewer may show the fault."


def verdict(ir: str, result: Reduction) -> str:
    suspected = result.where.pipeline.steps[result.where.first : result.where.last + 1]
    steps = [step_name(ir, s) for s in suspected if s.enabled]
    names = ", ".join(steps) or "The imported program"
    refused = [t.shown.error for t in result.log if t.shown.outcome == "refused"]
    if result.piece is None and refused and refused[0] is not None:
        return (
            f"{names}: relascope refuses this program before it runs the pass, so the pass has no "
            f"fault to report. {refused[0].message} {refused[0].hint}".rstrip()
        )
    if result.piece is None or result.shown is None:
        failed = next((t.shown for t in result.log if t.shown.error is not None), None)
        return (
            f"The fault cannot be narrowed inside {names}: the programs before and after the pass "
            f"alone do not show it{f' ({_of(failed)})' if failed else ''}. It needs the whole "
            "pipeline that bisection found."
        )
    count = len(result.piece.nodes)
    size = f"{count} of the {result.total} nodes" if count < result.total else "the whole program"
    text = f"{names}: the fault shows with {size}{' before it' if steps else ''}"
    listed = ", ".join(result.operators[:6]) + (", …" if len(result.operators) > 6 else "")
    text += f" ({listed}): {_of(result.shown)}."
    if count == result.total and count > 1:
        text += " No smaller part was found that shows it."
    elif not result.minimal and count > 1:
        text += " The tries were used up; fewer nodes may show it."
    return f"{text} {len(result.log)} tries."


def _of(shown: PieceResult) -> str:
    if shown.error is not None:
        return shown.error.message.partition("\n")[0].rstrip(".")
    if shown.test is not None:
        return shown.test.words
    if shown.outcome == "memory":
        return f"{(shown.kept_bytes or 0) / MIB:.1f} MiB stay"
    if shown.seconds is not None:
        return f"the pass takes {shown.seconds:.3g} s"
    if shown.ratio is not None:
        return f"it takes {shown.ratio:.2f} times as long as before"
    return f"off by {shown.max_rel:.1e} of the scale"
