"""The roofline of a profile as a chart (Williams, Waterman, Patterson, "Roofline", CACM 2009)."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from relascope.viz.charts.charts import CHOSEN, QUIET, legend_below, tips
from relascope.viz.drawing import palette
from relascope.viz.rows import Row
from relascope.viz.rows.columns import renamed
from relascope.viz.rows.formats import rate_text
from relascope.viz.rows.profile import share_text

_TIPS = "kernel, phase, computes, time, of all time, achieves, and moves, of peak, bound by"
CHOICE = "kernel"
"""Name of the chart's selection, which holds the index of the kernel that was clicked."""


def roofline(document: Row, chosen: int | None = None) -> alt.LayerChart | None:
    """A profile's kernels under its peaks, the chosen one with a ring; None without FLOPs."""
    dots = _dots(document["kernels"])
    if document["peaks"] is None or not dots:
        return None
    kernels = pd.DataFrame(dots)
    sorts = [k for k in palette.STYLES["light"] if k in set(kernels["sort"])]
    names = [palette.STYLES["light"][k].label for k in sorts]
    colours = [palette.between(k) for k in sorts]
    bandwidth = [rate for _, rate in document["peaks"]["bandwidth"]]
    rates = bandwidth[0], bandwidth[-1]  # of the quickest cache, and of memory
    products = [(d, r) for d, r in document["peaks"]["flops"] if d in set(kernels["dtype"])]
    best = max((rate for _, rate in products), default=kernels["rate"].max())
    # Wide enough to show the corners of the roofs, too.
    low = min(best / rates[0], kernels["intensity"].min()) / 2
    high = max(best / rates[1], kernels["intensity"].max()) * 3
    roofs, labels = _roofs(products, rates, best, low, high)
    top = max(r["rate"] for r in (*roofs, *dots))
    x = alt.X("intensity:Q", title="FLOPs for each byte moved", **_log("~g", low, high))
    y = alt.Y("rate:Q", title="FLOP/s", **_log("~s", kernels["rate"].min() / 2, top * 2))
    dashes = alt.Scale(domain=[0, 1], range=[[1, 0], [5, 4]])
    dashed = alt.StrokeDash("memory:N", legend=None, scale=dashes)
    lines = alt.Chart(pd.DataFrame(roofs)).mark_line(strokeWidth=1.6, color=QUIET)
    lines = lines.encode(x=x, y=y, detail="roof:N", order="intensity:Q", strokeDash=dashed)
    words = [
        alt.Chart(pd.DataFrame([one]))
        .mark_text(color=QUIET, fontSize=11, align=one["align"], dx=one["dx"], dy=one["dy"])
        .encode(x=x, y=y, text="word:N")
        for one in labels
    ]
    share = alt.Scale(domain=[0, 1], range=[30, 1600])
    scale = alt.Scale(domain=names, range=colours)
    size = alt.Size("share:Q", legend=None, scale=share)
    color = alt.Color("sort name:N", scale=scale, legend=legend_below(3, labelLimit=220))
    told = tips(*(f"{name}:N" for name in _TIPS.split(", ")))
    points = alt.Chart(kernels).mark_point(filled=True, opacity=0.85, cursor="pointer")
    points = points.encode(x=x, y=y, size=size, color=color, tooltip=told)
    points = points.add_params(alt.selection_point(name=CHOICE, fields=["index"]))
    rings = [
        alt.Chart(pd.DataFrame([dot]))
        .mark_point(filled=False, color=CHOSEN, size=420, strokeWidth=2.5, opacity=1)
        .encode(x=x, y=y)
        for dot in dots
        if dot["index"] == chosen
    ]
    return alt.layer(lines, *words, points, *rings).properties(height=360, width="container")


def _log(form: str, low: float, high: float) -> dict[str, Any]:
    axis = alt.Axis(format=form, tickCount=6, grid=True, gridOpacity=0.4)
    return {"scale": alt.Scale(type="log", domain=[low, high], nice=False), "axis": axis}


def _dots(kernels: Sequence[Row]) -> list[Row]:
    """The kernels whose FLOPs are known and not zero."""
    known = [k for k in kernels if k["intensity"] and k["flops_per_second"]]
    titles = "index; intensity; rate: flops_per_second; sort; kernel: name; phase"
    written = "computes: operators; achieves: flops_per_second; and moves: bytes_per_second"
    return [
        {
            **cells,
            "computes": cells["computes"][:80] or "no node of the graph",
            "share": k["share"],
            "dtype": next((o["dtype"] for o in k["outputs"] if "float" in o["dtype"]), ""),
            "sort name": palette.STYLES["light"][k["sort"]].label,
            "time": f"{k['median_ms']:.3g} ms",
            "of all time": f"{k['share']:.1%}",
            "of peak": share_text(k["of_peak"]),
        }
        for k, cells in zip(
            known, renamed(known, f"{titles}; {written}; bound by: roof"), strict=True
        )
    ]


def _roofs(
    products: Sequence[tuple[str, float]],
    rates: tuple[float, float],
    best: float,
    low: float,
    high: float,
) -> tuple[list[Row], list[Row]]:
    """Corners of the roofs, and their labels."""
    corners: list[Row] = []
    labels: list[tuple[object, ...]] = []
    beside = ("right", -8, -6), ("left", 8, 10)  # words, at the roofs of cache and memory

    def roof(name: str, memory: int, *ends: tuple[float, float]) -> None:
        for intensity, rate in ends:
            corners.append({"roof": name, "intensity": intensity, "rate": rate, "memory": memory})

    for memory, (name, rate) in enumerate(zip(("cache", "memory"), rates, strict=True)):
        ridge = best / rate
        roof(name, memory, (low, low * rate), (ridge, ridge * rate))
        at = (low * ridge) ** 0.5
        labels.append((at, at * rate, f"{name}, {rate_text(rate, 'B/s')}", *beside[memory]))
    for dtype, rate in products:
        roof(dtype, 0, (rate / rates[0], rate), (high, rate))
        labels.append((high, rate, f"{dtype}, {rate_text(rate, 'FLOP/s')}", "right", -6, -8))
    titles = "intensity", "rate", "word", "align", "dx", "dy"
    return corners, [dict(zip(titles, label, strict=True)) for label in labels]
