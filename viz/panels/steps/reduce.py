"""In the tab "Passes", below a bisection: a button that narrows the fault inside the pass it found,
the small program before and after the pass, and the report to download."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.jobs import reduce
from relascope.engine.jobs.bisect import Bisection, Question
from relascope.engine.jobs.reduce import PieceTry, Reduction
from relascope.engine.protocol.fault import Report
from relascope.viz.component import graph_view
from relascope.viz.drawing.drawing import View
from relascope.viz.panels.shell.frame import boundary, download, one_of, plain_text
from relascope.viz.panels.shell.holding import pressed
from relascope.viz.panels.shell.request_cache import Request, RequestCache
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.table import show_sections
from relascope.viz.rows import fault

_BEFORE, _AFTER = "before the pass", "after the pass"


@dataclass
class _ReduceQuestion:
    """A search that was asked for; it keeps more of the engine's answers than the request cache."""

    question: Question
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


def show(screen: Screen, found: Bisection) -> None:
    """Draw the button and, once it is pressed, the pieces as they are tried and the report."""
    if reduce.cannot(found):
        return
    if pressed(
        "Reduce",
        "reduce_button",
        width="stretch",
        help="Narrows the fault inside the pass: to the smallest piece of the program before it "
        "that still shows it, saved as a report that runs by itself.",
    ):
        screen.cache.forget_errors()
        st.session_state.reduce = _ReduceQuestion(found.question)
        st.rerun()
    asked: _ReduceQuestion | None = st.session_state.get("reduce")
    if asked is None or asked.question != found.question:
        return
    log: list[PieceTry] = []
    ask, limits = partial(asked.ask, screen.cache), screen.cache.client.limits
    with boundary(screen.cache, asked="reduce"):
        try:
            made = reduce.narrow(ask, screen.ir, found, log.append, limits=limits)
        finally:
            show_sections([fault.pieces_table(map(fault.piece_row, log))], "reduce")
        _result(screen, made)


def _result(screen: Screen, made: Reduction) -> None:
    say = st.warning if made.report is None else st.info
    say(plain_text(reduce.verdict(screen.ir, made)))
    report = made.report
    if report is None:
        return
    _program(screen, report)
    step = made.where.pipeline.steps[made.where.last]
    folder = f"report_{screen.ir}_{step.name}"
    packed = screen.cache.derive(
        lambda: fault.zipped(report, folder), "report", made.bisection.question, made.piece
    )
    download(
        "Download the report",
        packed,
        f"{folder}.zip",
        "reduce_download",
        width="stretch",
        help="A folder with README.md, shaped like a bug report, and report.py, which shows the "
        "fault by itself.",
    )


def _program(screen: Screen, report: Report) -> None:
    """The small program, as a graph and as text, before the pass or after it."""
    after = report.graph_after
    sides = [_BEFORE] if after is None else [_BEFORE, _AFTER]
    side = one_of("The small program", sides, "reduce_side")
    graph = after if side == _AFTER and after is not None else report.graph_before
    here, there = graph.by_id, report.graph_before.by_id
    added = dict.fromkeys(here.keys() - there.keys(), "added") if side == _AFTER else {}
    graph_view(
        graph,
        View(
            340, screen.fewer_than, highlight=added, details=False, family=f"reduced {report.title}"
        ),
        key="reduce_view",
    )
    st.code(report.after if side == _AFTER else report.before, language="python", wrap_lines=True)
