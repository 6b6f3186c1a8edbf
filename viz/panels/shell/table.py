"""Draws sections and tables, whose rows can be chosen."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from relascope.viz.drawing import palette
from relascope.viz.panels.shell.frame import heading, plain_text, strip
from relascope.viz.rows import Row
from relascope.viz.rows.columns import FORMATS, renamed
from relascope.viz.rows.sections import Section

_COLOURED = 1_000  # rows; more take seconds, and from some point on pandas refuses them


def grid(
    rows: Iterable[Row],
    columns: str = "",
    *,
    help: Mapping[str, str] = {},
    bars: Sequence[str] = (),
    wide: Mapping[str, Any] = {},
    signs: str = "",
    on_select: str = "ignore",
    on_pick: Callable[[int | None], None] | None = None,
    **more: Any,
) -> list[int]:
    """Draw rows, with None as a dash, and return the indices of chosen rows. `columns` are those of
    `renamed`; without them, rows are drawn as they are. By column name, `help` has texts and `wide`
    widths; `bars` are columns of percentages to draw as bars; `signs` is a column of names of
    `palette.STYLES` ("added"), drawn as in the graph. Rows can be chosen if `on_select` is "rerun",
    or with `on_pick`, called with the chosen index or None. `more` goes to `st.dataframe`."""
    rows = renamed(rows, columns) if columns else list(rows)
    config: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        about: dict[str, Any] = {"help": help.get(name), "width": wide.get(name)}
        if name in bars:
            config[name] = st.column_config.ProgressColumn(
                format=FORMATS[name], min_value=0, max_value=100, **about
            )
        elif name in FORMATS:
            config[name] = st.column_config.NumberColumn(format=FORMATS[name], **about)
        elif any(about.values()):
            config[name] = st.column_config.Column(**about)
    more = {"hide_index": True, "placeholder": "–", "selection_mode": "single-row", **more}
    shown = _signed(rows, signs) if signs and rows else rows
    pick, key, count = on_pick, more.get("key", ""), len(rows)
    then: Any = on_select if pick is None else lambda: pick(picked(key, count))
    event: Any = st.dataframe(shown, on_select=then, column_config=config, **more)
    return [] if then == "ignore" else [k for k in event["selection"]["rows"] if k < len(rows)]


def _signed(rows: list[Row], column: str) -> Any:
    """The rows with one column in the graph's colours; with signs only if there are many."""

    def text(key: object) -> str:
        return palette.signed(str(key), str(key)) if key in styles else str(key)

    styles = palette.STYLES["dark" if st.context.theme.type == "dark" else "light"]

    def look(key: object) -> str:
        style = styles.get(str(key))
        return f"background-color: {style.fill}; color: {style.text}" if style else ""

    if len(rows) > _COLOURED:
        return [{**row, column: text(row[column])} for row in rows]
    import pandas as pd  # late, so that the page appears sooner

    return pd.DataFrame(rows).style.map(look, subset=[column]).format(text, subset=[column])


def picked(key: str, count: int) -> int | None:
    """The row chosen in a table in the run before, if it is below `count`."""
    state = st.session_state.get(key)
    rows = state["selection"]["rows"] if state else []
    return rows[0] if rows and rows[0] < count else None


def clicked(key: str, selection: str) -> Row | None:
    """The mark clicked in a chart, by the name of its selection, or None."""
    return (st.session_state[key]["selection"].get(selection) or [None])[0]


def show_sections(sections: Iterable[Section], key: str, **options: Any) -> None:
    """Draw sections, except empty tables; `key` begins charts' keys, `options` are `grid`'s."""
    from relascope.viz.charts import charts  # pandas, as above

    for at, section in enumerate(sections):
        kind = section["kind"]
        if kind == "table" and not section["rows"]:
            continue
        if title := section.get("title"):
            heading(title)
        if kind == "figures":
            facts = ((*item[:2], *(f"rs-{s}" for s in item[2:])) for item in section["items"])
            strip(*facts, large=section["large"])
        elif kind == "sentence":
            (st.warning if section["warning"] else st.caption)(plain_text(section["text"]))
        elif kind == "table":
            grid(section["rows"], **options)
        elif kind == "chart":
            st.altair_chart(charts.drawn(section), key=f"{key}_{at}")
        if note := section.get("note"):
            st.caption(note)
