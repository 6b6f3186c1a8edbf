"""The dialog of sessions, without a browser."""

import base64
import io
import json
import zipfile
import zlib
from dataclasses import replace

import pytest
import streamlit
from streamlit.testing.v1 import AppTest

from crafted.recorded import recorded
from engines import shared_fake
from page import words
from relascope.engine.protocol.source import file_digest
from relascope.viz.handed_on import session as handed_session
from relascope.viz.panels.shell import session_list, tab_engines
from relascope.viz.sessions import replay, store
from relascope.viz.sessions.state import ModelChoice, Session

NEW = Session(model=ModelChoice(batch=1, tokens=14))


def script():
    from relascope.viz.panels.shell.session_list import _content

    _content()


@pytest.fixture
def dialog(monkeypatch):
    """The dialog in a tab whose session is `a`, beside one of Relax."""
    again = streamlit.rerun
    monkeypatch.setattr(streamlit, "rerun", lambda scope="app": again())
    monkeypatch.setattr(tab_engines, "EngineClient", shared_fake)
    streamlit.cache_resource.clear()
    store.put("b", replace(NEW, ir="relax"), "in Relax")
    store.put("a", NEW, "in Relay")
    page = AppTest.from_function(script)
    page.session_state.session, page.session_state.session_id = NEW, "a"
    return page.run()


def choose(dialog, *rows):
    dialog.session_state.session_table = {"selection": {"rows": list(rows), "columns": []}}
    return dialog.run()


def test_sessions_are_named_compared_opened_and_deleted(dialog):
    assert not dialog.exception
    assert list(dialog.dataframe[0].value["session"]) == ["in Relay (this tab)", "in Relax"]
    dialog.text_input(key="session_name").set_value("mine").run()
    assert store.entries()[0].name == "mine"
    choose(dialog, 0, 1)
    assert "First: mine. Second: in Relax." in words(dialog).replace("\\", "")
    assert list(dialog.dataframe[1].value["first"])[:1] == ["Relay"]
    assert dialog.button(key="session_open").disabled
    choose(dialog, 1).button(key="session_open").click().run()
    assert dialog.session_state.session_id == "b"
    assert dialog.session_state.session_to_open.ir == "relax"
    choose(dialog, 1).button(key="session_delete").click().run()
    assert [e.id for e in store.entries()] == ["a"]
    assert dialog.session_state.session_id != "b", "what is done now is another session"


def test_a_replay_file_is_opened_and_a_strange_one_is_refused(dialog, monkeypatch, capsys):
    data = io.BytesIO()
    replay.write(data, replace(NEW, ir="relax"), None)
    files = [None, data]
    monkeypatch.setattr(streamlit, "file_uploader", lambda *_, **__: files.pop() if files else None)
    dialog.run()
    assert not dialog.exception
    opened = dialog.session_state.session_to_open
    assert opened.ir == "relax" and len(store.entries()) == 3
    with pytest.raises(session_list.EngineError, match="not a replay file"):
        session_list._open_file(io.BytesIO(b"nonsense"))


def test_a_replay_file_has_its_page_where_that_takes_little(dialog, monkeypatch, tmp_path):
    pressed = []
    monkeypatch.setattr(session_list, "download", lambda _, data, *__, **___: pressed.append(data))

    def tabs():
        dialog.run()
        assert not dialog.exception
        with zipfile.ZipFile(io.BytesIO(pressed[-1]())) as file:
            assert file.namelist()[0] == "session.json"
            if "page.json" not in file.namelist():
                return None
            packed = json.loads(file.read("page.json"))["blocks"]["index"]
        return [tab["key"] for tab in json.loads(zlib.decompress(base64.b64decode(packed)))["tabs"]]

    assert tabs() == ["graph", "passes"]
    monkeypatch.setattr(handed_session, "_MOST", 2)
    assert tabs() is None, "of a model with more nodes"
    monkeypatch.setattr(handed_session, "_MOST", 1000)
    dialog.session_state.session = replace(NEW, model=ModelChoice("not_a_trace"))
    assert tabs() is None, "of a model that cannot be opened"
    path = recorded(tmp_path / "run.rsc")
    model = ModelChoice(path.name, file_digest(path))
    dialog.session_state.session = replace(NEW, model=model)
    dialog.session_state.upload_path = str(path)
    del dialog.session_state["cache_relay"]
    assert tabs() == ["passes", "times"]
    assert "cache_relay" not in dialog.session_state, "a recording needs no engine"
    monkeypatch.setattr(handed_session, "LARGEST", 100)
    assert tabs() is None, "of a large recording"


def recent():
    from relascope.viz.panels.shell.opening.zone import recent

    recent()


def test_a_file_opened_before_is_opened_again_and_a_lost_one_says_so(tmp_path):
    here, gone = "a" * 32, "b" * 32
    file = tmp_path / "own.onnx"
    file.write_bytes(b"a model")
    store.keep_model(str(file), here)
    own = ModelChoice("own.onnx", here, inputs="x=1x4:float32")
    store.put("1", replace(NEW, ir="relax", model=own), "own")
    store.put("2", replace(NEW, model=ModelChoice("lost.pt", gone)), "lost")
    page = AppTest.from_function(recent).run()
    assert page.button(key=f"again_{gone}").disabled
    assert "No longer on this machine." in words(page)
    page.button(key=f"again_{here}").click().run()
    opened = page.session_state.session_to_open
    assert (opened.ir, opened.model.digest, opened.model.inputs) == ("relax", here, own.inputs)
    assert page.session_state.session_id not in ("1", "2")
