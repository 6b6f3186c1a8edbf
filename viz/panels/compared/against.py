"""Comparing the page with the other IR, or another pipeline, sample, file or session."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from relascope.core.errors import EngineError, refusing
from relascope.engine.files.formats import is_recording
from relascope.engine.protocol.source import ModelSource, file_digest, source_from_file
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import gradients, read_pipeline, typed_pipeline
from relascope.samples import SAMPLES
from relascope.viz.compare.runs import ComparedRun, run_of
from relascope.viz.panels.compared import comparison as compared
from relascope.viz.panels.shell import keeping, sidebar
from relascope.viz.panels.shell.frame import one_of, plain_text, show_error, waiting
from relascope.viz.panels.shell.holding import ask
from relascope.viz.panels.shell.request_cache import Waiting
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.tab_engines import cache_of_session, recording_screen
from relascope.viz.sessions import store
from relascope.viz.sessions.state import pipeline_text

_KIND, _IR, _PIPELINE = "keep_against", "keep_against_ir", "keep_against_pipeline"
_SAMPLE, _FILE, _SESSION = "keep_against_sample", "keep_against_file", "keep_against_session"
_UPLOADED = "against_uploaded"  # the id of the upload in use


def show(screen: Screen) -> None:
    """Draw the screen's program compared with the one chosen here."""
    both = screen.training and len(gradients(screen.ir)) > 1
    kinds = [kind for kind in _KINDS if both or kind != "gradient"]
    kinds = ["file", "session", "sample"] if screen.recorded else kinds
    own, other = replace(screen, label=sidebar.summary_of(screen)), None
    with st.container(horizontal=True, vertical_alignment="bottom", key="against"):
        kind = one_of("Compare with", kinds, _KIND, st, format_func=lambda k: _KINDS[k][0])
        try:
            other = _KINDS[kind][1](screen)
        except EngineError as error:
            show_error(error)
    if other is None:
        return
    sides = own, other
    try:
        compared.show(_run(own), _run(other), screen.cache, *(side.place for side in sides))
    except Waiting:
        for number, cache in enumerate({id(s.cache): s.cache for s in sides}.values()):
            if cache.running is not None:
                waiting(cache, "_other" * number)
        st.html("<div class='rs-skeleton'></div>")
    except EngineError as error:
        show_error(error, other.cache, "against")


def _run(side: Screen) -> ComparedRun:
    about = None if side.recorded is None else side.recorded.about
    return run_of(side.cache.ask, side.ir, side.source, side.pipeline, side.label, about)


def _ir(screen: Screen) -> str:
    if _IR not in st.session_state:
        st.session_state[_IR] = screen.ir
    return one_of("In", ENGINES, _IR, st, format_func=str.capitalize)


def _other_ir(screen: Screen) -> Screen:
    other = ENGINES[1 - ENGINES.index(screen.ir)]
    return _of_source(screen, other, screen.source, sidebar.summary_of(replace(screen, ir=other)))


def _other_gradient(screen: Screen) -> Screen:
    (other,) = (g for g in gradients(screen.ir) if g != screen.source.gradient)
    pipeline = sidebar.pipeline_of(screen.ir, True, other)
    found = replace(screen, source=replace(screen.source, gradient=other), pipeline=pipeline)
    return replace(found, label=sidebar.summary_of(found))


def _pipeline(screen: Screen) -> Screen:
    about = "As on the command line: `default`, `default|-fold`, `cse|fold|dce`."
    how = {"key": _PIPELINE, "width": "stretch", "help": about}
    text = ask(st.text_input, "Passes of B", value="default", **how)
    with refusing("usage", "{}.", "passes of B", "The tab Passes lists all passes."):
        found = typed_pipeline(screen.ir, text, screen.training, screen.source.gradient)
    return replace(screen, label=sidebar.summary_of(screen), pipeline=found)


def _sample(screen: Screen) -> Screen | None:
    titles = {name: sample.title for name, sample in SAMPLES.items()}
    named = titles.__getitem__
    name = ask(st.selectbox, "Sample of B", list(titles), key=_SAMPLE, format_func=named)
    ir = _ir(screen)
    if name is None:
        return None
    return _of_source(screen, ir, sidebar.sample_source(name), SAMPLES[name].title)


def _of_source(screen: Screen, ir: str, source: ModelSource, label: str) -> Screen:
    """A model in the page's mode, through the page's passes of its IR."""
    cache, own = cache_of_session(ir, sidebar.sample_source()), screen.source
    gradient = own.gradient if own.gradient in gradients(ir) else "tvm"
    source = replace(
        source, training=own.training, dtype=own.dtype, seed=own.seed, gradient=gradient
    )
    pipeline = sidebar.pipeline_of(ir, own.training, gradient)
    return Screen(ir, source, label, pipeline, screen.fewer_than, cache)


def _file(screen: Screen) -> Screen | None:
    upload = st.file_uploader(
        "File of B: a model, a module of TVM's, a recording",
        key="against_upload",
        max_upload_size=sidebar.UPLOAD_LIMIT_MB,
        help=sidebar.CAREFUL,
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
    if is_recording(kept):
        return recording_screen(str(kept))
    return _of_source(screen, _ir(screen), source_from_file(kept), kept.name)


def _session(screen: Screen) -> Screen | None:
    here, _ = keeping.now()
    entries = {e.id: e for e in store.entries() if e.id != here}
    named = {i: f"{e.title}, {e.when}" for i, e in entries.items()}
    how: Any = {"key": _SESSION, "format_func": named.__getitem__, "index": None}
    how["placeholder"] = "Choose a session"
    ident = ask(st.selectbox, "Session of B", list(named), **how)
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
    if file is not None and is_recording(file):
        return recording_screen(str(file))
    source = session.model.source(str(file or ""))
    pipeline = read_pipeline(session.ir, pipeline_text(session))
    cache = cache_of_session(session.ir, sidebar.sample_source())
    return Screen(session.ir, source, entries[ident].title, pipeline, screen.fewer_than, cache)


_KINDS: dict[str, tuple[str, Callable[[Screen], Screen | None]]] = {
    "ir": ("The other IR", _other_ir),
    "gradient": ("The other gradient", _other_gradient),
    "pipeline": ("Another pipeline", _pipeline),
    "sample": ("Another sample", _sample),
    "file": ("A file", _file),
    "session": ("A kept session", _session),
}
