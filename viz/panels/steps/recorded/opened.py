"""An open recording, with results cached so far."""

import base64
import json
import threading
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import streamlit as st

from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.core.memo import Memo
from relascope.engine.protocol.source import file_digest
from relascope.recorder.reading import PassRun, Recording, read
from relascope.viz.panels.steps import changes
from relascope.viz.rows import Row
from relascope.viz.rows.recording import list_rows, pass_rows, recording_document
from relascope.viz.rows.step_list import StepChange

_KEPT = 96  # derived results: graphs, differences, texts side by side
_REST = 0.15  # seconds to look at a pass before the next one is computed


@dataclass
class OpenedRecording:
    """A recording with its file's path and `engine.protocol.source.file_digest`, and its
    `pass_rows`, `recording_document` and `packed` rows."""

    path: str
    digest: str
    recording: Recording
    rows: list[Row]
    document: Row
    packed: str
    _memo: Memo[Any] = field(default_factory=lambda: Memo(_KEPT))
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _timer: threading.Timer | None = None

    def derive(self, make: Callable[[], Any], *key: Hashable) -> Any:
        """The result of `make`, cached by `key`, as by `RequestCache.derive`."""
        with self._lock:
            return self._memo.get(key, make)

    def ahead(self, index: int, function: str) -> None:
        """Compute the next pass that changed a function, or any (""), in a thread."""
        if self._timer is not None:
            self._timer.cancel()
        if (known := self.next_changed(index, function)) is not None:
            self._timer = threading.Timer(_REST, self.work_out, known)
            self._timer.daemon = True
            self._timer.start()

    def next_changed(self, index: int, function: str) -> tuple[PassRun, str] | None:
        """The next pass in the list that changed something, and the function to show."""
        for row in self.rows[index + 1 :]:
            if row["touched"] and function in ("", *row["touched"]):
                return self.recording.passes[row["number"] - 1], function or row["touched"][0]
        return None

    def work_out(self, run: PassRun, function: str) -> None:
        """Derive a pass's data, as far as no view is needed."""
        old, new = ((side or {}).get(function) for side in (run.before, run.after))
        if old is None or new is None:
            return
        with suppress(EngineError):  # shown with the pass
            if self.change(old, new) is None:
                self.text(old, new, False)

    def graph(self, name: str | None) -> Graph | None:
        """A content's graph, with the ids of its last comparison, or None."""
        if name is None:
            return None
        return self.derive(lambda: self.recording.graph(name), "graph", name)

    def with_kernels(self, graph: Graph, functions: Mapping[str, str]) -> Graph:
        """A graph with the texts of the kernels that it calls; `functions` has contents by name."""
        called = {n.kernel: functions[n.kernel] for n in graph if n.kernel in functions}

        def make() -> tuple[Graph, Graph]:  # keeps the graph alive, because the key has its address
            texts = {name: self.recording.text(content) for name, content in called.items()}
            return graph, replace(graph, kernels=texts)

        pair: tuple[Graph, Graph] = self.derive(make, "kernels", id(graph), *called.items())
        return pair[1]

    def change(self, old: str | None, new: str | None) -> StepChange | None:
        """How a function's graph differs from the one before, or the only one of both; None if it
        has none."""
        with self._lock:
            after = self.graph(new or old)
            before = self.graph(old) if new not in (None, old) else None
            if after is None:
                return None
            if before is None:  # the result keeps the graph alive, because the key has its address
                return self.derive(lambda: StepChange.between(None, after), "alone", id(after))

            def make() -> StepChange:
                change = StepChange.between(before, after, f"{self.digest}:{old}:{new}")
                # The next step is compared with this graph, so nodes keep their ids, and therefore
                # their places.
                self._memo.put(("graph", new), change.matched.graph)
                _ = change.rows, change.with_removed
                return change

            return self.derive(make, "change", old, new)

    def text(self, old: str | None, new: str | None, whole: bool) -> str:
        """Two contents, or None, as `changes.text_data`."""

        def make() -> str:
            texts = ["" if name is None else self.recording.text(name) for name in (old, new)]
            return changes.text_data(texts[0], texts[1], whole)

        return self.derive(make, "text", old, new, whole)


def packed(rows: Sequence[Row]) -> str:
    """Rows of `list_rows`, deflated, as base64."""
    raw = json.dumps(list_rows(rows), separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(raw, 6)).decode()


def read_once(path: str) -> OpenedRecording:
    """The recording in a file, read once per session unless it changes; raises as
    `recorder.reading.read`."""
    about = Path(path).stat()
    place = path, about.st_size, about.st_mtime_ns
    known: tuple[object, OpenedRecording] | None = st.session_state.get("recording_opened")
    if known is None or known[0] != place:
        recording = read(Path(path))
        rows = pass_rows(recording)
        read_of_it = recording, rows, recording_document(recording, rows), packed(rows)
        made = OpenedRecording(path, file_digest(Path(path)), *read_of_it)
        known = st.session_state.recording_opened = place, made
    return known[1]
