"""Below the timings: the build for a target, even without its device; its sizes and code."""

from dataclasses import replace
from typing import Any

import streamlit as st

from relascope.engine.protocol.artefact import Artefact
from relascope.engine.protocol.request import BuildRequest
from relascope.viz.panels.shell.frame import boundary, download, one_of, plain_text, section
from relascope.viz.panels.shell.request_cache import RequestCache
from relascope.viz.panels.shell.table import grid, show_sections
from relascope.viz.rows import Row, artefact
from relascope.viz.rows.sections import Section

_MOST_LINES = 2000  # lines of one kernel that are drawn; the download has all


def show(cache: RequestCache, request: BuildRequest) -> None:
    """Draw the section: a button, then the result of the engine's `compile`."""
    request = replace(request, threads=0, repeats=0)  # which do not affect the build
    about = (
        "Builds the program for the target, whose device need not be here, and shows the library's "
        "size and each kernel's machine code, LLVM IR, assembly or GPU source."
    )
    title, label = "What is built", "Build and show the code"
    if section(title, label, "compile", about, request, lambda: cache.forget("compile", request)):
        with boundary(cache, "_compile"):
            found: Artefact = cache.ask("compile", request)
            ordered, shown = cache.derive(lambda: _largest_first(found), "compiled", request)
            show_sections(shown[:-1], "artefact")
            _code(cache, ordered, request, shown[-1]["rows"])


def _largest_first(found: Artefact) -> tuple[Artefact, list[Section]]:
    """The build with kernels sorted, and its sections, without the note that it cannot run here."""
    kernels = tuple(sorted(found.kernels, key=lambda k: -(k.bytes or 0)))
    found = replace(found, kernels=kernels, notes=found.notes[not found.target.runs_here :])
    return found, artefact.compiled_sections(artefact.document(found, code=False))


def _code(cache: RequestCache, found: Artefact, request: BuildRequest, cells: list[Row]) -> None:
    languages = list(dict.fromkeys(name for k in found.kernels for name, _ in k.code))
    if not languages:
        return
    pick, sought, save = st.columns([3, 3, 1.6], vertical_alignment="bottom")
    language = one_of("Code", languages, "code_language", pick)
    wanted = sought.text_input(
        "Search the code", key="code_search", placeholder="an instruction, a name"
    )
    packed = cache.derive(lambda: artefact.zipped(found), "code", request)
    download("Code (.zip)", packed, "code.zip", "code_zip", save, width="stretch")
    kernels = [
        (k, text, artefact.search(text, wanted), cell)
        for k, cell in zip(found.kernels, cells, strict=True)
        if (text := dict(k.code).get(language))
    ]
    if wanted:
        kernels = [one for one in kernels if one[2]]
        count = sum(len(lines) for _, _, lines, _ in kernels)
        text = f"{count} lines of {language} in {len(kernels)} kernels have “{wanted}”."
        st.caption(plain_text(text))
    if not kernels:
        return
    height: Any = "auto" if len(kernels) < 9 else 320
    rows = [cell for _, _, _, cell in kernels]
    chosen = grid(rows, key="code_table", on_select="rerun", height=height)
    kernel, text, lines, _ = kernels[chosen[0] if chosen else 0]
    shown = [f"{number:6}  {line}" for number, line in lines] if wanted else text.splitlines()
    more = len(shown) - _MOST_LINES
    shown = shown[:_MOST_LINES] + ([f"… {more} more lines"] if more > 0 else [])
    st.caption(plain_text(f"{kernel.phase}, {kernel.name}"))
    st.code("\n".join(shown), language={"CUDA": "cpp", "OpenCL": "cpp"}.get(language), height=420)
