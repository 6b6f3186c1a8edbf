"""The sidebar: which model, with which inputs, in which mode, and which engine serves it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from html import escape
from math import ceil
from pathlib import Path

import streamlit as st

from relascope.core.errors import EngineError
from relascope.core.scratch import Scratch
from relascope.engine.protocol.source import ModelSource, source_from_file
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import GRADIENTS, default_pipeline, gradients, read_pipeline
from relascope.passes.pipeline import Pipeline
from relascope.samples import SAMPLES
from relascope.viz.panels.shell.frame import boundary, one_of, show_error
from relascope.viz.panels.shell.request_cache import RequestCache
from relascope.viz.panels.shell.screen import Screen
from relascope.viz.panels.shell.settings import recall, remember
from relascope.viz.panels.shell.spare import limit_key, limits
from relascope.viz.rows import formats
from relascope.viz.sessions.state import FIRST

FILE = "A file of your own"
MODES = ("Inference", "Training")
_UPLOAD_LIMIT_MB = 1024


def first_source() -> ModelSource:
    """The model that a new page opens with."""
    sample = SAMPLES[FIRST]
    return ModelSource(FIRST, batch=sample.default_batch, tokens=sample.default_tokens)


def choose_ir(problem: EngineError | None) -> str:
    """Draw the name and the choice of IR; "relay" or "relax".

    Args:
        problem: why Relay cannot be loaded; None where it can. The page then opens in what was
            chosen last, in Relay the first time; where Relay cannot be loaded, in Relax. A reload
            of the page and a link keep the choice by the address's `ir`.
    """
    st.html(
        "<div class='rs-name'>relascope</div>"
        "<div class='rs-purpose'>TVM graphs of PyTorch models: see them, step the passes, "
        "cut forward from backward, compile and time.</div>"
    )
    if problem is not None:
        show_error(problem)
        st.caption("The page goes on with Relax alone.")
        return "relax"
    state = st.session_state
    if "ir" not in state:
        state.ir = "relax" if recall("ir") == "relax" else "relay"
    ir = st.segmented_control(
        "IR",
        ENGINES,
        key="ir",
        required=True,
        width="stretch",
        format_func=str.capitalize,
        help="Relay: TVM up to 0.19, with the gradient and the cut. Relax: TVM today.",
    )
    ir = ir or "relay"
    if ir != state.setdefault("ir_before", ir):  # chosen here, not by a link
        remember("ir", ir)
    state.ir_before = ir
    return ir


def show(cache: RequestCache, ir: str) -> Screen | None:
    """Draw the model's settings; what was chosen, or None while there is no model to look at."""
    state = st.session_state
    state.setdefault("keep_model", FIRST)
    state.setdefault("keep_fewer_than", 10)
    choice = st.selectbox(
        "Model",
        [*SAMPLES, FILE],
        key="keep_model",
        format_func=lambda name: SAMPLES[name].title if name in SAMPLES else name,
    )
    if choice is None or choice == FILE:
        source, label = _file()
    else:
        source, label = _sample(choice), choice
    mode = one_of(
        "Mode",
        MODES,
        "keep_mode",
        width="stretch",
        help="Inference: eval mode, weights may be folded in. Training: train mode with dropout, "
        "and the gradient of every parameter.",
    )
    gradient = _gradient(ir) if mode == MODES[1] else "tvm"
    with st.expander("Settings"):
        dtype = one_of("Numbers", ["float32", "float64"], "keep_dtype", width="stretch")
        seed = st.number_input(
            "Seed",
            0,
            2**31 - 1,
            key="keep_seed",
            help="Of the random weights, the inputs, the dropout masks and grad_out.",
        )
        fewer_than = st.number_input(
            "Constants into labels below",
            0,
            1000,
            key="keep_fewer_than",
            help="A constant with fewer elements is written into its reader's label.",
        )
    with st.expander("Limits"):
        st.caption("Seconds that a call may take, by its kind; 0 is no limit.")
        for kind, seconds in limits().calls.items():
            state.setdefault(limit_key(kind), ceil(seconds))
            st.number_input(kind.capitalize(), 0, 1_000_000, key=limit_key(kind))
    if source is None:
        return None
    source = replace(
        source, training=mode == MODES[1], dtype=dtype, seed=int(seed), gradient=gradient
    )
    pipeline = pipeline_of(ir, source.training, gradient)
    return Screen(ir, source, label, pipeline, int(fewer_than), cache)


def _gradient(ir: str) -> str:
    """Whose gradient, where the IR leaves a choice."""
    known = gradients(ir)
    if len(known) < 2:
        return known[0]
    return one_of(
        "Gradient",
        known,
        "keep_gradient",
        width="stretch",
        format_func=GRADIENTS.__getitem__,
        help="TVM's: its automatic differentiation, as a pass over the imported forward. "
        "PyTorch's: forward and backward as PyTorch's autograd records them, imported whole.",
    )


def pipeline_of(ir: str, training: bool, gradient: str = "tvm") -> Pipeline:
    """The pipeline of a mode as the user left it."""
    text = st.session_state.get(pipeline_key(ir, training, gradient))
    if text is None:
        return default_pipeline(ir, training, gradient)
    return read_pipeline(ir, text)


def set_pipeline(screen: Screen, pipeline: Pipeline | None) -> None:
    """Remember the pipeline of a mode; None goes back to the default."""
    key = pipeline_key(screen.ir, screen.training, screen.source.gradient)
    st.session_state[key] = None if pipeline is None else str(pipeline)


def pipeline_key(ir: str, training: bool, gradient: str = "tvm") -> str:
    """Where the pipeline of a mode is remembered."""
    mode = "training" if training else "inference"
    return f"pipeline_{ir}_{mode}" if gradient == "tvm" else f"pipeline_{ir}_{mode}_{gradient}"


def _sample(name: str) -> ModelSource:
    sample = SAMPLES[name]
    st.caption(f"{sample.summary} {formats.number(sample.parameters)} parameters.")
    left, right = st.columns(2)
    batch_key, tokens_key = f"keep_batch_{name}", f"keep_tokens_{name}"
    st.session_state.setdefault(batch_key, sample.default_batch)
    batch = left.number_input("Batch", 1, 1024, key=batch_key)
    tokens = None
    if sample.has_tokens:
        st.session_state.setdefault(tokens_key, sample.default_tokens)
        tokens = int(right.number_input("Tokens", 1, 4096, key=tokens_key))
    return ModelSource(name, batch=int(batch), tokens=tokens)


def _file() -> tuple[ModelSource | None, str]:
    """An uploaded trace, kept in a folder of this session. It is not unpickled in this process."""
    upload = st.file_uploader(
        "TorchScript trace (.pt) or exported program (.pt2)",
        key="upload",
        max_upload_size=_UPLOAD_LIMIT_MB,
        help="Saved with torch.jit.save or torch.export.save. Opening a file runs code of torch: "
        "open only files that you trust.",
    )
    state = st.session_state
    if upload is not None and state.get("upload_id") != upload.file_id:
        if "upload_folder" not in state:
            state.upload_folder = Scratch()
        name = Path(upload.name).name or "model.pt"
        folder = (
            Path(state.upload_folder.name) / hashlib.sha256(upload.file_id.encode()).hexdigest()
        )
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(upload.getbuffer())
        state.upload_id, state.upload_path = upload.file_id, str(folder / name)
    path = state.get("upload_path")
    state.setdefault("keep_inputs", "")
    inputs = st.text_area(
        "Inputs, one a line",
        key="keep_inputs",
        height=96,
        placeholder="hidden=1x14x768:float32\nmask=1x1x1x14:float32",
        help="Name, shape and dtype of each argument of forward(), in order. The name may be "
        "left out.",
    )
    if path is None:
        st.caption("Choose a file to look at.")
        return None, ""
    label = Path(path).name
    try:
        return source_from_file(path, inputs), label
    except EngineError as error:
        show_error(error)
        return None, label


def engine_status(cache: RequestCache) -> None:
    """One line on which TVM serves the page and what it compiles for here."""
    with boundary(cache):
        info = cache.ask("describe", patience=0.2)
        here = next((t for t in info.targets if t.runs_here), None)
        device = here.device if here else "nothing on this machine"
        bytes_ = cache.client.memory
        memory = f"{formats.size(bytes_)} of memory" if bytes_ else "resting until it is asked"
        room = "In a room with " + ", ".join(info.room) if info.room else "In no room of its own"
        st.html(
            f"<div class='rs-status' title='Loaded from {escape(info.path, quote=True)}'>"
            f"TVM {escape(info.version)} ({info.ir.capitalize()})<br>{escape(device)}<br>{memory}"
            f"<br>{escape(room)}</div>"
        )
