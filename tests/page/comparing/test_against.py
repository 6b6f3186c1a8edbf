"""The page held against something else, without a browser: recordings, pipelines, sessions."""

import pytest

from crafted.recorded import recorded
from page import put, settle, whole_page, words
from relascope.engine.protocol.source import file_digest
from relascope.viz.panels.shell import keeping
from relascope.viz.sessions import store
from relascope.viz.sessions.state import ModelChoice, ScreenState, Session


def run(page):
    return settle(page.run())


def opened(**state):
    page = whole_page()
    for key, value in state.items():
        page.session_state[key] = value
    return run(page)


def kept(path, ident="other", look=Session.look):
    digest = file_digest(path)
    store.keep_model(str(path), digest)
    store.put(ident, Session(model=ModelChoice(path.name, digest), look=look), path.name)
    return ident


@pytest.fixture
def beside(clients, monkeypatch, tmp_path):
    monkeypatch.setenv(keeping.OPEN, str(recorded(tmp_path / "a.rsc")))
    ident = kept(recorded(tmp_path / "b.rsc", passes=2, code="store"))
    return opened(
        keep_recorded_tab="Side by side", keep_against="session", keep_against_session=ident
    )


def test_two_recordings_need_no_engine_and_say_where_they_part(beside, clients):
    assert not clients
    said = words(beside)
    assert "A: a.rsc" in said and "B: b.rsc" in said
    (steps,) = (d.value for d in beside.dataframe if "what differs" in d.value)
    assert list(steps["pass"]) == ["tir.Pass1", "tir.Pass0"]
    assert list(steps["what differs"]) == ["only B", "parts here, only B"]
    beside.session_state["against_steps"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    assert "After tir.Pass1, as chosen above" in words(run(beside))
    beside.session_state["keep_against_all_steps"] = True  # in which the first row is another
    assert "as chosen above" not in words(run(beside))
    page = operators(beside)
    assert "Both call the same" in words(page)
    ids = [b.proto.id for b in page.get("bidi_component")]
    assert sum("against_view" in i for i in ids) == 2


def operators(page):
    page.session_state["keep_against_table"] = "Operators"
    return run(page)


def test_what_it_is_held_against_is_there_after_a_reload(beside):
    query = dict(beside.query_params)
    again = whole_page()
    again.query_params.update(query)
    run(again)
    assert "B: b.rsc" in words(again)
    store.delete("other")
    again = whole_page()
    again.query_params.update(query)
    assert "There is no other session" in words(run(again))


def test_two_pipelines_of_one_model_and_another_sample_in_the_other_ir(clients):
    page = opened(keep_model="mlp", ir="relay", keep_tab="Side by side", keep_against="pipeline")
    assert "They are the same." in words(page)
    page.text_input(key="keep_against_pipeline").set_value("default|-fold")
    run(page)
    assert "They diverge at fold" in words(page)
    assert set(clients) == {"relay"}
    page.text_input(key="keep_against_pipeline").set_value("default|nonsense")
    assert "nonsense" in run(page).error[0].value
    sample = {"keep_against": "sample", "keep_against_sample": "mlp", "keep_against_ir": "relax"}
    page = put(page, **sample)
    assert set(clients) == {"relay", "relax"}
    assert "They start from different programs" in words(page)


def test_a_choice_that_is_no_choice_is_let_go(clients, monkeypatch, tmp_path):
    choices = {
        "keep_against": "nonsense",
        "keep_against_session": "gone",
        "keep_against_file": "../../etc",
        "keep_against_sample": "none",
    }
    kept(recorded(tmp_path / "a.rsc"), "mine", ScreenState("Side by side", choices=choices))
    page = whole_page()
    page.query_params["session"] = "mine"
    assert "Choose a file." in words(run(page))


def test_the_page_opens_on_a_session_that_it_was_started_on(beside, monkeypatch):
    (ident,) = (e.id for e in store.entries() if e.id != "other")
    monkeypatch.setenv(keeping.OPEN, f"{store.OF_SESSION}{ident}")
    assert "B: b.rsc" in words(opened())
    monkeypatch.setenv(keeping.OPEN, f"{store.OF_SESSION}gone")
    assert "There is no session 'gone'." in opened(ir="relay").warning[0].value
