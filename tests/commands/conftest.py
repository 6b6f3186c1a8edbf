"""An engine whose passes are at fault, and the page on it."""

import pytest
import streamlit as st

from engines import shared
from page import settle, whole_page
from relascope.viz.panels.shell import tab_engines


@pytest.fixture
def connect():
    yield lambda ir="relay": shared(ir, "faulty_session:FaultySession")
    shared("relay", "faulty_session:FaultySession").stop()


@pytest.fixture
def page(monkeypatch, connect):
    monkeypatch.setattr(tab_engines, "EngineClient", connect)
    st.cache_resource.clear()
    page = whole_page()
    settle(page.run())
    page.session_state["keep_tab"] = "Passes"
    yield page
    st.cache_resource.clear()
