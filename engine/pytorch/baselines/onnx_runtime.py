"""ONNX Runtime, if installed: the reference for an ONNX model's numbers, and a baseline.

It runs on the CPU with as many threads as PyTorch; they sleep between its runs.
"""

import io
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

NAME = "ONNX Runtime"


def is_installed() -> bool:
    with suppress(ImportError):
        return _runtime() is not None
    return False


def _runtime() -> Any:
    """The package, with telemetry off, for which it would otherwise write files on import."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    return onnxruntime


def session(model: bytes) -> Any:
    """A session that runs a serialized ModelProto with all its data inside. ONNX Runtime's errors
    for a model that it rejects have no common base class."""
    onnxruntime = _runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.log_severity_level = 4
    # Its threads would spin into the runs of baselines that are timed in turn with it.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def runner(
    model: bytes, names: Sequence[str]
) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
    """A function that runs a model on arrays by name; `names` are the model's names for them, in
    the order of the arrays."""
    made = session(model)
    taken = {i.name for i in made.get_inputs()}  # inputs that nothing reads may be gone

    def run(values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        given = dict(zip(names, values.values(), strict=True))
        return list(made.run(None, {n: v for n, v in given.items() if n in taken}))

    return run


def exported(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    """A module under ONNX Runtime, as a function of tensors that returns a tuple of tensors.
    PyTorch or ONNX Runtime may raise anything if it cannot be exported."""
    with (
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        tempfile.TemporaryDirectory(prefix="relascope-") as folder,
    ):
        warnings.simplefilter("ignore")
        if isinstance(module, torch.jit.ScriptModule):
            written = Path(folder, "model.onnx")
            torch.onnx.export(module, inputs, written, dynamo=False, opset_version=18)
            model = written.read_bytes()
        else:
            program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
            assert program is not None
            model = program.model_proto.SerializeToString()
    made = session(model)
    names = [i.name for i in made.get_inputs()]

    def run(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = dict(zip(names, (t.detach().numpy() for t in given), strict=True))
        return tuple(torch.from_numpy(a) for a in made.run(None, values))

    return run
