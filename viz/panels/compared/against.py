"""Comparing the page with the other IR, or another pipeline, sample, file or session."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import streamlit as st

from relascope.core.errors import EngineError, refusing
from relascope.core.memo import Memo
from relascope.engine.files.formats import is_recording
from relascope.engine.jobs.step import step
from relascope.engine.protocol.source import ModelSource, file_digest, source_from_file
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline, gradients, read_pipeline, typed_pipeline
from relascope.passes.pipeline import Pipeline
from relascope.recorder.reading import read
from relascope.samples import SAMPLES
from relascope.viz.compare.runs import ComparedRun
from relascope.viz.compare.sides import of_model, of_recording
from relascope.viz.panels.compared import comparison as compared
from relascope.viz.panels.shell import keeping, sidebar
from relascope.viz.panels.shell.frame import one_of, plain_text, show_error, waiting
from relascope.viz.panels.shell.request_cache import RequestCache, Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.tab_engines import cache_of_session
from relascope.viz.sessions import store
from relascope.viz.sessions.state import pipeline_text

_KINDS = {
    "ir": "The other IR",
    "gradient": "The other gradient",
    "pipeline": "Another pipeline",
    "sample": "Another sample",
    "file": "A file",
    "session": "A kept session",
}
_KIND, _IR, _PIPELINE = "keep_against", "keep_against_ir", "keep_against_pipeline"
_SAMPLE, _FILE, _SESSION = "keep_against_sample", "keep_against_file", "keep_against_session"
_LIMIT_MB = 1024
_UPLOADED = "against_uploaded"  # the id of the upload in use
_READ = "against_read"  # runs of recordings, by digest


@dataclass(frozen=True)
class _ChosenSide:
    """One of two sides: a function that makes its run (raises `Waiting` or EngineError), a key for
    all that it depends on, and its cache, None for a recording."""

    make: Callable[[], ComparedRun]
    key: Hashable
    cache: RequestCache | None


def of_screen(screen: Screen) -> None:
    """Draw the screen's program compared with the one chosen here."""
    label = sidebar.summary_of(screen)
    own = _model(screen.cache, screen.ir, screen.source, screen.pipeline, label)
    both = screen.training and len(gradients(screen.ir)) > 1
    kinds = [kind for kind in _KINDS if both or kind != "gradient"]
    _draw(own, kinds, screen, screen.cache.derive)


def of_recording_at(path: str, digest: str, derive: compared.Derive) -> None:
    """Draw a recording compared with the program chosen here."""
    _draw(_recording(path, digest), ["file", "session", "sample"], None, derive)


def _draw(
    own: _ChosenSide, kinds: Sequence[str], screen: Screen | None, derive: compared.Derive
) -> None:
    other: _ChosenSide | None = None
    with st.container(horizontal=True, vertical_alignment="bottom", key="against"):
        kind = one_of("Compare with", kinds, _KIND, st, format_func=_KINDS.__getitem__)
        try:
            other = _CHOOSE[kind](screen)
        except EngineError as error:
            show_error(error)
    if other is None:
        return
    sides = own, other
    try:
        runs = [side.make() for side in sides]
        compared.show(runs[0], runs[1], derive, *(side.key for side in sides))
    except Waiting:
        caches = {id(s.cache): s.cache for s in sides if s.cache is not None}
        for number, cache in enumerate(caches.values()):
            if cache.running is not None:
                waiting(cache, "_other" * number)
        st.html("<div class='rs-skeleton'></div>")
    except EngineError as error:
        show_error(error, next((s.cache for s in reversed(sides) if s.cache), None), "against")


def _model(
    cache: RequestCache, ir: str, source: ModelSource, pipeline: Pipeline, label: str
) -> _ChosenSide:
    def make() -> ComparedRun:
        stepped = step(cache.ask, source, pipeline)
        return of_model(cache.ask, ir, source, stepped, label)

    return _ChosenSide(make, (ir, source, str(pipeline)), cache)


def _recording(path: str, digest: str) -> _ChosenSide:
    def make() -> ComparedRun:
        known: Memo[ComparedRun] = st.session_state.setdefault(_READ, Memo(4))
        return known.get(digest, lambda: of_recording(read(Path(path)), Path(path).name))

    return _ChosenSide(make, digest, None)


def _ir(screen: Screen | None) -> str:
    if screen is not None and _IR not in st.session_state:
        st.session_state[_IR] = screen.ir
    return one_of("In", ENGINES, _IR, st, format_func=str.capitalize)


def _other_ir(screen: Screen | None) -> _ChosenSide | None:
    assert screen is not None
    other = ENGINES[1 - ENGINES.index(screen.ir)]
    return _of_source(screen, other, screen.source, sidebar.summary_of(replace(screen, ir=other)))


def _other_gradient(screen: Screen | None) -> _ChosenSide | None:
    assert screen is not None
    (other,) = (g for g in gradients(screen.ir) if g != screen.source.gradient)
    source = replace(screen.source, gradient=other)
    pipeline = sidebar.pipeline_of(screen.ir, True, other)
    label = sidebar.summary_of(replace(screen, source=source))
    return _model(screen.cache, screen.ir, source, pipeline, label)


def _pipeline(screen: Screen | None) -> _ChosenSide | None:
    assert screen is not None
    st.session_state.setdefault(_PIPELINE, "default")
    text = st.text_input(
        "Passes of B",
        key=_PIPELINE,
        width="stretch",
        help="As on the command line: `default`, `default|-fold`, `cse|fold|dce`.",
    )
    with refusing("usage", "{}.", "passes of B", "The tab Passes lists all passes."):
        found = typed_pipeline(screen.ir, text, screen.training, screen.source.gradient)
    return _model(screen.cache, screen.ir, screen.source, found, sidebar.summary_of(screen))


def _sample(screen: Screen | None) -> _ChosenSide | None:
    if st.session_state.get(_SAMPLE) not in SAMPLES:
        st.session_state.pop(_SAMPLE, None)
    name = st.selectbox(
        "Sample of B", list(SAMPLES), key=_SAMPLE, format_func=lambda n: SAMPLES[n].title
    )
    ir = _ir(screen)
    if name is None:
        return None
    return _of_source(screen, ir, sidebar.sample_source(name), SAMPLES[name].title)


def _of_source(screen: Screen | None, ir: str, source: ModelSource, label: str) -> _ChosenSide:
    """A model in the page's mode, through the page's passes of its IR."""
    cache = cache_of_session(ir, sidebar.sample_source())
    if screen is None:
        return _model(cache, ir, source, default_pipeline(ir, False, "tvm"), label)
    own = screen.source
    gradient = own.gradient if own.gradient in gradients(ir) else "tvm"
    source = replace(
        source, training=own.training, dtype=own.dtype, seed=own.seed, gradient=gradient
    )
    pipeline = sidebar.pipeline_of(ir, own.training, gradient)
    return _model(cache, ir, source, pipeline, label)


def _file(screen: Screen | None) -> _ChosenSide | None:
    upload = st.file_uploader(
        "File of B: a model, a module of TVM's, a recording",
        key="against_upload",
        max_upload_size=_LIMIT_MB,
        help="Opening a model's file runs code of torch or TVM: open only files that you trust.",
    )
    state = st.session_state
    kept = store.model_file(str(state.get(_FILE) or ""))
    if upload is not None and (kept is None or state.get(_UPLOADED) != upload.file_id):
        path = sidebar.stored_upload(upload, "model.pt")
        digest = file_digest(Path(path))
        store.keep_model(path, digest)
        state[_FILE], state[_UPLOADED] = digest, upload.file_id
        kept = store.model_file(digest)
    if kept is None:
        st.caption("Choose a file.")
        return None
    if upload is None or upload.name != kept.name:
        st.caption(plain_text(kept.name))
    digest = str(state[_FILE])
    if is_recording(kept):
        return _recording(str(kept), digest)
    return _of_source(screen, _ir(screen), source_from_file(kept), kept.name)


def _session(screen: Screen | None) -> _ChosenSide | None:
    here, _ = keeping.now()
    entries = {e.id: e for e in store.entries() if e.id != here}
    if st.session_state.get(_SESSION) not in entries:
        st.session_state.pop(_SESSION, None)

    def said(ident: str) -> str:
        changed = datetime.fromtimestamp(entries[ident].changed)
        return f"{entries[ident].title}, {changed:%d %b, %H:%M}"

    ident = st.selectbox(
        "Session of B",
        list(entries),
        index=None,
        key=_SESSION,
        format_func=said,
        placeholder="Choose a session",
    )
    session = store.get(ident) if ident else None
    if ident is None or session is None:
        if not entries:
            st.caption("There is no other session. This one is saved once you change something.")
        return None
    digest = session.model.digest
    file = store.model_file(digest)
    if digest and file is None:
        hint = "Open the session and choose its file again."
        raise EngineError("session", "Its model is not on this machine.", session.model.name, hint)
    label = entries[ident].title
    if file is not None and is_recording(file):
        return _recording(str(file), digest)
    source = session.model.source(str(file or ""))
    pipeline = read_pipeline(session.ir, pipeline_text(session))
    cache = cache_of_session(session.ir, sidebar.sample_source())
    return _model(cache, session.ir, source, pipeline, label)


_CHOOSE: dict[str, Callable[[Screen | None], _ChosenSide | None]] = {
    "ir": _other_ir,
    "gradient": _other_gradient,
    "pipeline": _pipeline,
    "sample": _sample,
    "file": _file,
    "session": _session,
}
