"""One engine for each browser session.

An engine outlives its tab by less than a minute, and its process ends while it is idle. Nothing is
lost: a request cache keeps its answers, and its requests are complete.
"""

import gc
import logging
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from relascope.core import heap
from relascope.core.memo import Memo
from relascope.engine.client import EngineClient
from relascope.engine.limits import Limits, of_page
from relascope.engine.places import PLACES, most_of_page
from relascope.engine.protocol.source import ModelSource, file_digest
from relascope.recorder.reading import read
from relascope.viz.compare.recording import RecordedCompile
from relascope.viz.panels.shell.request_cache import RecordingCache, RequestCache
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.sessions.state import ScreenState

_log = logging.getLogger("relascope.page")

LOOK = 3.0  # seconds between checks of connected tabs
_NEW_OBJECTS = 20_000  # between garbage collections
GONE = 25.0  # seconds; reloaded pages and interrupted networks are back by then


class Engines:
    """The engines of all sessions of this server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Each request cache's session, and when that was last connected; Streamlit drops caches.
        self._seats = weakref.WeakKeyDictionary[RequestCache, tuple[str, float]]()
        PLACES.most = most_of_page()
        threading.Thread(target=_look_after, args=(weakref.ref(self),), daemon=True).start()

    def take(self, ir: str, first: ModelSource, session: str) -> RequestCache:
        """A request cache with its own engine, which loads the first model while it waits."""
        client = EngineClient(ir)
        client.limit(of_page())
        client.warm()
        client.submit("load", first)
        cache = RequestCache(client)
        with self._lock:
            self._seats[cache] = session, time.monotonic()
        return cache

    def look(self) -> None:
        """End the engines that nobody needs."""
        now = time.monotonic()
        with self._lock:
            here = {c: (s, now) for c, (s, _) in self._seats.items() if _connected(s)}
            self._seats.update(here)
            seats = list(self._seats.items())
        for cache, (_, seen) in seats:
            if now - seen > GONE:
                cache.client.rest(busy=True)
            elif 0 < cache.client.limits.idle < (cache.client.idle or 0.0):
                cache.client.rest()


@st.cache_resource(show_spinner=False)
def settled() -> None:
    """Make garbage collection rare, once per process. Graphs are many small objects without cycles:
    each full collection takes a tenth of a second and finds nothing."""
    # By default, a heap that never shrinks may stay for each thread, so for each run.
    heap.set_options(arena_max=2, mmap_threshold=256 << 10)
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 50)


def _look_after(engines: weakref.ref[Engines]) -> None:
    while (them := engines()) is not None:
        try:
            them.look()
        except Exception:  # the next check tries again
            _log.exception("looking after engines")
        del them
        time.sleep(LOOK)


def _connected(session: str) -> bool:
    return not runtime.exists() or runtime.get_instance().is_active_session(session)


@st.cache_resource(show_spinner=False)
def engines() -> Engines:
    return Engines()


def cache_of_session(ir: str, first: ModelSource) -> RequestCache:
    """The request cache of this browser session, with its own engine, which loads the model `first`
    while it waits, and so imports the modules that loading needs."""
    key = f"cache_{ir}"
    if key not in st.session_state:
        context = get_script_run_ctx()
        session = context.session_id if context is not None else ""
        st.session_state[key] = engines().take(ir, first, session)
    cache: RequestCache = st.session_state[key]
    cache.client.limit(page_limits())
    return cache


def recording_screen(path: str) -> Screen:
    """A recording, read once per browser session and change; raises as `recorder.reading.read`."""
    file, about = Path(path), Path(path).stat()
    known: Memo[Screen] = st.session_state.setdefault("recordings_read", Memo(4))

    def make() -> Screen:
        its = RecordedCompile(read(file), file_digest(file))
        of = its.ir, its.source, file.name, its.pipeline, ScreenState.fewer_than
        return Screen(*of, RecordingCache(its))

    return known.get((path, about.st_size, about.st_mtime_ns), make)


def limit_key(kind: str) -> str:
    return f"keep_limit_{kind}"


def page_limits() -> Limits:
    """The page's limits, with those that this session changed."""
    known = of_page()
    state = st.session_state
    return replace(known, calls={k: state.get(limit_key(k), s) for k, s in known.calls.items()})
