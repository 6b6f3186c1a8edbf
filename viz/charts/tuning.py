"""The chart of a tuning: the best time so far of each kernel, trial by trial."""

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from relascope.engine.protocol.tuning import Trial
from relascope.viz.charts import columns, tips
from relascope.viz.drawing.palette import LINES

_MOST_NAMED = len(LINES)  # kernels; a legend of more says nothing


def best_so_far(trials: Sequence[Trial], names: Mapping[str, str]) -> alt.LayerChart | None:
    """A run's measurements, and the least so far as steps, by kernel; None before the first."""
    rows = [
        {"kernel": names.get(t.task, t.task), "trial": t.trial, "ms": t.ms, "best": t.best_ms}
        for t in trials
        if t.best_ms is not None
    ]
    if not rows:
        return None
    order = list(dict.fromkeys(r["kernel"] for r in rows))
    legend = alt.Legend(
        title=None,
        orient="bottom",
        columns=columns(2),
        labelLimit=300,
        symbolType="stroke",
        symbolOpacity=1,
    )
    color = alt.Color(
        "kernel:N",
        scale=alt.Scale(domain=order, range=list(LINES)),
        legend=legend if len(order) <= _MOST_NAMED else None,
    )
    x = alt.X(
        "trial:Q",
        title="trial",
        scale=alt.Scale(zero=False, nice=False),
        axis=alt.Axis(tickMinStep=1, format="d", tickCount=8, grid=False),
    )
    scale = alt.Scale(type="log", nice=False, padding=10)
    axis = alt.Axis(tickCount=5, format="~g")
    y = alt.Y("best:Q", title="milliseconds of a call", scale=scale, axis=axis)
    figures = "ms:Q; this trial, ms; .4f", "best:Q; best so far, ms; .4f"
    told = tips("kernel:N", "trial:Q", *figures)
    base = alt.Chart(pd.DataFrame(rows))
    points = (
        base.transform_filter("isValid(datum.ms)")
        .mark_point(filled=True, size=22, opacity=0.35)
        .encode(x=x, y=alt.Y("ms:Q", scale=scale), color=color, tooltip=told)
    )
    steps = base.mark_line(interpolate="step-after", strokeWidth=2).encode(
        x=x, y=y, color=color, tooltip=told
    )
    return alt.layer(points, steps).properties(height=260, width="container")
