"""A session that opens files as an engine does, and needs no TVM."""

import os
import socket
import tempfile
from pathlib import Path

from relascope.engine.protocol.targets import EngineInfo
from relascope.engine.sandbox import restrictions


class OpeningSession:
    """Opens model files."""

    def describe(self, *, progress):
        return EngineInfo("none", "0", "", (), sandbox=restrictions())

    def open(self, source, *, progress):
        from relascope.engine.files.onnx_model import FOLDED, prepare, read_onnx
        from relascope.engine.pytorch.model import guarded, load_model  # it imports torch

        path = Path(source.model)
        if path.suffix == ".onnx":
            with guarded(source):
                known = FOLDED | {"MatMul", "Relu", "If"}
                return prepare(read_onnx(path), known, "relax", path.name).inputs
        return load_model(source, progress).source.inputs

    def tensors(self, path, *, progress):
        from relascope.engine.files.opening import opening
        from relascope.engine.files.tensors import read_tensors

        with opening(Path(path)):
            return [tuple(t.shape) for _, t in read_tensors(Path(path))]

    def replayed(self, path, *, progress):
        from relascope.engine.pytorch.model import load_model
        from relascope.viz.sessions import address, facts, replay, results

        with tempfile.TemporaryDirectory() as folder:
            session, model = replay.read(path, Path(folder))
            facts.of(session)
            address.written(session)
            session.text().encode()
            list(results.differences(session.results, {"errors": {"comparisons": []}}))
            source = session.model.source(model)
            return load_model(source, progress).source.inputs if model else ()

    def reach(self, path, port, *, progress):
        """Which of what a sandbox keeps a process from can be done all the same."""
        Path(tempfile.gettempdir(), "own").write_text("own")
        tries = {
            "a read-only disk": lambda: Path(path).write_text("not own"),
            "no network": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
            "signals only to itself": lambda: os.kill(os.getppid(), 0),
        }
        done = []
        for what, attempt in tries.items():
            try:
                attempt()
                done.append(what)
            except OSError:
                pass
        return tuple(done)
