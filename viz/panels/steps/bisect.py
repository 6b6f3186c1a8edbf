"""In the tab "Passes": a button that finds the pass that breaks the pipeline, with its result; and
one that narrows the fault inside that pass, with the report to download."""

import shlex
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.jobs import bisect, reduce
from relascope.engine.jobs.accuracy import Tolerance
from relascope.engine.protocol.fault import Report
from relascope.passes.catalogue import recorded
from relascope.viz.component.views import graph_view
from relascope.viz.drawing.drawing import View
from relascope.viz.handed_on.fault import with_page
from relascope.viz.panels.shell import noting
from relascope.viz.panels.shell.frame import boundary, download, one_of, plain_text
from relascope.viz.panels.shell.holding import ask, pressed
from relascope.viz.panels.shell.request_cache import Request, RequestCache, Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import show_sections
from relascope.viz.rows import fault, tables
from relascope.viz.rows.script import arguments, training_arguments
from relascope.viz.sessions import results

_WISHES = {"wrong or crashing": "", "slow": "slow", "keeping memory": "memory"}


@dataclass
class BisectSearch:
    """A search so far: tries, the result once found, and why it waits or was given up."""

    log: list[bisect.Try] = field(default_factory=list)
    result: bisect.Bisection | None = None
    problem: Waiting | EngineError | None = None

    @property
    def blamed(self) -> dict[int, str]:
        """By index, a sentence for each step to blame."""
        if self.result is None:
            return {}
        found = self.result.culprits.suspects
        words = bisect.does(self.result.kind, self.result.log[0].error) if found else ""
        return {i: f"This step {words}." if len(found) == 1 else "Suspected." for i in found}


def search(screen: Screen) -> BisectSearch | None:
    """Continue the requested search of this pipeline; the request cache has the answers so far."""
    asked: bisect.Question | None = st.session_state.get("bisect")
    if asked is None or (asked.source, asked.pipeline) != (screen.source, screen.pipeline):
        return None
    found = BisectSearch()
    try:
        question = replace(asked, target=screen.cache.ask("describe").best)
        found.result = bisect.bisect(screen.cache.ask, screen.ir, question, found.log.append)
    except (Waiting, EngineError) as problem:
        found.problem = problem
    return found


def show(screen: Screen, search: BisectSearch | None) -> None:
    """Draw the button and, for a search, its tries as they come and its result."""
    # Timing needs pipelines without a pass, which recorded passes do not have.
    timed = not recorded.in_pipeline(screen.pipeline)
    wish = _wish([w for w, kind in _WISHES.items() if timed or not kind])
    about = "Builds parts of the pipeline and compares their results, halving each time, until "
    about += "the first bad pass is found."
    if pressed("Find the pass that breaks it", "bisect_button", width="stretch", help=about):
        screen.cache.forget_errors()
        st.session_state.bisect = bisect.Question(screen.source, screen.pipeline, "", **wish)
        st.rerun()
    if search is None:
        noting.show_kept(screen, "bisection")
        return
    tried = tables.tries_table(tables.try_row(screen.pipeline, one) for one in search.log)
    show_sections([tried], "bisect")
    with boundary(screen.cache, asked="bisect"):
        if search.problem is not None:
            raise search.problem
    if search.result is not None:
        noting.note_result(screen, "bisection", results.saved_search(screen.ir, search.result))
        say = st.error if search.result.kind else st.success
        say(plain_text(bisect.verdict(screen.ir, search.result)))
        _reduction(screen, search.result)


def _wish(wishes: list[str]) -> dict[str, Any]:
    """Draw the choice of what to look for; fields of an `engine.jobs.bisect.Question`."""
    wish = ask(st.selectbox, "Look for what is", wishes, key="keep_bisect_kind")
    kind = _WISHES[wish or wishes[0]]
    *places, right = st.columns(len(_LIMITS[kind]) + 1, vertical_alignment="bottom")
    found: dict[str, Any] = {"kind": kind}
    for place, (name, label, least, value, about) in zip(places, _LIMITS[kind], strict=True):
        key, shown = f"keep_bisect_{name}", {"format": "%g", "help": about}
        found[name] = ask(place.number_input, label, least, value=value, key=key, **shown)
    if not kind:
        found["tolerance"] = Tolerance(found.pop("rtol") or None)
    about = "How often each try runs the passes, builds and runs the program. One bad run makes "
    about += "it bad, which finds passes that break only some runs."
    runs = {"key": "keep_bisect_runs", "help": about}
    return {**found, "runs": ask(right.number_input, "runs", min_value=1, value=1, **runs)}


_LIMITS: dict[str, list[tuple[str, str, float, float, str]]] = {
    "": [
        (
            *("rtol", "tolerance", 0.0, 0.0),
            "How far a result may be off, relative to its scale; raise it to find a fault behind "
            "permitted rounding. 0 takes the accuracy report's limits.",
        )
    ],
    "slow": [
        (
            *("factor", "times the time without a pass", 0.1, bisect.FACTOR),
            "A pass is slow if the pipeline takes more than this many times as long with it as "
            "without it, timed in turns.",
        ),
        (
            *("seconds", "seconds of a pass", 0.0, bisect.SECONDS),
            "A pass that itself runs longer than this many seconds is slow, too.",
        ),
    ],
    "memory": [
        (
            *("memory", "MiB of a pass", 0.0, bisect.MEMORY),
            "A pass keeps memory if more than this many MiB stay in the engine when it is done, "
            "not counting new constants.",
        )
    ],
}
"""The fields of a question, by its kind: label, minimum, default and help."""

_BEFORE, _AFTER = "before the pass", "after the pass"


@dataclass
class _ReduceQuestion:
    """A requested search, which keeps more of the engine's answers than the request cache."""

    question: bisect.Question
    answers: dict[Request, Any] = field(default_factory=dict)

    def ask(self, cache: RequestCache, method: str, *arguments: Any) -> Any:
        request = Request(method, arguments)
        if request not in self.answers:
            try:
                self.answers[request] = cache.ask(method, *arguments)
            except EngineError as error:
                if error.kind != "engine":  # only the end of a process is an answer
                    raise
                self.answers[request] = error
        answer = self.answers[request]
        if isinstance(answer, EngineError):
            raise answer
        return answer


def _reduction(screen: Screen, found: bisect.Bisection) -> None:
    """Draw the button and, once pressed, the pieces as they are tried and the report."""
    if reduce.cannot(found):
        return
    about = "Narrows the fault inside the pass to the smallest piece of its input program that "
    about += "still shows it, and writes a report that runs by itself."
    if pressed("Reduce", "reduce_button", width="stretch", help=about):
        screen.cache.forget_errors()
        st.session_state.reduce = _ReduceQuestion(found.question)
        st.rerun()
    asked: _ReduceQuestion | None = st.session_state.get("reduce")
    if asked is None or asked.question != found.question:
        return
    log: list[reduce.PieceTry] = []
    ask, limits = partial(asked.ask, screen.cache), screen.cache.client.limits
    source, kind = found.question.source, found.question.kind
    model = [*arguments(source, screen.label), "--engine", screen.ir, *training_arguments(source)]
    wish = ["--kind", kind] if kind else []
    line = ["reduce", *model, "--passes", str(found.question.pipeline), *wish, "--out", "report"]
    command = shlex.join(["relascope", *line])
    with boundary(screen.cache, asked="reduce"):
        try:
            made = reduce.narrow(ask, screen.ir, found, log.append, limits=limits, command=command)
        finally:
            show_sections([fault.pieces_table(map(fault.piece_row, log))], "reduce")
        _reduced(screen, made)


def _reduced(screen: Screen, made: reduce.Reduction) -> None:
    say = st.warning if made.report is None else st.info
    say(plain_text(reduce.verdict(screen.ir, made)))
    report = made.report
    if report is None:
        return
    _program(screen, report)
    folder = f"report_{screen.ir}_{made.where.pipeline.steps[made.where.last].name}"
    of = made.bisection.question, made.piece
    data = screen.cache.derive(lambda: fault.zipped(with_page(report), folder), "report", *of)
    about = "A folder with README.md to paste into an issue tracker, the same as a page, and "
    about += "report.py, which reproduces the fault by itself."
    file, how = f"{folder}.zip", {"width": "stretch", "help": about}
    download("Download the report", data, file, "reduce_download", **how)


def _program(screen: Screen, report: Report) -> None:
    """The small program, as a graph and as text, before the pass or after it."""
    after = report.graph_after
    sides = [_BEFORE] if after is None else [_BEFORE, _AFTER]
    side = one_of("The small program", sides, "reduce_side")
    graph = after if side == _AFTER and after is not None else report.graph_before
    added = dict.fromkeys(graph.by_id.keys() - report.graph_before.by_id.keys(), "added")
    below, family = screen.fewer_than, f"reduced {report.title}"
    look = View(340, below, highlight=added, details=False, family=family)
    graph_view(graph, look, key="reduce_view")
    st.code(report.after if side == _AFTER else report.before, language="python", wrap_lines=True)
