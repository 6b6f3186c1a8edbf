"""Relay and Relax on one page, and the page held against recordings, pipelines and sessions."""

import json

import pytest

import page_session
from crafted.recorded import recorded
from page import open_tab, put, says, settle, table_with, whole_page, words
from relascope.core.errors import EngineError
from relascope.engine.protocol.source import file_digest
from relascope.viz.panels.compared import comparison as compared
from relascope.viz.panels.shell import settings
from relascope.viz.sessions import store
from relascope.viz.sessions.state import ModelChoice, ScreenState, Session


@pytest.fixture
def new_page(clients):
    def open_it():
        return settle(whole_page().run())

    return open_it


def choose_ir(page, ir):
    return settle(page.sidebar.segmented_control(key="ir").set_value(ir).run())


def served_by(page):
    return "Relax" if "(Relax)" in words(page) else "Relay"


def test_the_page_opens_in_relay_and_then_in_what_was_chosen_last(new_page):
    page = new_page()
    assert page.sidebar.segmented_control(key="ir").value == "relay"
    assert served_by(page) == "Relay"
    assert not settings.path().exists()  # only a choice is remembered
    choose_ir(page, "relax")
    assert served_by(page) == "Relax"
    assert json.loads(settings.path().read_text()) == {"ir": "relax"}
    assert served_by(new_page()) == "Relax"
    choose_ir(new_page(), "relay")
    assert served_by(new_page()) == "Relay"


@pytest.fixture
def no_relay(monkeypatch):
    missing = EngineError("engine", "No TVM with Relay is installed.", "bitblas", "Run make env.")
    monkeypatch.setattr("relascope.viz.page.available", lambda: missing)


def test_without_relay_the_page_says_why_and_opens_in_relax(no_relay, new_page, clients):
    settings.remember("ir", "relay")
    page = new_page()
    for said in ("No TVM with Relay", "bitblas", "Run make env"):
        assert said in page.error[0].value
    assert "goes on with Relax" in words(page)
    assert served_by(page) == "Relax"
    assert "ir" not in page.session_state  # there is nothing to choose
    assert set(clients) == {"relax"}
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


@pytest.fixture
def both(new_page, clients):
    page = new_page()
    assert set(clients) == {"relay"}  # the second starts when the tab is opened
    open_tab(page, "Side by side")
    assert set(clients) == {"relay", "relax"}
    return page


@pytest.fixture
def choose(both, monkeypatch):
    """Does what the browser does when something is chosen in a view (0: Relay's) or a table."""
    places, looks = [], compared._looks

    def looking(held, choice):
        places.append(held.place)
        return looks(held, choice)

    monkeypatch.setattr(compared, "_looks", looking)
    both.run()

    def choose_it(kind, side, what):
        both.session_state["against_choice"] = (places[-1], kind, side, what)
        return settle(both.run())

    return choose_it


def became(page):
    return table_with(page, "only in")


def test_the_table_says_what_each_operator_became(both):
    rows = became(both)
    assert list(rows.columns) == ["module", "PyTorch operator", "Relay", "Relax", "only in"]
    first = rows[rows["module"] == "layers.2"].iloc[0]
    assert (first["Relay"], first["Relax"]) == ("nn.dense", "matmul, permute_dims")
    assert list(rows[rows["PyTorch operator"] == "aten::t"]["only in"]) == ["Relay"]
    assert "<b>1</b> only in Relay" in words(both)
    put(both, keep_against_table="By TVM operator")
    rows = became(both).set_index("TVM operator")
    assert tuple(rows.loc["matmul"]) == (0, 2, "Relax")
    put(both, keep_against_table="By PyTorch operator")
    rows = became(both).set_index("PyTorch operator")
    assert rows.loc["aten::linear", "Relax"] == "matmul ×2, permute_dims ×2"


def test_what_is_chosen_goes_to_its_counterpart_and_back(both, choose):
    group, in_b = "group:layers.0", "<b>permute_dims, matmul</b> in B"
    became = "aten::linear of layers.2: nn.dense in A; permute_dims, matmul in B"
    for kind, side, what, wanted, *said in (
        ("node", 0, "d1", ["d1", "m1"], "same PyTorch operator", in_b),
        ("node", 1, "a", ["r", "a"]),
        ("node", 0, "w0", ["w0", "w0"], "same name"),
        # Of an operator that Relax's does not name: the pair stands for it.
        ("node", 0, "t0", ["t0", "p0"], "% sure"),
        # A module goes to the same module, or to the one around it.
        ("node", 1, group, [group, None], "same module only"),
        ("node", 1, f"{group}.gone", [group, None], "enclosing module only"),
        ("node", 1, "group:other", [None, None], "no counterpart"),
        # A row goes to both sides.
        ("origin", 0, ("layers.2", "aten::linear"), ["d1", "m1"], became),
        ("origin", 0, ("layers.0", "aten::t"), ["t0", None], "nothing in B"),
        ("origin", 0, (None, "aten::linear"), ["d0", "m0"]),
        ("operator", 0, "matmul", [None, "m0"]),
    ):
        says(choose(kind, side, what), *said)
        assert [both.session_state[f"against_asked_{side}"] for side in (0, 1)] == wanted


def pictures(page):
    return [c.key for c in page.get("bidi_component") if c.key.startswith("against_view")]


def test_each_side_has_its_step_and_where_the_other_engine_fails_the_page_says_why(both):
    assert list(became(both)["PyTorch operator"]).count("aten::t") == 1
    box = both.selectbox(key="keep_program_a")
    assert box.options[0] == "A before all passes"
    fold = next(i for i, o in enumerate(box.options) if o.endswith("fold"))
    box.set_value(fold - 1)
    settle(both.run())
    assert list(became(both)["PyTorch operator"]).count("aten::t") == 0
    assert both.selectbox(key="keep_program_b").value == -1
    settle(both.number_input(key="keep_seed").set_value(page_session.RELAX_SEED).run())
    (error,) = both.error
    assert all(s in error.value for s in ("Relax knows no operator aten::frobnicate", "layers.1"))
    assert not pictures(both)
    settle(both.number_input(key="keep_seed").set_value(0).run())
    assert not both.error
    assert len(pictures(both)) == 2


def test_where_relay_cannot_be_loaded_the_page_says_so(monkeypatch, no_relay, new_page):
    sessions = {"relay": "fake_session:BrokenSession"}
    real = page_session.session_of
    monkeypatch.setattr(page_session, "session_of", lambda ir: sessions.get(ir) or real(ir))
    page = new_page()
    open_tab(page, "Side by side")
    assert any("there is no compiler here" in e.value for e in page.error)  # its engine said


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
    monkeypatch.setenv(store.OPEN, str(recorded(tmp_path / "a.rsc")))
    ident = kept(recorded(tmp_path / "b.rsc", passes=2, code="store"))
    chosen = {"keep_against": "session", "keep_against_session": ident}
    return opened(keep_recorded_tab="Side by side", **chosen)


def test_two_recordings_need_no_engine_and_say_where_they_part(beside, clients):
    assert not clients
    said = words(beside)
    assert "A: a.rsc, Relay, 6 passes" in said and "B: b.rsc, Relay, 8 passes" in said
    (steps,) = (d.value for d in beside.dataframe if "what differs" in d.value)
    assert list(steps["pass"]) == ["tir.Pass1", "tir.Pass0"]
    assert list(steps["what differs"]) == ["only B", "parts here, only B"]
    beside.session_state["against_steps"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    assert "After tir.Pass1, as chosen above" in words(run(beside))
    beside.session_state["keep_against_all_steps"] = True  # in which the first row is another
    assert "as chosen above" not in words(run(beside))
    beside.session_state["keep_against_table"] = "Operators"
    page = run(beside)
    assert "Both call the same" in words(page)
    ids = [b.proto.id for b in page.get("bidi_component")]
    assert sum("against_view" in i for i in ids) == 2


def test_what_it_is_held_against_is_there_after_a_reload(beside):
    query = dict(beside.query_params)
    for said in ("B: b.rsc", "There is no other session"):
        again = whole_page()
        again.query_params.update(query)
        says(run(again), said)
        store.delete("other")


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
    monkeypatch.setenv(store.OPEN, f"{store.OF_SESSION}{ident}")
    assert "B: b.rsc" in words(opened())
    monkeypatch.setenv(store.OPEN, f"{store.OF_SESSION}gone")
    assert "There is no session 'gone'." in opened(ir="relay").warning[0].value
