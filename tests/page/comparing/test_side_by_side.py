"""Relay and Relax on one page: which of them it opens in, and the tab that shows both."""

import json
import time

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import page_session
from engines import shared
from page import LONG, open_tab, words
from place import PAGES
from relascope.core.errors import EngineError
from relascope.viz.panels.shell import settings, tab_engines


def settle(page):
    """Run the page until neither engine works."""
    until = time.monotonic() + LONG
    while any(b.key and b.key.startswith("cancel") for b in page.button):
        assert time.monotonic() < until, "the page still waits for its engines"
        page.run()
    assert not page.exception
    return page


@pytest.fixture
def clients(monkeypatch, tmp_path):
    """The clients that the page makes, by the engine's name; settings are the test's own."""
    made = []

    def connect(ir):
        made.append((ir, shared(ir, page_session.session_of(ir))))
        return made[-1][1]

    monkeypatch.setattr(tab_engines, "EngineClient", connect)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    st.cache_resource.clear()
    yield made
    for _, client in made:
        client.stop()


@pytest.fixture
def new_page(clients):
    """Opens the page, as a browser does that has not been here in this session."""

    def open_it():
        return settle(AppTest.from_file(PAGES / "whole_page.py", default_timeout=LONG).run())

    return open_it


def choose_ir(page, ir):
    page.sidebar.segmented_control(key="ir").set_value(ir)
    return settle(page.run())


def served_by(page):
    return "Relax" if "(Relax)" in words(page) else "Relay"


# Which first.


def test_the_page_opens_in_relay_and_then_in_what_was_chosen_last(new_page):
    page = new_page()
    assert page.sidebar.segmented_control(key="ir").value == "relay"
    assert served_by(page) == "Relay"
    assert not settings.path().exists()  # only a choice is remembered
    choose_ir(page, "relax")
    assert served_by(page) == "Relax"
    assert json.loads(settings.path().read_text()) == {"ir": "relax"}
    assert served_by(new_page()) == "Relax"
    again = new_page()
    choose_ir(again, "relay")
    assert served_by(new_page()) == "Relay"


def test_without_relay_the_page_says_why_and_opens_in_relax(monkeypatch, new_page, clients):
    missing = EngineError("engine", "No TVM with Relay is installed.", "bitblas", "Run make env.")
    monkeypatch.setattr("relascope.viz.page.available", lambda: missing)
    settings.remember("ir", "relay")
    page = new_page()
    for said in ("No TVM with Relay", "bitblas", "Run make env"):
        assert said in page.error[0].value
    assert "goes on with Relax" in words(page)
    assert served_by(page) == "Relax"
    assert "ir" not in page.session_state  # there is nothing to choose
    assert {ir for ir, _ in clients} == {"relax"}
    assert settings.recall("ir") == "relay"  # still wanted, once it is there


def test_settings_that_cannot_be_read_or_written_do_no_harm(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings.recall("ir") is None
    settings.remember("ir", "relax")
    settings.remember("other", "x")
    assert settings.recall("ir") == "relax"
    settings.path().write_text("no json")
    assert settings.recall("ir") is None
    settings.path().write_text('{"ir": 3}')
    assert settings.recall("ir") is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    settings.remember("ir", "relay")
    assert "not remembered" in caplog.text


# Side by side.


@pytest.fixture
def both(new_page, clients):
    page = new_page()
    assert {ir for ir, _ in clients} == {"relay"}  # the second starts when the tab is opened
    open_tab(page, "Side by side")
    settle(page)
    assert {ir for ir, _ in clients} == {"relay", "relax"}
    return page


def select(page, ir, what):
    """What the browser does when something is selected in a view."""
    page.session_state[f"both_{ir}"] = {"selected": what, "toggles": None}
    page.session_state.both_choice = (("relay", "relax").index(ir), what)
    return settle(page.run())


def test_the_table_says_what_each_operator_became(both):
    rows = both.dataframe[0].value
    assert list(rows.columns) == ["module", "PyTorch operator", "Relay", "Relax", "only in"]
    first = rows[rows["module"] == "layers.2"].iloc[0]
    assert (first["Relay"], first["Relax"]) == ("nn.dense", "matmul, permute_dims")
    assert list(rows[rows["PyTorch operator"] == "aten::t"]["only in"]) == ["Relay"]
    assert "<b>1</b> only in Relay" in words(both)
    both.session_state["keep_both_rows"] = "calls"
    settle(both.run())
    rows = both.dataframe[0].value.set_index("TVM operator")
    assert tuple(rows.loc["matmul"]) == (0, 2, "Relax")
    both.session_state["keep_both_rows"] = "operators"
    settle(both.run())
    rows = both.dataframe[0].value.set_index("PyTorch operator")
    assert rows.loc["aten::linear", "Relax"] == "matmul ×2, permute_dims ×2"


def test_a_chosen_node_goes_to_its_counterpart_and_back(both):
    select(both, "relay", "d1")
    assert "same PyTorch operator" in words(both)
    assert "Relax: <b>permute_dims, matmul</b>" in words(both)
    assert both.session_state["both_asked_relax"] == "m1"
    assert both.session_state["both_asked_relay"] is None  # its own view stays where it is
    select(both, "relax", "a")
    assert both.session_state["both_asked_relay"] == "r"
    assert both.session_state["both_asked_relax"] is None
    select(both, "relay", "w0")
    assert "same input or parameter" in words(both)


def test_a_chosen_module_goes_to_the_same_module(both):
    select(both, "relax", "group:layers.0")
    assert both.session_state["both_asked_relay"] == "group:layers.0"
    assert "same module only" in words(both)


def test_what_the_page_itself_selects_is_no_choice(monkeypatch):
    from relascope.viz.panels import side_by_side

    class State(dict):
        def __getattr__(self, name):
            return self[name]

        def __setattr__(self, name, value):
            self[name] = value

    state = State()
    monkeypatch.setattr(side_by_side.st, "session_state", state)
    state.both_relay = {"selected": "d1"}
    side_by_side._picked(0)
    assert state.both_choice == (0, "d1")
    state.both_asked_relax = "m1"
    state.both_relax = {"selected": "m1"}  # the echo of what was asked
    side_by_side._picked(1)
    assert state.both_choice == (0, "d1")
    state.both_relax = {"selected": "a"}
    side_by_side._picked(1)
    assert state.both_choice == (1, "a")
    state.both_relax = {"selected": None}
    side_by_side._picked(1)
    assert state.both_choice is None
    state.both_origins = [("layers.0", "aten::linear")]
    state.both_table = {"selection": {"rows": [0]}}
    side_by_side._row_picked()
    assert state.both_choice == ("row", ("layers.0", "aten::linear"))


def test_a_chosen_row_goes_to_both_sides(both):
    both.session_state.both_choice = ("row", ("layers.2", "aten::linear"))
    settle(both.run())
    assert both.session_state["both_asked_relay"] == "d1"
    assert both.session_state["both_asked_relax"] == "m1"
    both.session_state.both_choice = ("row", ("layers.0", "aten::t"))
    settle(both.run())
    assert both.session_state["both_asked_relax"] is None
    assert "Relax: <b>nothing</b>" in words(both)


def pictures(page):
    return [c.key for c in page.get("bidi_component") if c.key.startswith("both_")]


def test_where_one_engine_fails_its_side_says_why_and_the_other_stands(both):
    both.number_input(key="keep_seed").set_value(page_session.RELAX_SEED)
    settle(both.run())
    assert len(both.error) == 1
    assert "Relax knows no operator aten::frobnicate" in both.error[0].value
    assert "layers.1" in both.error[0].value
    assert pictures(both) == ["both_relay"]
    assert not both.dataframe
    both.number_input(key="keep_seed").set_value(page_session.BROKEN_SEED)
    settle(both.run())
    assert len(both.error) == 2  # with a button of its own each
    both.number_input(key="keep_seed").set_value(0)
    settle(both.run())
    assert not both.error
    assert both.dataframe


def test_where_relay_cannot_be_loaded_its_side_says_so(monkeypatch, new_page):
    missing = EngineError("engine", "No TVM with Relay is installed.", "bitblas", "Run make env.")
    monkeypatch.setattr("relascope.viz.page.available", lambda: missing)
    sessions = {"relay": "fake_session:BrokenSession"}
    real = page_session.session_of
    monkeypatch.setattr(page_session, "session_of", lambda ir: sessions.get(ir) or real(ir))
    page = new_page()
    open_tab(page, "Side by side")
    settle(page)
    assert any("there is no compiler here" in e.value for e in page.error)  # its engine said
    assert pictures(page) == ["both_relax"]


def test_each_side_has_its_step(both):
    assert list(both.dataframe[0].value["PyTorch operator"]).count("aten::t") == 1
    box = both.selectbox(key="keep_both_relay_False")
    assert box.options[0] == "Relay as imported"
    fold = next(i for i, o in enumerate(box.options) if "FoldConstant" in o)
    box.set_value(fold - 1)
    settle(both.run())
    assert list(both.dataframe[0].value["PyTorch operator"]).count("aten::t") == 0
