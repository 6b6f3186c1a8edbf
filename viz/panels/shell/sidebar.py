"""The sidebar: the model, its inputs, its mode, and its engine."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from math import ceil
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit import session_state as state

from relascope.core.errors import EngineError
from relascope.core.scratch import Scratch
from relascope.engine.files.formats import format_of, is_program, is_recording, is_relax_json
from relascope.engine.protocol.results import ModelInfo, ModelInputs, NamedModel
from relascope.engine.protocol.source import (
    ModelSource,
    bundled,
    linkable,
    parse_pins,
    source_from_file,
    with_tensors,
)
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import GRADIENTS, default_pipeline, gradients, read_pipeline
from relascope.passes.pipeline import Pipeline
from relascope.samples import SAMPLES
from relascope.viz.panels.shell.frame import boundary, one_of, plain_text, show_error
from relascope.viz.panels.shell.holding import put, rerun
from relascope.viz.panels.shell.request_cache import RequestCache, Waiting
from relascope.viz.panels.shell.screen import Screen, look_at
from relascope.viz.panels.shell.settings import recall, remember
from relascope.viz.panels.shell.tab_engines import limit_key, page_limits
from relascope.viz.rows import formats
from relascope.viz.sessions.state import FIRST, SETTINGS, ScreenState, pipeline_key

FILE = "A file of your own"
NAMED = "A model of a library, by name"
MODES = ("Inference", "Training")
KINDS = (
    (".pt", "a trace, of torch.jit.save"),
    (".pt2", "an exported program, of torch.export.save"),
    (".onnx", "an ONNX model, with the files of its data"),
    (".json .txt .py", "a module of TVM's, Relay or Relax, as JSON or text"),
    (".params", "its parameters, beside it"),
    (".rsc", "a recording of a compile"),
)
"""Endings of the files that can be opened, with descriptions."""
CAREFUL = "Opening a model's file runs code of torch or TVM: open only files that you trust."
UPLOAD_LIMIT_MB = 1024


def sample_source(name: str = FIRST) -> ModelSource:
    """A sample at its default sizes; by default, the one that a new page opens."""
    return ModelSource(name, SAMPLES[name].default_batch, SAMPLES[name].default_tokens)


def head() -> None:
    st.html(
        "<div class='rs-name'>relascope</div>"
        "<div class='rs-purpose'>See PyTorch models as TVM graphs, step passes, cut forward from "
        "backward, compile and time.</div>"
    )


def recording() -> str | None:
    """The path of the recording that the page shows; None for a model."""
    path = state.get("upload_path")
    if not path or state.get("keep_model") != FILE or not Path(path).is_file():
        return None
    return str(path) if is_recording(Path(path)) else None


def of_recording() -> None:
    """Draw the sidebar for a recording: choices of a model or another file instead."""
    if "ir" in state:  # keep it while its control is not drawn
        state.ir = state.ir
    _model()
    _upload()


def choose_ir(problem: EngineError | None) -> str:
    """Draw the choice of IR, by default the last; Relax if `problem` is why Relay cannot load."""
    if problem is not None:
        show_error(problem)
        st.caption("The page goes on with Relax alone.")
        return "relax"
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
    """Draw the model's settings; the screen, or None without a model."""
    state.setdefault("keep_fewer_than", ScreenState.fewer_than)
    choice = _model()
    below = None
    if choice == FILE:
        source, label = _file()
        below = st.container()
    elif choice == NAMED:
        source, label = _named(cache)
    else:
        source, label = _sample(choice), choice
    about = "Inference: eval mode, weights may be folded in. Training: train mode with dropout, "
    about += "and the gradient of every parameter."
    mode = one_of("Mode", MODES, "keep_mode", width="stretch", help=about)
    gradient = _gradient(ir) if mode == MODES[1] else "tvm"
    with st.expander("Settings"):
        dtype = one_of("Numbers", SETTINGS["model.dtype"].choices, "keep_dtype", width="stretch")
        about = "For random weights, inputs, dropout masks and grad_out."
        seed = st.number_input("Seed", **_number("model.seed"), help=about)
        about = "A constant with fewer elements is written into its reader's label."
        fewer_than = st.number_input(
            "Constants in labels below", **_number("look.fewer_than"), help=about
        )
    with st.expander("Limits"):
        st.caption("Seconds that a call of each kind may take; 0 means no limit.")
        for kind, seconds in page_limits().calls.items():
            state.setdefault(limit_key(kind), ceil(seconds))
            st.number_input(kind.capitalize(), 0, 1_000_000, key=limit_key(kind))
    if source is None:
        return None
    if state.setdefault("keep_piece_of", (label, source.digest)) != (label, source.digest):
        state.keep_piece_of = label, source.digest
        look_at("")
    source = replace(
        source,
        training=mode == MODES[1],
        dtype=dtype,
        seed=int(seed),
        gradient=gradient,
        module=state.get("keep_module") or "",
        call=int(state.get("keep_call") or 1),
    )
    if below is not None:
        with below:
            _guessed(cache, source)
    pipeline = pipeline_of(ir, source.training, gradient)
    return Screen(ir, source, label, pipeline, int(fewer_than), cache)


def _number(path: str, key: str = "") -> dict[str, Any]:
    """Arguments of the control of a number, from its `Setting`."""
    setting = SETTINGS[path]
    return {"min_value": setting.least, "max_value": setting.most, "key": key or setting.widget}


def summary_of(screen: Screen) -> str:
    """The screen in a few words, for a folded sidebar."""
    if screen.recorded:
        return screen.label
    name = SAMPLES[screen.label].title if screen.label in SAMPLES else screen.label
    gradient = screen.source.gradient
    whose = "" if gradient == "tvm" else f", {GRADIENTS[gradient]} gradient"
    return f"{name} · {screen.ir.capitalize()} · {MODES[screen.training].lower()}{whose}"


def _model() -> str:
    state.setdefault("keep_model", FIRST)
    choice = st.selectbox(
        "Model",
        [*SAMPLES, NAMED, FILE],
        key="keep_model",
        format_func=lambda name: SAMPLES[name].title if name in SAMPLES else name,
    )
    return choice or FILE


def piece(screen: Screen) -> None:
    """Above the tabs: the submodule that is open alone, and a button back to the whole model."""
    source = screen.source
    if not source.module:
        return
    calls, name = 1, screen.label
    name = SAMPLES[name].title if name in SAMPLES and not source.digest else name
    with suppress(EngineError):
        info: ModelInfo | None = screen.cache.peek("load", source)
        calls = source.call if info is None else info.calls
    with st.container(horizontal=True, key="piece", vertical_alignment="center"):
        st.button(
            "Whole model", key="whole", icon=":material/arrow_back:", on_click=look_at, args=("",)
        )
        st.html(
            f"<div class='rs-piece'>Only <code>{escape(source.module)}</code> of "
            f"{escape(name)}, on its inputs there</div>"
        )
        if calls > 1:
            st.number_input(f"Call of {calls}", 1, calls, key="keep_call", width=110)


def _gradient(ir: str) -> str:
    if len(known := gradients(ir)) < 2:
        return known[0]
    about = "TVM's: its automatic differentiation, as a pass over the imported forward. "
    about += "PyTorch's: forward and backward as PyTorch's autograd records them, imported whole."
    how: Any = {"width": "stretch", "format_func": GRADIENTS.__getitem__, "help": about}
    return one_of("Gradient", known, "keep_gradient", **how)


def pipeline_of(ir: str, training: bool, gradient: str = "tvm") -> Pipeline:
    """A mode's pipeline as the user left it."""
    text = state.get(pipeline_key(ir, training, gradient))
    return default_pipeline(ir, training, gradient) if text is None else read_pipeline(ir, text)


def set_pipeline(screen: Screen, pipeline: Pipeline | None) -> None:
    """Set the pipeline of the screen's mode; None restores the default."""
    key = pipeline_key(screen.ir, screen.training, screen.source.gradient)
    state[key] = None if pipeline is None else str(pipeline)


def _sample(name: str) -> ModelSource:
    sample = SAMPLES[name]
    st.caption(f"{sample.summary} {formats.number(sample.parameters)} parameters.")
    left, right = st.columns(2)
    batch_key, tokens_key = f"keep_batch_{name}", f"keep_tokens_{name}"
    state.setdefault(batch_key, sample.default_batch)
    batch = left.number_input("Batch", **_number("model.batch", batch_key))
    tokens = None
    if sample.default_tokens is not None:
        state.setdefault(tokens_key, sample.default_tokens)
        tokens = int(right.number_input("Tokens", **_number("model.tokens", tokens_key)))
    return ModelSource(name, batch=int(batch), tokens=tokens)


def _named(cache: RequestCache) -> tuple[ModelSource | None, str]:
    """A model of transformers, torchvision or timm; nothing is downloaded."""
    known: tuple[NamedModel, ...] = ()
    with boundary(cache), suppress(Waiting):
        known = cache.ask("models", "*", False, patience=0.2)
    chosen = state.get("keep_name")
    names: list[Any] = [m.name for m in known]
    names = names if chosen in (None, *names) else [chosen, *names]
    empty = "Type to search, such as bert" if known else "Looking for models"
    about = "hf: types and classes of transformers, and models in its local cache. torchvision: "
    about += "and timm: if they are installed."
    name = st.selectbox("Name", names, index=None, key="keep_name", placeholder=empty, help=about)
    state.setdefault("keep_random", True)
    about = "If off, weights that are on this machine; nothing is downloaded."
    random = st.checkbox("Random weights", key="keep_random", help=about)
    if not name:
        st.caption("Choose a model.")
        return None, ""
    with boundary(cache), suppress(Waiting):
        for one in cache.ask("models", name, patience=0.2):
            count = f", {formats.number(one.parameters)} parameters" if one.parameters else ""
            st.caption(f"{one.kind}{count}{' by default' if name.startswith('hf:') else ''}.")
    changes = ""
    if name.startswith("hf:"):
        key, like = f"keep_changes_{name}", "num_hidden_layers=2&hidden_size=64"
        about = "Settings of the configuration: NAME=VALUE, joined by &."
        changes = st.text_input("Changed settings", key=key, placeholder=like, help=about).strip()
    full = f"{name}?{changes}" if changes else name
    if not linkable(full):
        said = f"{changes[:80]!r} is not a list of settings."
        show_error(EngineError("usage", said, "", "Write NAME=VALUE, joined by &."))
        return None, name
    left, right = st.columns(2)
    own: dict[str, Any] = {"value": None, "placeholder": "its own"}
    batch = left.number_input("Batch", **_number("model.batch", f"keep_batch_{full}"), **own)
    tokens = right.number_input("Tokens", **_number("model.tokens", f"keep_tokens_{full}"), **own)
    return ModelSource(full, batch=batch, tokens=tokens, weights="random" if random else ""), full


def _upload() -> None:
    """A user's file, not unpickled in this process. For a recording, the page starts over."""
    uploads = st.file_uploader(
        "A file, dropped here or anywhere",
        key="upload",
        accept_multiple_files=True,
        max_upload_size=UPLOAD_LIMIT_MB,
        help="\n".join(f"- `{endings}` {what}" for endings, what in KINDS)
        + f"\n\n{CAREFUL} `relascope record` writes recordings.",
    )
    if not uploads:
        st.caption(" ".join(endings for endings, _ in KINDS))
    ident = " ".join(upload.file_id for upload in uploads)
    if uploads and state.get("upload_id") != ident:
        paths = [Path(stored_upload(upload, "model.pt", ident)) for upload in uploads]
        state.upload_id, before = ident, recording()
        look_into(str(_model_among(paths)))
        if before or recording():
            rerun()


def _model_among(paths: Sequence[Path]) -> Path | str:
    """The last model of some files, with its parameters; other files are its data."""
    models = [path for path in paths if path.suffix != ".params" and format_of(path)]
    model = (models or paths)[-1]
    beside = [path for path in paths if path not in models]
    if models and beside and is_program(model):
        return bundled((model, *beside), model.parent)
    return model


def open_text(text: str, name: str) -> None:
    """Open a module of TVM's, as JSON in a file of this name, from the next run on."""
    path = session_folder(hashlib.sha256(text.encode()).hexdigest()) / name
    path.write_text(text, encoding="utf-8")
    look_into(str(path))
    put("keep_model", FILE)
    put("keep_mode", MODES[0])
    put("keep_inputs", "")
    put("ir", "relax" if is_relax_json(text) else "relay")


def session_folder(name: str) -> Path:
    """A folder of this session, deleted with it."""
    if "upload_folder" not in state:
        state.upload_folder = Scratch()
    folder = Path(state.upload_folder.name) / name
    folder.mkdir(exist_ok=True)
    return folder


def look_into(path: str | None) -> None:
    """Show a file, a model or a recording, from now on; None for none."""
    state.upload_path = path
    state.keep_pins, state.tensor_paths = "", ()
    for name in ("recorded_pass", "keep_recorded_function"):
        state.pop(name, None)


def _file() -> tuple[ModelSource | None, str]:
    _upload()
    path = state.get("upload_path")
    state.setdefault("keep_inputs", "")
    inputs = st.text_area(
        "Inputs, one a line",
        key="keep_inputs",
        height=96,
        placeholder="hidden=1x14x768:float32\nmask=1x1x1x14:float32",
        help="Name, shape and dtype of each argument of forward(), in order. The name may be "
        "left out. Integers may have a range: `ids=1x14:int64:0..99`.",
    )
    _tensors()
    if path is None:
        st.caption("Choose a file.")
        return None, ""
    label = Path(path).name
    try:
        tensors = state.get("tensor_paths") or ()
        # Given shapes fix all sizes.
        pins = "" if inputs.strip() or tensors else state.get("keep_pins") or ""
        source = with_tensors(source_from_file(path, inputs, pins=pins), tensors)
        return replace(source, kernels=_kernels(path)), label
    except EngineError as error:
        show_error(error)
        return None, label


def _kernels(path: str) -> bool:
    """Whether the kernels in a module's file may run; asked for each file."""
    found = format_of(Path(path))
    if found is None or found.name not in ("json", "script", "tar"):
        return False
    about = "A TVM module may contain kernels of its own, which are code. They are always shown. "
    about += "If you switch this on, they run in the sandboxed engine."
    return st.toggle("Run the file's kernels", key=f"run_kernels_{path}", help=about)


def stored_upload(upload: Any, name: str, ident: str = "") -> str:
    """The path of an uploaded file in a folder of this session, shared by files of one `ident`."""
    folder = session_folder(hashlib.sha256((ident or upload.file_id).encode()).hexdigest())
    path = folder / (Path(upload.name).name or name)
    path.write_bytes(upload.getbuffer())
    return str(path)


def _tensors() -> None:
    """Saved inputs: each file is one set."""
    uploads = st.file_uploader(
        "Saved inputs (.npy, .npz, .safetensors, .pt)",
        key="tensors",
        accept_multiple_files=True,
        max_upload_size=UPLOAD_LIMIT_MB,
        help="By the names of forward()'s arguments, or in order; missing inputs are drawn at "
        "random. Each of several files is one set: the model is opened on the first, and a check "
        "can use any. Only plain tensors are unpickled.",
    )
    ids = tuple(u.file_id for u in uploads)
    if ids != state.get("tensor_ids", ()):
        state.tensor_ids = ids
        state.tensor_paths = tuple(stored_upload(u, "tensors") for u in uploads)
    if not uploads and state.get("tensor_paths"):
        names = ", ".join(Path(p).name for p in state.tensor_paths)
        st.caption(plain_text(f"Saved inputs: {names}"))
        none: tuple[Any, ...] = ({"tensor_paths": ()},)
        st.button("Without them", key="no_tensors", on_click=state.update, args=none)


def _guessed(cache: RequestCache, source: ModelSource) -> None:
    """A file's declared inputs, and a field for each of its open sizes."""
    whole = replace(source, module="", call=1, gradient="tvm")
    try:
        found: ModelInputs = cache.ask("inputs", replace(whole, pins=()), patience=0.2)
        pins = dict(source.pins)
        for size in found.sizes if not (source.inputs or source.tensors) else ():
            names = (size.symbol, *size.places)
            wanted = next((pins[n] for n in names if n in pins), size.size)
            key, most = f"pin_{size.symbol}", size.most or 2**31 - 1
            if state.get(key) != wanted and size.least <= wanted <= most:
                state[key] = wanted
            label = f"{', '.join(size.places)}: {size.least} to {size.most or 'any'}"
            about = (key, size.symbol, size.size, names)
            st.number_input(label, size.least, most, key=key, on_change=_pin, args=about)
        if pins:
            found = cache.ask("inputs", whole, patience=0.2)
    except (Waiting, EngineError):
        return
    said = zip(found.inputs, found.says, strict=True)
    st.caption("  \n".join(f"`{text}`: {plain_text(says)}" for text, says in said))
    if not state.keep_inputs.strip():
        text = ("keep_inputs", "\n".join(found.inputs))
        st.button("Edit these inputs", key="edit_inputs", on_click=put, args=text)


def _pin(key: str, symbol: str, usual: int, names: tuple[str, ...]) -> None:
    """Keep a chosen size, unless it is the example's own."""
    pins = {n: v for n, v in parse_pins(state.get("keep_pins") or "") if n not in names}
    if state[key] != usual:
        pins[symbol] = state[key]
    state.keep_pins = ", ".join(f"{n}={v}" for n, v in pins.items())


def engine_status(cache: RequestCache) -> None:
    """The engine's TVM, device, memory and sandbox."""
    with boundary(cache):
        info = cache.ask("describe", patience=0.2)
        here = next((t for t in info.targets if t.runs_here), None)
        device = here.device if here else "nothing on this machine"
        bytes_ = cache.client.memory
        memory = f"{formats.size(bytes_)} of memory" if bytes_ else "idle until a request"
        st.html(
            f"<div class='rs-status' title='Loaded from {escape(info.path, quote=True)}'>"
            f"TVM {escape(info.version)} ({info.ir.capitalize()})<br>{escape(device)}<br>{memory}"
            f"<br>{escape(formats.sandbox_words(info.sandbox).capitalize())}</div>"
        )
