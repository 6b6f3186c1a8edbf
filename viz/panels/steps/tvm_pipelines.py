"""In the tab "Passes": a button that tries each of TVM's own pipelines, and the results."""

import time
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.jobs import bulk
from relascope.engine.limits import limit_crossed
from relascope.passes.catalogue import default_pipeline
from relascope.viz.panels.shell.frame import heading, show_error, waiting
from relascope.viz.panels.shell.holding import pressed
from relascope.viz.panels.shell.request_cache import PATIENCE, Request, Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.tab_engines import page_limits
from relascope.viz.panels.shell.table import grid, show_sections
from relascope.viz.panels.steps.step_list import take
from relascope.viz.rows.gate import pipelines as rows

_KEY = "tvm_pipelines"


@dataclass
class PipelineTries:
    """A model through TVM's pipelines, as far as tried, kept between runs of the page."""

    screen: Screen
    going: bool = True  # and trying more
    tasks: list[bulk.Task] = field(default_factory=list)  # all, once the engine has listed them
    lines: list[bulk.Row] = field(default_factory=list)  # of the first ones
    began: float = 0.0  # the next try, by `time.monotonic`
    asked: set[Request] = field(default_factory=set)  # for the next try
    died: set[Request] = field(default_factory=set)  # of these, with the engine's process

    def go_on(self) -> None:
        """Try more; raises as `RequestCache.ask`."""
        screen, until = self.screen, time.monotonic() + PATIENCE

        def ask(method: str, *arguments: Any) -> Any:
            request, cache = Request(method, arguments), screen.cache
            if not cache.has(method, *arguments):
                self.asked.add(request)
            try:
                return cache.ask(method, *arguments, patience=until - time.monotonic())
            except EngineError as error:  # as in `bulk.run_task`, which does not know the cache
                if error.kind != "engine" or limit_crossed(error) or request in self.died:
                    raise
                self.died.add(request)
                cache.forget(method, *arguments)
                raise Waiting(request) from error

        if not self.tasks:
            ours = "default", default_pipeline(screen.ir, False), ask("describe").best
            task = bulk.Task(screen.ir, screen.label, screen.source, *ours)
            self.tasks = [*bulk.through_tvms(task, ask("pipelines"))]
        for task in self.tasks[len(self.lines) :]:
            self.began = self.began or time.monotonic()
            row = bulk.run_task(ask, task)
            self.lines.append({**row, "seconds": round(time.monotonic() - self.began, 2)})
            for request in self.asked:  # to make room in the cache for other tabs' answers
                screen.cache.forget(request.method, *request.arguments)
            self.began, self.asked, self.died = 0.0, set(), set()
        self.going = False


def button(screen: Screen) -> PipelineTries | None:
    """Draw the button and return the tries; not in training, because TVM's have no gradient."""
    if screen.training:
        return None
    tries: PipelineTries | None = st.session_state.get(_KEY)
    if tries is None or (tries.screen.ir, tries.screen.source) != (screen.ir, screen.source):
        tries = PipelineTries(screen, going=False)
    about = "Builds the model with each of TVM's own pipelines and compares the results: with "
    about += (
        "each as it is, with the last one without each of its passes, and with each other pass "
    )
    about += "before the first one. Click a row to load its pipeline into the list."
    if pressed("Try TVM's pipelines", f"{_KEY}_button", width="stretch", help=about):
        screen.cache.forget_errors()
        complete = len(tries.lines) == len(tries.tasks)
        left = replace(tries, going=True, began=0.0, died=set())
        st.session_state[_KEY] = PipelineTries(screen) if complete else left
        st.rerun()
    if tries.going:
        _go_on(tries)
    if tries.lines:
        count = f"{len(tries.lines)} of {len(tries.tasks)} tried"
        st.caption(f"{count}; the table is below the graph.")
    return tries if tries.lines else None


def show(tries: PipelineTries) -> None:
    """Draw the tries so far, and the passes to blame."""
    tasks = tries.tasks
    document = rows.document(tries.lines, {t.key for t in tasks if t.search}, False)
    lines, *said = rows.sections(document, len(tries.lines) == len(tasks))

    def pick(row: int | None) -> None:
        if row is not None:
            take(tries.screen, tasks[row].pipeline, len(tasks[row].pipeline) - 1)

    heading("TVM's pipelines")
    grid(lines["rows"], key=f"{_KEY}_table", on_pick=pick, wide={"pipeline": 250, "seconds": 80})
    show_sections(said, _KEY)


def _go_on(tries: PipelineTries) -> None:
    cache, usual = tries.screen.cache, page_limits()
    try:
        tries.go_on()
    except EngineError as error:
        tries.going = False
        show_error(error)
    except Waiting:
        waiting(cache, _KEY)
    if cache.running is not None and cache.running.request in tries.asked:
        usual = replace(usual, seconds=min(usual.seconds or bulk.LONGEST, bulk.LONGEST))
    cache.client.limit(usual)
