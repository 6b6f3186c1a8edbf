"""Charts, as Altair specifications that take their colours from the page's theme."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from engine.session import TimeRow
from viz.tables import Row, size

CAPTURED = "#2f7fd6"  # between the palette's blues for light and dark: Altair takes one
PHASES = {"forward": "forward", "forward_backward": "forward + backward"}


def capture_bytes(captures: Sequence[Row], most: int = 20) -> alt.Chart:
    """Bytes of each capture as bars, the largest first; what is past `most` is one bar."""
    ordered = sorted(captures, key=lambda c: -(c["bytes"] or 0))
    rows: list[Row] = []
    for place, capture in enumerate(ordered[:most], 1):
        name = f"{place}. {capture['name']}"  # names repeat, bars must not
        rows.append({"capture": name, "bytes": capture["bytes"] or 0})
    if rest := ordered[most:]:
        total = sum(c["bytes"] or 0 for c in rest)
        rows.append({"capture": f"{len(rest)} more", "bytes": total})
    for row in rows:
        row["size"] = size(row["bytes"])
    return (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar(height={"band": 0.72}, color=CAPTURED)
        .encode(
            x=alt.X("bytes:Q", title=None, axis=alt.Axis(format="~s", tickCount=4)),
            y=alt.Y(
                "capture:N",
                sort=None,
                title=None,
                axis=alt.Axis(labelLimit=220, labelOverlap=False),
            ),
            tooltip=[alt.Tooltip("capture:N"), alt.Tooltip("size:N", title="bytes")],
        )
        .properties(height=alt.Step(17))
    )


def times(rows: Sequence[TimeRow]) -> alt.LayerChart:
    """Every run as a tick, the quartiles as a bar and the median as a point, one line a row."""

    def line(row: TimeRow) -> str:
        return f"{row.what}, {PHASES.get(row.phase, row.phase)}"

    order = [line(r) for r in rows]
    middle = pd.DataFrame(
        [
            {"row": line(r), "what": r.what, "median": r.median_ms, "q1": r.q1_ms, "q3": r.q3_ms}
            for r in rows
        ]
    )
    runs = pd.DataFrame(
        [{"row": line(r), "what": r.what, "ms": ms} for r in rows for ms in r.samples_ms],
        columns=["row", "what", "ms"],
    )
    y = alt.Y("row:N", title=None, sort=order, axis=alt.Axis(labelLimit=300))
    color = alt.Color("what:N", legend=None, sort=list(dict.fromkeys(r.what for r in rows)))
    milliseconds = alt.Axis(grid=True, tickCount=8)
    ticks = (
        alt.Chart(runs)
        .mark_tick(opacity=0.4, thickness=1, size=16)
        .encode(
            x=alt.X("ms:Q", title="milliseconds", axis=milliseconds),
            y=y,
            color=color,
            tooltip=[alt.Tooltip("ms:Q", format=".3f")],
        )
    )
    box = (
        alt.Chart(middle)
        .mark_bar(height=8, opacity=0.5)
        .encode(x=alt.X("q1:Q"), x2="q3:Q", y=y, color=color)
    )
    point = (
        alt.Chart(middle)
        .mark_point(filled=True, size=70, opacity=1)
        .encode(
            x=alt.X("median:Q", scale=alt.Scale(zero=True)),
            y=y,
            color=color,
            tooltip=[
                alt.Tooltip("row:N", title="row"),
                alt.Tooltip("median:Q", format=".3f", title="median, ms"),
                alt.Tooltip("q1:Q", format=".3f", title="lower quartile, ms"),
                alt.Tooltip("q3:Q", format=".3f", title="upper quartile, ms"),
            ],
        )
    )
    return alt.layer(ticks, box, point).properties(height=alt.Step(32), width="container")
