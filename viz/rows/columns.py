"""Columns as people read them: a figure has the same format everywhere."""

from collections.abc import Callable, Iterable
from typing import Any

from relascope.core.graph import line_number
from relascope.viz.drawing import palette
from relascope.viz.rows import Row, formats

_WRITERS: dict[str, Callable[[Any], Any]] = {
    "shape": formats.shape_text,
    "line": line_number,
    "build": formats.milliseconds,
    **dict.fromkeys(("ms", "own ms", "longest ms", "takes"), lambda seconds: 1e3 * seconds),
    **dict.fromkeys(("share", "of peak", "of FLOP/s"), lambda part: 100 * part),
    **dict.fromkeys(
        ("peak memory", "kept between runs", "captures held", "machine code"), formats.size
    ),
}
_EVEN_NONE: dict[str, Callable[[Any], Any]] = {  # where None has its own word
    "FLOPs": formats.flops,
    **dict.fromkeys(("kept", "peak, estimated", "peak, measured", "reads", "writes"), formats.size),
    "only in": lambda ir: (ir or "").capitalize(),
    "bound by": lambda roof: roof or "unknown",
    "achieves": lambda rate: formats.rate_text(rate, "FLOP/s"),
    "and moves": lambda rate: formats.rate_text(rate, "B/s"),
    "moves": lambda count: formats.size(count) if count else None,
}

_FORMATS = {
    "%.1e": "max abs error; relative to scale; limit; max abs; mean abs; median abs; max rel; "
    "mean rel; median rel",
    "%.3f ms": "median; q1; q3; forward; forward + backward; takes",
    "%.3f": "own ms; longest ms; ms",
    "%.4f ms": "without; earlier; best",
    "%.4g ms": "costs",
    "%.4g": "FLOPs a byte; min; max; mean",
    "%.3g": "scale; error / limit",
    "%.2f": "A ms; B ms; B over A; ratio; of minima; ours over it; times eager; whole to this; "
    "times as long",
    "%.2f×": "gain",
    "%.1f %%": "share",
    "%.0f %%": "of peak; of FLOP/s; sure",
    "%+d": "difference",
    "localized": "bytes; parameters; next read by; held to",
    "percent": "time added; work again, estimated; work again, measured; copies take",
}
FORMATS = {name: written for written, names in _FORMATS.items() for name in names.split("; ")}
"""Streamlit's number formats by column title."""


def renamed(rows: Iterable[Row], columns: str) -> list[Row]:
    """Rows under titles for people, with formatted cells. Each of `columns` is a title and, if it
    differs, the field behind a colon, with dots for nested fields: "node: op; dtype; failure?:
    error.message". A column with a question mark is left out if it is empty in all rows."""
    rows, cells = list(rows), dict[str, list[Any]]()
    for title, _, field in (column.partition(": ") for column in columns.split("; ")):
        name = title.removesuffix("?")
        found = [_cell(name, _get(row, field or name)) for row in rows]
        if name == title or any(value not in (None, "") for value in found):
            cells[name] = found
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]


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
        return formats.counts_text(value)
    return ", ".join(value) if isinstance(value, list) else value


def cell_text(title: str, value: Any) -> str:
    """A cell as text, as in a table of the page; None is a dash."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if title == "what" and value in palette.STYLES["light"]:
        return palette.signed(value, value)
    form = FORMATS.get(title)
    if form is None or not isinstance(value, int | float):
        if isinstance(value, float):
            return f"{value:.4g}"
        return formats.number(value) if isinstance(value, int) else str(value)
    if form == "localized":
        return formats.number(int(value))
    return f"{value:.1%}" if form == "percent" else form % value
