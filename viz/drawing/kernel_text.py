"""A kernel's text as a card shows it: its loops in a line each, and the text made shorter."""

import re
from typing import Any

_WIDE = re.compile(r"T\.int64\((-?\d+)\)")
_SAID_AGAIN = re.compile(r"\s*(T\.reads\(|T\.writes\(|# |$)")  # by the lines beside it
_GRID = re.compile(r"for .+ in T\.grid\((.+)\):")
_LOOP = re.compile(
    r"for \w+ in (?:T\.)?(\w+)\((?:0, )?([^,]+?)(?:, thread=\"([\w.]+)\")?(?:, .*)?\):"
)
_BLOCK = re.compile(r"with T\.s?block\(\"(.+?)\"\):")
_AXES = re.compile(r"T\.axis\.remap\(\"([SR]+)\"")
_PLAIN = ("range", "serial")


def kernel_card(text: str) -> dict[str, Any]:
    """What a card says of a kernel: TVM's own "text" without what its other lines say, and "loops",
    the name of each block with the extents of the loops around it."""
    lines = [_WIDE.sub(r"\1", line) for line in text.rstrip().splitlines()]
    return {
        "text": "\n".join(line for line in lines if not _SAID_AGAIN.match(line)),
        "loops": _loops(lines),
    }


def _loops(lines: list[str]) -> list[list[str]]:
    found: list[list[str]] = []
    around: list[tuple[int, list[str]]] = []  # loops that a line stands in, with their indents
    for at, line in enumerate(lines):
        words = line.strip()
        indent = len(line) - len(words)
        around = [loop for loop in around if loop[0] < indent]
        if grid := _GRID.match(words):
            around.append((indent, grid[1].split(", ")))
        elif loop := _LOOP.match(words):
            how = loop[3] or ("" if loop[1] in _PLAIN else loop[1])
            around.append((indent, [f"{loop[2]} {how}".strip()]))
        elif block := _BLOCK.match(words):
            axes = _AXES.search(lines[at + 1]) if at + 1 < len(lines) else None
            found.append([block[1], _extents([e for _, es in around for e in es], axes)])
    return found


def _extents(extents: list[str], axes: re.Match[str] | None) -> str:
    kinds = axes[1] if axes and len(axes[1]) == len(extents) else "S" * len(extents)
    own, reduced = (
        " × ".join(e for e, k in zip(extents, kinds, strict=True) if k == kind) for kind in "SR"
    )
    return f"{own or 1}, reduced over {reduced}" if reduced else own or "no loop"
