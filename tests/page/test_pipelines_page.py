"""TVM's own pipelines on the page: tried line by line, beside what an engine's process survives."""

from unittest.mock import Mock

import pytest
import streamlit as st

from engines import shared
from faulty_session import FATAL_FUSE, SLOW_FUSE
from page import press, settle, training, whole_page, words
from relascope.commands import text
from relascope.core.errors import EngineError
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.source import ModelSource
from relascope.passes.pipeline import TvmPipelines
from relascope.viz.panels.shell import tab_engines
from relascope.viz.panels.shell.request_cache import RequestCache, Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.steps.tvm_pipelines import PipelineTries
from relascope.viz.rows.gate import pipelines as rows

NAMES = ["default", "tvm:O0", "tvm:O3", "tvm:O3|-FuseOps", "DeadCodeElimination|tvm:O0"]


@pytest.fixture
def passes(monkeypatch):
    client = shared("relay", "faulty_session:FaultySession")
    monkeypatch.setattr(tab_engines, "EngineClient", lambda ir: client)
    st.cache_resource.clear()

    def open_(seed):
        page = whole_page()
        page.session_state["keep_tab"], page.session_state["keep_seed"] = "Passes", seed
        return settle(page.run())

    yield open_
    client.stop()


def said(page):
    """What the page says, without the signs of Markdown."""
    return " ".join(words(page).replace("\\", "").replace("`", "").split())


def lines(page):
    (found,) = [d.value for d in page.dataframe if "result" in d.value]
    assert list(found.columns) == ["pipeline", "result", "seconds"]
    return dict(zip(found["pipeline"], found["result"], strict=True))


def test_every_pipeline_has_a_line_and_silence_is_no_verdict_before(passes):
    page = passes(0)
    assert "Every pipeline matches." not in words(page)
    press(page, "tvm_pipelines_button")
    assert lines(page) == dict.fromkeys(NAMES, "match")
    assert "Every pipeline matches." in words(page)
    training(page)
    assert not [b for b in page.button if b.key == "tvm_pipelines_button"]


def test_a_pipeline_that_ends_the_process_is_a_line_like_others(passes):
    page = press(passes(FATAL_FUSE), "tvm_pipelines_button")
    found = lines(page)
    assert list(found) == NAMES
    assert [n for n, result in found.items() if result == "match"] == ["default", NAMES[3]]
    assert set(found.values()) == {"match", "crash"}
    assert "tvm:O3: first bad pass: FuseOps." in said(page)
    assert "tvm:O3 matches without FuseOps." in said(page)
    assert page.button(key="bisect_button"), "the rest of the tab is there"


def test_what_is_stopped_keeps_its_lines_and_goes_on_from_there(passes):
    page = passes(SLOW_FUSE)
    page.button(key="tvm_pipelines_button").click()
    page.run()
    press(page, "canceltvm_pipelines")
    assert lines(page) == {"default": "match"}
    assert any("ancelled" in i.value for i in page.info)
    page.button(key="tvm_pipelines_button").click()
    page.run()
    assert "1 of 5 tried" in said(page)
    page.button(key="canceltvm_pipelines").click()
    assert lines(settle(page.run())) == {"default": "match"}


class Mortal:
    """A client whose process has ended the first time that a pipeline is tried."""

    best, against = "llvm", "PyTorch"

    def __init__(self):
        self.checks = 0

    def submit(self, method, *args):
        if method != "check":
            known = {"pipelines": TvmPipelines({"O0": "FuseOps"}), "step": ()}
            return self.done(known.get(method, self))
        self.checks += 1
        died = EngineError("engine", "The process has ended.")
        right = (Comparison("y", 0.0, 0.0, 1.0, "float32"),)
        return self.done(died if self.checks == 1 else right)

    def done(self, outcome):
        """A job that is; an error is raised."""
        return Mock(done=True, progress=(0.0, ""), result=Mock(side_effect=[outcome]))

    def close(self):
        pass


def test_what_ended_from_outside_is_tried_once_more_and_leaves_no_answer_behind():
    cache = RequestCache(Mortal())
    source = ModelSource("mlp", dtype="float64")
    tries = PipelineTries(Screen("relay", source, "mlp", None, 0, cache))
    with pytest.raises(Waiting):
        tries.go_on()
    tries.go_on()
    assert not tries.going and len(tries.lines) == len(tries.tasks)
    document = rows.document(tries.lines, [t.key for t in tries.tasks], failing=True)
    assert {r["result"] for r in document["rows"]} == {"match"}
    assert not cache._answers
    about = {"model": "mlp", "engine": "relay", "against": "PyTorch"}
    assert text.pipelines({**document, **about}).endswith("\n\nEvery pipeline matches.")
