"""An ONNX file as a program: read, simplify, import, and compare with ONNX Runtime."""

from pathlib import Path
from typing import Any

import torch

from relascope.core.errors import lines_of
from relascope.engine.files.onnx_model import prepare_onnx, read_onnx
from relascope.engine.protocol.results import IMPORTED
from relascope.engine.protocol.session import Progress
from relascope.engine.protocol.source import ModelSource
from relascope.engine.pytorch.baselines import onnx_runtime
from relascope.engine.server.program_model import Imported


def read(path: Path, source: ModelSource, progress: Progress, ir: str, importer: Any) -> Imported:
    """An ONNX file as an engine's program, by the engine's `frontend.onnx`. Raises EngineErrors
    (kind "file", "input", "operator")."""
    progress(0.0, "reading the model")
    known = importer.known_operators()
    model = prepare_onnx(read_onnx(path), known, ir, path.name, source.inputs)
    progress(0.3, "converting operators")
    program = importer.import_onnx(model, path.name)
    run, against, notes = None, IMPORTED, list(model.notes)
    if not onnx_runtime.is_installed():
        notes.append("ONNX Runtime is not installed (pip install relascope[onnxruntime]).")
    else:
        try:
            run = onnx_runtime.runner(model.given.SerializeToString(), model.names)
            against = onnx_runtime.NAME
        except Exception as wrong:  # its errors have no common base
            said = (lines_of(wrong) or [type(wrong).__name__])[0][:200]
            notes.append(f"ONNX Runtime refuses the model: {said}")
    return Imported(
        program=program,
        inputs=model.inputs,
        tensors={n: torch.from_numpy(model.weights[n].copy()) for n in program.params},
        outputs=model.outputs,
        run=run,
        against=against,
        notes=tuple(notes),
    )
