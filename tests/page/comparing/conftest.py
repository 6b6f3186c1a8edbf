"""The page on engines without a TVM, of either IR."""

import pytest
import streamlit as st

import page_session
from engines import shared
from relascope.viz.panels.shell import tab_engines


@pytest.fixture
def clients(monkeypatch):
    """What the page starts, by the engine's name."""
    made = {}

    def connect(ir):
        made[ir] = shared(ir, page_session.session_of(ir))
        return made[ir]

    monkeypatch.setattr(tab_engines, "EngineClient", connect)
    st.cache_resource.clear()
    yield made
    for client in made.values():
        client.stop()
