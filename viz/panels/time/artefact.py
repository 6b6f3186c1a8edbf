"""Below the timings: what is built for a target, which need not be here; its sizes and its code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from relascope.engine.protocol.artefact import Artefact
from relascope.engine.protocol.request import BuildRequest
from relascope.viz.panels.shell.frame import boundary, download, one_of, plain_text, section
from relascope.viz.panels.shell.request_cache import RequestCache
from relascope.viz.panels.shell.table import show_sections, table
from relascope.viz.rows import artefact

_HEIGHT = 420
_MOST_LINES = 2000
"""Lines of one kernel that are drawn; the download has all."""


def show(cache: RequestCache, request: BuildRequest) -> None:
    """Draw the section: a button, then what the engine's `compile` says."""
    request = replace(request, threads=0, repeats=0)  # which change nothing of what is built
    about = (
        "Builds the program for the target, whose device need not be here: how large the library "
        "is, and each kernel's machine code, LLVM IR, assembly or GPU source."
    )
    title, label = "What is built", "Build and show the code"
    if section(title, label, "compile", about, request, lambda: cache.forget("compile", request)):
        with boundary(cache, "_compile"):
            found: Artefact = cache.ask("compile", request)
            # That it does not run here is said above, too.
            said = replace(found, notes=found.notes[not found.target.runs_here :])
            shown = artefact.compiled_sections(artefact.document(said, code=False))
            show_sections(shown[:-1], "artefact")
            _code(cache, found, request)


def _code(cache: RequestCache, found: Artefact, request: BuildRequest) -> None:
    """The kernels as a table, the largest first, and the code of one of them."""
    languages = artefact.languages(found)
    if not languages:
        return
    pick, sought, save = st.columns([3, 3, 1.6], vertical_alignment="bottom")
    language = one_of("Code", languages, "code_language", pick)
    wanted = sought.text_input(
        "Search the code", key="code_search", placeholder="an instruction, a name"
    )
    packed = cache.derive(lambda: artefact.archive(found), "code", request)
    download("Code (.zip)", packed, "code.zip", "code_zip", save, width="stretch")
    kernels = {
        (k.phase, k.name): (k, text) for k in found.kernels if (text := dict(k.code).get(language))
    }
    lines = {at: artefact.search(text, wanted) for at, (_, text) in kernels.items()}
    if wanted:
        kernels = {at: kernels[at] for at in kernels if lines[at]}
        count = sum(map(len, lines.values()))
        text = f"{count} lines of {language} in {len(kernels)} kernels have “{wanted}”."
        st.caption(plain_text(text))
    if not kernels:
        return
    ordered = sorted(kernels.values(), key=lambda k: -(k[0].bytes or 0))
    listed = artefact.document(replace(found, kernels=tuple(k for k, _ in ordered)), code=False)
    rows = artefact.compiled_sections(listed)[-1]["rows"]
    height: Any = "auto" if len(rows) < 9 else 320
    chosen = table(rows, key="code_table", on_select="rerun", height=height)
    kernel, text = ordered[chosen[0] if chosen else 0]
    at = kernel.phase, kernel.name
    shown = [line for _, line in lines[at]] if wanted else text.splitlines()
    if wanted:
        shown = [f"{number:6}  {line}" for number, line in lines[at]]
    more = len(shown) - _MOST_LINES
    shown = shown[:_MOST_LINES] + ([f"… {more} more lines"] if more > 0 else [])
    st.caption(plain_text(f"{kernel.phase}, {kernel.name}"))
    st.code(
        "\n".join(shown), language={"CUDA": "cpp", "OpenCL": "cpp"}.get(language), height=_HEIGHT
    )
