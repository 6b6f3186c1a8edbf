"""The sections of a result, from top to bottom, the same on the page, in a file and in a terminal.

A section is plain data. Tables keep their values, because each of the three formats them to its
width. A chart has the name of a function of `viz.charts` and its arguments.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from relascope.viz.rows import Row
from relascope.viz.rows.columns import cell_text, renamed
from relascope.viz.rows.formats import aligned

Section = dict[str, Any]
_WIDE = 40  # characters; a terminal shows wider columns last, except the first


def figures(*items: tuple[str, ...], large: bool = False) -> Section:
    """Figures, each with its label, and "unsure" if it is; `large` for a tab's main result."""
    return {"kind": "figures", "items": [list(i) for i in items if i[0]], "large": large}


def sentence(text: str, warning: bool = False) -> Section:
    """A sentence; a `warning` should be read before the rest."""
    return {"kind": "sentence", "text": text, "warning": warning}


def table(
    title: str,
    rows: Iterable[Row],
    columns: str = "",
    ids: Sequence[str | None] | None = None,
    note: str = "",
    most: int | None = None,
) -> Section:
    """A table with `columns` for `viz.rows.columns.renamed`, or rows as they are. `ids` are nodes
    that clicks on rows select; `note` stands below; a terminal shows at `most` this many rows."""
    shown = renamed(rows, columns) if columns else list(rows)
    ids = None if ids is None else list(ids)
    return {"kind": "table", "title": title, "rows": shown, "ids": ids, "note": note, "most": most}


def chart(title: str, name: str, *data: Any, note: str = "", text: str = "") -> Section:
    """A chart by a function of `viz.charts` and its arguments; a terminal shows `text` instead."""
    return {"kind": "chart", "title": title, "name": name, "data": data, "note": note, "text": text}


def cells(rows: Sequence[Row]) -> tuple[list[str], list[bool], list[list[str]]]:
    """A table's columns, whether each has numbers, and its rows as text."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = [[row.get(name) for row in rows] for name in names]
    numbers = [
        any(isinstance(v, int | float) and not isinstance(v, bool) for v in column)
        for column in values
    ]
    return names, numbers, [[cell_text(n, row.get(n)) for n in names] for row in rows]


def text(parts: Iterable[Section | str]) -> str:
    """Sections, and texts between them, for a terminal; charts without a text are left out."""
    texts = (part if isinstance(part, str) else _text(part) for part in parts)
    return "\n\n".join(filter(None, texts))


def text_table(rows: Iterable[Row], columns: str = "") -> str:
    """Rows for a terminal; arguments as for `table`."""
    return _text(table("", rows, columns))


def _text(section: Section) -> str:
    kind = section["kind"]
    if kind == "sentence":
        return str(section["text"])
    if kind == "figures" and section["large"]:
        return "\n".join(f"{label}: {value}" for value, label, *_ in section["items"])
    if kind == "figures":
        return "; ".join(f"{value} {label}".strip() for value, label in section["items"])
    if kind == "chart":
        parts = section["title"], section["text"], section["note"]
        return "\n".join(parts) if section["text"] else ""
    if not section["rows"]:
        return ""
    rows, most = section["rows"], section["most"]
    if section["ids"]:
        rows = [{"id": name, **row} for name, row in zip(section["ids"], rows, strict=True)]
    names, numbers, lines = cells(rows[:most])
    first, *others = zip(names, numbers, zip(*lines, strict=True), strict=True)
    others.sort(key=lambda column: max(map(len, column[2])) > _WIDE)
    titles, right, values = zip(first, *others, strict=True)
    shown = aligned(titles, right, [*zip(*values, strict=True)])
    more = f"{len(rows) - most} more; --json has all." if most and len(rows) > most else ""
    return "\n".join(filter(None, (section["title"], shown, more, section["note"])))
