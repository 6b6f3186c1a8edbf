"""The kept sessions: a button, and a dialog to open, name, compare, delete and export them."""

import io
import math
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import streamlit as st

from relascope.core.errors import EngineError
from relascope.engine.files.formats import is_recording
from relascope.viz.handed_on.session import sheet_at_once
from relascope.viz.panels.shell import keeping
from relascope.viz.panels.shell.frame import download, heading, plain_text, show_error
from relascope.viz.panels.shell.holding import pressed
from relascope.viz.panels.shell.tab_engines import cache_of_session
from relascope.viz.panels.shell.table import grid
from relascope.viz.sessions import facts, replay, store
from relascope.viz.sessions.results import changes_of
from relascope.viz.sessions.state import Session


def button() -> None:
    """The button that opens the dialog; below it, why the session could not be saved, if so."""
    if pressed("Sessions", "sessions", icon=":material/history:", width="stretch"):
        _dialog()
    if (error := st.session_state.get("keep_failed")) is not None:
        show_error(error)


@st.dialog("Sessions", width="large")
def _dialog() -> None:
    try:
        _content()
    except EngineError as error:
        show_error(error)


def _content() -> None:
    ident, session = keeping.now()
    entries = store.entries()
    mine = next((e for e in entries if e.id == ident), None)
    if session is not None:
        _this(session, mine)
    heading("Kept on this machine")
    if not entries:
        st.caption("This screen is saved here as soon as you change something.")
    else:
        _kept(ident, entries)
    upload = st.file_uploader("Open a replay file", type="zip", max_upload_size=1100)
    if upload is not None:
        _open_file(upload)


def _this(session: Session, mine: store.Entry | None) -> None:
    name, file = st.columns([3, 1.3], vertical_alignment="bottom")
    given = name.text_input(
        "This session",
        mine.name if mine else "",
        key="session_name",
        placeholder=keeping.about(session),
        max_chars=120,
        disabled=mine is None,
    )
    if mine is not None and given.strip() != mine.name:
        store.rename(mine.id, given)
        st.rerun(scope="fragment")
    model = st.session_state.get("upload_path") if session.model.digest else None
    kept = (st.session_state.get("tensor_paths") or ()) if session.model.tensors else ()
    tensors = tuple(zip(kept, session.model.tensors, strict=True))
    source = replace(session.model.source(model or ""), tensors=tensors)
    ask = None
    if not (model and is_recording(Path(model))):
        ask = partial(cache_of_session(session.ir, source).ask, patience=math.inf)

    def data() -> bytes:  # once the button is pressed
        page, made = sheet_at_once(ask, session, source), io.BytesIO()
        replay.write(made, session, model, kept, page.data() if page else None)
        return made.getvalue()

    help_ = "Model, settings and results in one file: open it here or elsewhere, run it with "
    help_ += "`relascope replay FILE`, or drop it on a page that `relascope viewer` wrote."
    download("Replay file", data, "session.zip", "session_file", file, help=help_, width="stretch")


def _kept(ident: str, entries: list[store.Entry]) -> None:
    rows = []
    for e in entries:
        name = f"{e.name}: {e.about}" if e.name else e.about
        here = " (this tab)" if e.id == ident else ""
        rows.append({"changed": e.when, "session": name + here})
    picked = grid(
        rows,
        key="session_table",
        on_select="rerun",
        selection_mode="multi-row",
        height="auto" if len(rows) < 8 else 290,
        wide={"changed": 100},
    )
    chosen = [entries[i] for i in picked]
    row = st.container(horizontal=True, vertical_alignment="center")
    if pressed("Open", "session_open", row, type="primary", disabled=len(chosen) != 1):
        found = store.get(chosen[0].id)
        if found is not None:
            keeping.go_to(found, chosen[0].id)
        st.rerun()
    if pressed("Delete", "session_delete", row, disabled=not chosen):
        for entry in chosen:
            store.delete(entry.id)
            keeping.forget(entry.id)
        st.rerun(scope="fragment")
    if len(chosen) == 2:
        _compare(*chosen)
    else:
        row.caption("Choose one to open it, two to compare them.")


def _compare(one: store.Entry, other: store.Entry) -> None:
    left, right = (store.get(e.id) for e in (one, other))
    if left is None or right is None:
        return
    found = changes_of(facts.of(left), facts.of(right))
    rows = [{"what": d["where"], "first": d["then"], "second": d["now"]} for d in found]
    st.caption(plain_text(f"First: {one.title}. Second: {other.title}."))
    if rows:
        grid(rows)
    else:
        st.caption("Their choices and results are the same.")


def _open_file(upload: io.BytesIO) -> None:
    with tempfile.TemporaryDirectory(prefix="relascope-") as folder:
        session, path = replay.read(upload, Path(folder))
        files = [(path, session.model.digest)] if path else []
        files += [(str(f), f.name) for f in Path(folder, "tensors").glob("*")]
        ident = store.new_id()
        store.put(ident, session, keeping.about(session), files)
    keeping.go_to(session, ident)
    st.rerun()
