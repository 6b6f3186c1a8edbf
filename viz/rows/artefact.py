"""What was built for a target: the rows of the page and of the command line, and its code."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

from relascope.engine.protocol.artefact import Artefact, extension
from relascope.viz.rows import Row, fields
from relascope.viz.rows.formats import size

TYPED = (
    "cuda -arch=sm_90",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1",
    "llvm -mcpu=skylake-avx512",
    "opencl",
)
"""Targets that can be built for where their device is not, as examples."""


def document(found: Artefact, code: bool = True) -> Row:
    """What `compile MODEL` prints.

    Args:
        code: with each kernel's code.
    """
    return {
        **fields(found, "target library_bytes code_bytes build_seconds notes files"),
        "kernels": [
            {
                **fields(k, "name phase bytes launches"),
                "lines": {language: text.count("\n") + 1 for language, text in k.code},
                **({"code": dict(k.code)} if code else {}),
            }
            for k in found.kernels
        ],
    }


def rows(found: Artefact) -> list[Row]:
    """One row a kernel, the largest first; those without a size as they come."""
    made = [
        {
            "kernel": k.name,
            "phase": k.phase,
            "machine code": k.bytes,
            **{f"{language} lines": text.count("\n") + 1 for language, text in k.code},
        }
        for k in found.kernels
    ]
    return sorted(made, key=lambda r: -(r["machine code"] or 0))


def launch_cells(launches: Iterable[Row]) -> Row:
    """A kernel's launches on a GPU as cells of a table, one beside the other; from `document`."""

    def cell(field: str, write: Callable[[Any], str] = str) -> str:
        values = [launch[field] for launch in launches]
        return ", ".join(write(v) for v in values if v is not None and v != "")

    return {
        "blocks": cell("blocks"),
        "threads": cell("threads"),
        "shared": cell("shared_bytes", size),
        "registers": cell("registers"),
        "spilled": cell("spilled_bytes", size),
        "schedule": ", ".join(dict.fromkeys(x["schedule"] for x in launches if x["schedule"])),
    }


LAUNCH = ("blocks", "threads", "shared", "registers", "spilled", "schedule")
"""The titles of those cells."""


def languages(found: Artefact) -> list[str]:
    """The languages that some kernel's code is there in."""
    return list(dict.fromkeys(language for k in found.kernels for language, _ in k.code))


def search(text: str, wanted: str) -> list[tuple[int, str]]:
    """The lines of a code that a text stands in, from 1; case does not matter."""
    sought = wanted.lower()
    lines = enumerate(text.splitlines(), 1)
    return [(n, line) for n, line in lines if sought in line.lower()] if sought else []


def archive(found: Artefact) -> bytes:
    """All code as a zip file: a folder a phase, a file a kernel and language."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as opened:
        for kernel in found.kernels:
            for language, text in kernel.code:
                name = re.sub(r"[^\w.-]", "_", kernel.name)
                opened.writestr(f"{kernel.phase}/{name}.{extension(language)}", text + "\n")
    return made.getvalue()
