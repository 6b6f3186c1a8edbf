"""Engines: one for each browser session, and one kept warm so that the next session starts fast."""

from __future__ import annotations

import threading

import streamlit as st

from relascope.engine.client import EngineClient
from relascope.engine.limits import of_page
from relascope.engine.protocol.source import ModelSource
from relascope.viz.panels.shell.desk import Desk

REFILL_AFTER = 20.0  # seconds; a new engine must not take the cores from the first model


class Spare:
    """Hands out an engine that is already warming up, and later starts the next."""

    def __init__(self, ir: str, first: ModelSource) -> None:
        self._ir, self._first = ir, first
        self._lock = threading.Lock()
        self._client: EngineClient | None = self._start()

    def take(self) -> EngineClient:
        """A client of one's own."""
        with self._lock:
            client, self._client = self._client, None
        timer = threading.Timer(REFILL_AFTER, self._refill)
        timer.daemon = True
        timer.start()
        return client or self._start()

    def _refill(self) -> None:
        with self._lock:
            if self._client is None:
                self._client = self._start()

    def _start(self) -> EngineClient:
        client = EngineClient(self._ir)
        client.limit(of_page())
        client.warm()
        client.submit("load", self._first)
        return client


@st.cache_resource(show_spinner=False)
def spare(ir: str, first: ModelSource) -> Spare:
    """The server's one spare engine of an IR."""
    return Spare(ir, first)


def desk_of_session(ir: str, first: ModelSource) -> Desk:
    """The desk of this browser session, with its own engine.

    Args:
        first: the model that the page opens with. Engines load it while they wait, which imports
            all that loading needs.
    """
    key = f"desk_{ir}"
    if key not in st.session_state:
        st.session_state[key] = Desk(spare(ir, first).take())
    desk: Desk = st.session_state[key]
    return desk
