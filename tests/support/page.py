"""The page without a browser and without a TVM (page_session.py), for tests."""

import base64
import json
import time
import zlib

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from engines import shared
from place import PAGES
from relascope.passes.catalogue import default_pipeline
from relascope.viz.panels.shell import tab_engines

LONG = 120.0  # s; only what hangs takes so long, on a busy machine too
INFERENCE, TRAINING = default_pipeline("relay", False), default_pipeline("relay", True)


@pytest.fixture
def page(monkeypatch):
    """The page after its first run, served by the engine without a TVM."""
    client = shared("relay", "page_session:PageSession")
    monkeypatch.setattr(tab_engines, "EngineClient", lambda ir: client)
    st.cache_resource.clear()
    yield settle(whole_page().run())
    client.stop()


def settle(page, seconds=LONG):
    until = time.monotonic() + seconds
    while any((b.key or "").startswith("cancel") for b in page.button):
        assert time.monotonic() < until, "the page still waits for its engine"
        page.run()
    assert not page.exception
    return page


def press(page, key):
    page.button(key=key).click()
    return settle(page.run())


def open_tab(page, name):
    return put(page, keep_tab=name)


def put(page, **state):
    for key, value in state.items():
        page.session_state[key] = value
    return settle(page.run())


def whole_page():
    return AppTest.from_file(PAGES / "whole_page.py", default_timeout=LONG)


def training(page):
    return settle(page.sidebar.segmented_control(key="keep_mode").set_value("Training").run())


def says(page, *texts):
    """All of these texts are among the page's words."""
    said = words(page)
    assert [text for text in texts if text not in said] == [], said


def table_with(page, column):
    return next(d.value for d in page.dataframe if column in d.value)


def words(page):
    parts = [m.value for m in (*page.markdown, *page.caption, *page.info, *page.warning)]
    parts += [e.value for e in page.error]
    parts += [h.proto.body for h in page.get("html")]
    return "\n".join(parts)


def sent(page, key):
    """What a component was sent, inflated, of the list the rows; None where it is not drawn."""
    for block in page.get("bidi_component"):
        if key in block.proto.id:
            if not block.proto.json:
                return json.loads(zlib.decompress(block.proto.bytes))
            data = json.loads(block.proto.json)
            data = data.get("rows") or data["texts"]
            packed = isinstance(data, str)
            return json.loads(zlib.decompress(base64.b64decode(data))) if packed else data
    return None


def step(page):
    """The chosen step and how many there are, as the list of steps was told; 0 is the import."""
    (told,) = [b.proto for b in page.get("bidi_component") if "step_list" in b.proto.id]
    return json.loads(told.json)["selected"], len(sent(page, "step_list")) - 1
