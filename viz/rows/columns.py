"""Columns as people read them: a figure is written the same way wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from relascope.viz.rows import Row
from relascope.viz.rows.formats import counts_text, flops, milliseconds, shape_text, size
from relascope.viz.rows.profile import rate_text

_WRITERS: dict[str, Callable[[Any], Any]] = {
    "shape": shape_text,
    "build": milliseconds,
    "share": lambda part: 100 * part,
    "of peak": lambda part: 100 * part,
    **dict.fromkeys(("peak memory", "captures held", "machine code"), size),
}
_EVEN_NONE: dict[str, Callable[[Any], Any]] = {  # where None has a word of its own
    "FLOPs": flops,
    **dict.fromkeys(("kept", "peak, estimated", "peak, measured", "reads", "writes"), size),
    "only in": lambda ir: (ir or "").capitalize(),
    "bound by": lambda roof: roof or "unknown",
    "achieves": lambda rate: rate_text(rate, "FLOP/s"),
    "and moves": lambda rate: rate_text(rate, "B/s"),
    "moves": lambda count: size(count) if count else None,
}


def renamed(rows: Iterable[Row], columns: str) -> list[Row]:
    """Rows under titles for people, with cells written as they are read.

    Args:
        columns: each title and, where it is another, the field behind a colon, those inside it
            behind dots: "node: op; dtype; failure: error.message".
    """
    pairs = [column.partition(": ") for column in columns.split("; ")]
    return [
        {title: _cell(title, _get(row, field or title)) for title, _, field in pairs}
        for row in rows
    ]


def _get(row: Row, path: str) -> Any:
    value: Any = row
    for field in path.split("."):
        value = None if value is None else value[field]
    return value


def _cell(title: str, value: Any) -> Any:
    if title in _EVEN_NONE:
        return _EVEN_NONE[title](value)
    if title in _WRITERS:
        return None if value is None else _WRITERS[title](value)
    if isinstance(value, dict):
        return counts_text(value)
    return ", ".join(value) if isinstance(value, list) else value
