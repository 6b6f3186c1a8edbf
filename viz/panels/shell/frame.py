"""The frame of every tab: the page's style, errors as sentences, progress with Cancel."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from relascope.core.errors import EngineError
from relascope.engine.limits import kind_of
from relascope.viz.drawing.palette import PAGE
from relascope.viz.panels.shell.holding import ask, by_the_clock, pressed, rerun
from relascope.viz.panels.shell.request_cache import RequestCache, Waiting
from relascope.viz.panels.shell.screen import look_at

_DOING = {
    "describe": "Asking the engine for its targets",
    "load": "Importing the model",
    "models": "Looking for models",
    "modules": "Listing the modules",
    "inputs": "Opening the file",
    "pipelines": "Reading TVM's pipelines",
    "step": "Running the passes",
    "graph_after": "Running the passes",
    "example": "Running the pass on a small program",
    "split": "Splitting forward and backward",
    "check": "Comparing with PyTorch",
    "suspects": "Recording what is inside the program",
    "narrow": "Narrowing the fault",
    "report": "Writing the report",
    "inside": "Comparing what is inside with PyTorch",
    "target": "Looking at the target",
    "compile": "Compiling",
    "time": "Compiling and timing",
    "torch_saved": "Asking PyTorch what it keeps",
    "profile": "Compiling and timing each kernel",
    "peaks": "Measuring the machine's peaks",
    "kernels": "Asking TVM what it fuses",
    "tasks": "Listing the kernels that can be tuned",
    "tune": "Tuning",
}


@cache
def style() -> str:
    """The page's own rules beside the theme's, as HTML."""
    pairs = zip(PAGE["light"].items(), PAGE["dark"].values(), strict=True)
    colours = ";".join(f"--rs-{n}: light-dark({light}, {dark})" for (n, light), dark in pairs)
    rules = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return f"<style>:root {{{colours}}}\n{rules}</style>"


def looked_at(text: str) -> None:
    """Write what the page shows on the button that opens the sidebar."""
    safe = "".join(c if c.isalnum() or c in " ·.,-×" else f"\\{ord(c):x} " for c in text)
    st.html(f'<style>:root {{ --rs-looked: "{safe}"; }}</style>')


def begin() -> None:
    """Begin a run of the page, or of a tab alone: nothing is drawn yet."""
    by_the_clock()
    st.session_state.progress_shown = []
    st.session_state.model_refused = st.session_state.model_waits = False


@contextmanager
def boundary(
    cache: RequestCache, key: str = "", picture: bool = False, asked: str = ""
) -> Iterator[None]:
    """A part of the page that may wait or fail without affecting the rest. An `EngineError` becomes
    a sentence on what to do, with a button to try again; `Waiting` becomes a progress bar with
    Cancel, and the page runs again when the answer is there. `key` distinguishes the buttons of
    several request caches; a `picture` has an outline in its place while it waits; `asked` is the
    state's key of the question, which Cancel clears."""
    try:
        yield
    except Waiting:
        st.session_state.model_waits = True
        waiting(cache, key)
        if picture:
            st.html("<div class='rs-skeleton'></div>")
    except EngineError as problem:
        if problem.instead is not None or problem.kind == "file":
            st.session_state.model_refused = True
        if problem.kind == "cancelled" and asked:
            st.session_state[asked] = None
        show_error(problem, cache, key)


def waiting(cache: RequestCache, key: str = "") -> None:
    """A progress bar of the request cache's running job, once per run of the page."""
    if first_of(cache):
        _progress(cache, key)


def first_of(cache: RequestCache) -> bool:
    """Whether this run of the page has not shown the engine's progress yet; it has from now on."""
    shown: list[RequestCache] = st.session_state.setdefault("progress_shown", [])
    if cache in shown:
        return False
    shown.append(cache)
    return True


@st.fragment(run_every=0.3)
def _progress(cache: RequestCache, key: str) -> None:
    by_the_clock()
    running = cache.running
    if running is None or cache.collect():
        rerun()
    fraction, text = running.job.progress
    what = _DOING.get(running.request.method, running.request.method)
    if text == "waiting":
        what = f"{what}: waiting for the engine to be ready"
    elif text:
        what = f"{what}: {text}"
    seconds = time.monotonic() - running.began
    if seconds >= 2:
        most = cache.client.limits.calls.get(kind_of(running.request.method))
        what = f"{what} ({seconds:.0f} s{f' of at most {most:g}' if most else ''})"
    progress_bar(cache, fraction, what, f"cancel{key}")


def progress_bar(cache: RequestCache, fraction: float, text: str, key: str, **more: Any) -> None:
    """The progress of the request cache's running job, and a button that cancels it."""
    bar, button = st.columns([5, 1], vertical_alignment="center")
    bar.progress(min(max(fraction, 0.0), 1.0), text=plain_text(text))
    # A callback runs before the page does, so it cancels this job, not the next one.
    button.button("Cancel", key=key, width="stretch", on_click=cache.cancel, **more)


def show_error(error: EngineError, cache: RequestCache | None = None, key: str = "") -> None:
    """An error as sentences: what was wrong, with what, and what to do; with the cache that gave
    it, buttons to try again or to open a submodule instead."""
    if error.kind == "cancelled":
        st.info(plain_text(error.message))
    else:
        parts = [f"**{plain_text(error.message)}**"]
        if error.where:
            parts.append(f"Where: `{' '.join(error.where.replace('`', '').split())}`")
        if error.hint:
            parts.append(plain_text(error.hint))
        st.error("  \n".join(parts))
    with st.container(horizontal=True):
        if cache is not None and error.kind != "usage":
            st.button("Try again", key=f"again_{error.kind}{key}", on_click=cache.forget_errors)
        for module in (cache is not None and error.instead) or ():
            about = f"Without the fault, on the inputs that {module} gets in the whole model."
            label, place = f"Open {plain_text(module)} alone", f"instead_{module}{key}"
            st.button(label, key=place, on_click=look_at, args=(module,), help=about)


def strip(*facts: tuple[str, ...], large: bool = False, quiet: bool = False) -> None:
    """A line of figures: value, label, perhaps CSS classes; if `large`, the label comes first."""
    order = "{label} <b>{value}</b>" if large else "<b>{value}</b> {label}"
    cells = "".join(
        f"<span class='rs-fact {' '.join(style)}'>"
        f"{order.format(value=escape(value), label=escape(label))}</span>"
        for value, label, *style in facts
    )
    sort = " rs-large" if large else " rs-quiet" if quiet else ""
    st.html(f"<div class='rs-strip{sort}'>{cells}</div>")


def side_by_side(key: str, shares: Sequence[float]) -> list[DeltaGenerator]:
    """Columns that stack on a narrow page."""
    return st.container(key=f"wide_{key}").columns(shares, gap="small")


def heading(text: str) -> None:
    st.html(f"<h2 class='rs-heading'>{escape(text)}</h2>")


def section(
    title: str, label: str, key: str, about: str, of: object, then: Callable[[], Any] = lambda: None
) -> bool:
    """A part of a tab that waits for its button, and then calls `then`; whether it was pressed for
    `of`. For another `of`, it waits again, and shows `about` until then."""
    heading(title)
    if pressed(label, key):
        st.session_state[f"{key}_of"] = of
        then()
    asked: bool = st.session_state.get(f"{key}_of") == of
    if not asked:
        st.caption(about)
    return asked


def one_of(
    label: str, options: Sequence[str], key: str, place: Any = st, hidden: bool = False, **more: Any
) -> str:
    """A choice of options side by side, by default the first; the label may be `hidden`."""
    if st.session_state.get(key) not in options:
        st.session_state[key] = options[0]
    more |= {"label_visibility": "collapsed"} if hidden else {}
    chosen = ask(place.segmented_control, label, options, key=key, required=True, **more)
    return str(chosen or options[0])


def download(label: str, data: Any, file: str, key: str, place: Any = st, **more: Any) -> None:
    kind = guess_type(file)[0] or "application/octet-stream"
    place.download_button(label, data, file, kind, key=key, on_click="ignore", **more)


_SIGNS = re.compile(r"[\\`*_{}\[\]<>#~$|&]|(?<!:):(?=\w)|(?<=:material)/")
_FOUND = re.compile(r"(\S*(?:://|:[\w+-]+:|www\.|@\w|--|->|<-|[<>~]=)\S*)", re.IGNORECASE)
_LISTED = re.compile(r"^(\s*\d*)([-+=.)])")  # begins a list or a title


def plain_text(text: str) -> str:
    """Text as Markdown that shows it unchanged; what Streamlit would convert is written as code."""
    parts = _FOUND.split(" ".join(text.split("\n")))
    parts[::2] = [_SIGNS.sub(r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = ["`` " + part.replace("``", "` `") + " ``" for part in parts[1::2]]
    return _LISTED.sub(r"\1\\\2", "".join(parts))
