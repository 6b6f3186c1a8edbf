"""A build for a target: its rows on the page and in the command line, and its code."""

import re
from collections.abc import Callable
from typing import Any

from relascope.engine.protocol.artefact import Artefact, extension
from relascope.viz.rows import Row, archive, fields
from relascope.viz.rows.formats import milliseconds, size
from relascope.viz.rows.sections import Section, figures, sentence, table

_KERNELS = (
    "kernel: name; phase; machine code: bytes; lines; blocks?; threads?; shared?; registers?; "
    "spilled?; schedule?"
)
TYPED = (
    "cuda -arch=sm_90",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1",
    "llvm -mcpu=skylake-avx512",
    "opencl",
)
"""Examples of targets for which a build needs no device."""


def document(artefact: Artefact, code: bool = True) -> Row:
    """The document of `compile MODEL`, with each kernel's code if asked."""
    kernels = []
    for kernel in artefact.kernels:
        lines = {language: text.count("\n") + 1 for language, text in kernel.code}
        more = {"code": dict(kernel.code)} if code else {}
        kernels.append({**fields(kernel, "name phase bytes launches"), "lines": lines, **more})
    names = "target library_bytes code_bytes build_seconds notes files"
    return {**fields(artefact, names), "kernels": kernels}


def compiled_sections(document: Row) -> list[Section]:
    """The sections of `compile MODEL`: sizes, notes, and every kernel."""
    library, code = (
        "not known" if document[of] is None else size(document[of])
        for of in ("library_bytes", "code_bytes")
    )
    return [
        figures(
            (library, "library, including constants"),
            (code, "machine code of the kernels"),
            (str(len(document["kernels"])), "kernels"),
            (milliseconds(document["build_seconds"]), "to build"),
        ),
        *map(sentence, document["notes"]),
        table("", map(_cells, document["kernels"]), _KERNELS),
    ]


def _cells(kernel: Row) -> Row:
    def cell(field: str, write: Callable[[Any], str] = str) -> str:
        values = [launch[field] for launch in kernel["launches"]]
        return ", ".join(write(v) for v in values if v is not None and v != "")

    schedules = (launch["schedule"] for launch in kernel["launches"])
    return {
        **kernel,
        "lines": ", ".join(f"{language} {n}" for language, n in kernel["lines"].items()),
        **{name: cell(name) for name in ("blocks", "threads", "registers")},
        **{name: cell(f"{name}_bytes", size) for name in ("shared", "spilled")},
        "schedule": ", ".join(dict.fromkeys(filter(None, schedules))),
    }


def search(text: str, wanted: str) -> list[tuple[int, str]]:
    """The lines of code that contain a text, with numbers from 1; case does not matter."""
    sought = wanted.lower()
    lines = enumerate(text.splitlines(), 1)
    return [(n, line) for n, line in lines if sought in line.lower()] if sought else []


def zipped(artefact: Artefact) -> bytes:
    """All code as a zip archive: a folder for each phase, a file for each kernel and language."""
    files: dict[str, str] = {}
    for kernel in artefact.kernels:
        for language, text in kernel.code:
            name = re.sub(r"[^\w.-]", "_", kernel.name)
            path = f"{kernel.phase}/{name}.{extension(language)}"
            files[path] = f"{files.get(path, '')}{text}\n"  # kernels of one name share a file
    return archive(files)
