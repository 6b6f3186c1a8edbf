"""Charts, as Altair specifications that take their colours from the page's theme."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import altair as alt
import pandas as pd

from relascope.core.graph import line_number
from relascope.engine.protocol.times import BEST_BUDGET, TimeRow
from relascope.engine.protocol.tuning import Trial
from relascope.passes.cuts.cut import STRATEGIES
from relascope.viz.drawing.palette import (
    BASELINE,
    CAPTURED,
    CHOSEN,
    FAULT,
    LINES,
    POINTS,
    QUIET,
    between,
)
from relascope.viz.rows import Row, timings
from relascope.viz.rows.formats import net_text, size
from relascope.viz.rows.memory import peak_words
from relascope.viz.rows.sections import Section

CLICKED = "clicked"  # the name of the selection in `frontier`
_CLIPS = {  # of the shapes, for a legend
    "circle": "circle(45%)",
    "square": "inset(12%)",
    "triangle-up": "polygon(50% 6%, 100% 92%, 0 92%)",
    "cross": "polygon(35% 5%, 65% 5%, 65% 35%, 95% 35%, 95% 65%, 65% 65%, 65% 95%, 35% 95%,"
    " 35% 65%, 5% 65%, 5% 35%, 35% 35%)",
    "diamond": "polygon(50% 0, 92% 50%, 50% 100%, 8% 50%)",
}
_LOOKS = list(zip(POINTS, _CLIPS, strict=True))  # of the large points: a colour and a shape each
_BY_BUDGET = "PyTorch's, by budget"
_WITHIN, _PEAK = STRATEGIES["peak"].title, POINTS[-1]
_STORAGES = 40  # of a plan of memory: those with several tensors at once, then the largest
_MOST_BARS, _MOST_STEPS = 20, 1000
_LEFT: Row = {"align": "right", "dx": -6}  # of a rule, where words stand
_RIGHT: Row = {"align": "left", "dx": 6}
_HELD = {"captured": CAPTURED, "computed again": between("again"), "written on the way": QUIET}


def legend_below(most: int, **more: Any) -> alt.Legend:
    """A legend below a chart, in as many columns, at most `most`, as fit its width."""
    columns = alt.ExprRef(f"clamp(floor(width / 170), 1, {most})")
    return alt.Legend(title=None, orient="bottom", columns=columns, **more)


def _of(rows: Sequence[Row]) -> alt.Chart:
    return alt.Chart(pd.DataFrame(rows))


def capture_bytes(captures: Sequence[Row]) -> alt.Chart:
    """Bytes of each capture as bars, the largest first; those after `_MOST_BARS` as one."""
    ordered = sorted(captures, key=lambda c: -(c["bytes"] or 0))
    held = [
        (f"{k}. {c['name']}", c["bytes"] or 0, c["scope"], line_number(c["line"]))
        for k, c in enumerate(ordered[:_MOST_BARS], 1)
    ]
    if rest := ordered[_MOST_BARS:]:  # names repeat, bars must not
        held.append((f"{len(rest)} more", sum(c["bytes"] or 0 for c in rest), "", ""))
    names = "capture", "bytes", "module", "line"
    bars = _of([dict(zip(names, h, strict=True), size=size(h[1])) for h in held])
    x = alt.X("bytes:Q", title=None, axis=alt.Axis(format="~s", tickCount=4))
    axis = alt.Axis(labelLimit=220, labelOverlap=False)
    y = alt.Y("capture:N", sort=[name for name, *_ in held], title=None, axis=axis)
    bars = bars.mark_bar(height={"band": 0.72}, color=CAPTURED)
    bars = bars.encode(x=x, y=y, tooltip=tips("capture:N", "size:N; bytes", "module:N", "line:N"))
    return bars.properties(height=alt.Step(17))


def frontier(
    document: Row, pytorch: Row | None, here: Row, field: str = "bytes", clickable: bool = False
) -> alt.LayerChart:
    """A `field` of each cut, the bytes that it keeps or its "peak_bytes", against the time added:
    the hull and the strategies of a `viz.rows.tables.frontier_document`, measured cuts, PyTorch's
    cuts of a `torch_saved_document` (None until it is known), and the chosen cut, `here`. If
    `clickable`, `CLICKED` gives the "strategy" and "bytes" of a clicked point, and the legend is
    left to `frontier_legend`, which a narrow page can wrap."""
    of_peak, marks = field == "peak_bytes", _marks(document, pytorch, field)
    line, now, theirs = map(_told, (document["frontier"], [here], _torch_cuts(pytorch)))
    curve = [{**c, "what": _WITHIN} for c in _told(document["within_peak"] if of_peak else ())]
    inside = {"color": _PEAK, "strokeDash": [4, 3], "point": {"color": _PEAK, "size": 26}}
    cuts = [] if of_peak or not pytorch else pytorch["pytorch_cuts"]
    rules = [c for c in cuts if c["net_share"] is None]
    found = [row[field] or 0 for row in (*line, *curve, *marks, *now, *theirs, *rules)]
    most, least = max(found), min(found) if of_peak else 0
    title = "peak of a step, estimated" if of_peak else "kept for the backward"
    x = alt.X(f"{field}:Q", title=title, axis=_bytes_axis(most, least))
    x = x.scale(zero=False, nice=False, padding=12) if of_peak else x
    y = alt.Y("net_share:Q", title="time added", axis=alt.Axis(format="+.0%", tickCount=6))
    sizes = "size:N; kept", "net:N; time added", "peak:N; peak of a step"
    named = tips("what:N; what", *sizes)
    legend = None if clickable else legend_below(2, labelLimit=190, offset=4, rowPadding=0)
    names, looks = zip(*_looks(marks, theirs).items(), strict=True)
    colours, shapes = (alt.Scale(domain=names, range=[*of]) for of in zip(*looks, strict=True))
    color = alt.Color("what:N", scale=colours, legend=legend)
    shape = alt.Shape("what:N", scale=shapes, legend=legend)
    hull = _of(line).encode(x=x, y=y)
    large, ring = (_of(rows).encode(x=x, y=y, tooltip=named) for rows in (marks[::-1], now))
    layers = [
        hull.mark_line(color=CAPTURED, strokeWidth=1.5, opacity=0.8).encode(order="bytes:Q"),
        hull.mark_point(color=CAPTURED, filled=True, size=26, opacity=1).encode(
            tooltip=tips(*sizes, "captures:Q; captures")
        ),
        *([_of(curve).encode(x=x, y=y, tooltip=named).mark_line(**inside)] if curve else ()),
        *_torch_curve(theirs, x, y, color, shape, sizes),
        # The first, which is the default, on top.
        large.mark_point(filled=True, size=90, opacity=0.9).encode(color=color, shape=shape),
        ring.mark_point(color=CHOSEN, filled=False, size=240, strokeWidth=2.5, opacity=1),
    ]
    for cut in rules:
        down = {1.0: ("PyTorch's min-cut", 8), BEST_BUDGET: (f"PyTorch's at {BEST_BUDGET}", 38)}
        layers += _rule(cut, most, *down.get(cut["budget"], ("", 0)))
    if clickable:  # what is clicked is larger than what is seen
        of_line = [{**c, "what": "", "strategy": ""} for c in line]
        spots = _of([*(m for m in marks if m["strategy"]), *of_line])  # the line on top
        clicked = alt.selection_point(name=CLICKED, fields=["strategy", "bytes"], empty=False)
        spots = spots.mark_point(filled=True, size=260, opacity=0, cursor="pointer")
        layers.append(spots.encode(x=x, y=y, tooltip=named).add_params(clicked))
    return alt.layer(*layers).properties(height=290, width="container")


def frontier_legend(document: Row, pytorch: Row | None, field: str) -> str:
    """The legend of the large points of `frontier`, as HTML that wraps."""
    looks = _looks(_marks(document, pytorch, field), _torch_cuts(pytorch))
    entries = "".join(
        f"<span><i style='background: {colour}; clip-path: {_CLIPS[shape]}'></i>"
        f"{escape(what)}</span>"
        for what, (colour, shape) in looks.items()
    )
    return f"<div class='rs-legend'>{entries}</div>"


def _looks(marks: Sequence[Row], theirs: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """The colour and the shape of the large points, by their kind."""
    names = dict.fromkeys(m["what"] for m in marks)
    looks = dict(zip(names, itertools.cycle(_LOOKS), strict=False))
    looks |= {"measured": (CHOSEN, "cross")} if "measured" in names else {}
    return looks | dict.fromkeys((c["what"] for c in theirs), (BASELINE, "circle"))


def _told(rows: Iterable[Row]) -> list[Row]:
    """Rows with their figures as people read them."""
    return [
        {
            **row,
            "size": size(row["bytes"]),
            "net": net_text(row["net_share"]),
            "peak": peak_words(row) if row.get("what") != _BY_BUDGET else size(row["peak_bytes"]),
        }
        for row in rows
    ]


def _marks(document: Row, rivals: Row | None, field: str) -> list[Row]:
    """Large points: strategies, measured cuts, and PyTorch eager, whose peak is unknown."""
    marks: list[Row] = [
        {**s, "what": STRATEGIES[s["strategy"]].title}
        for s in document["strategies"]
        if field != "bytes" or s["strategy"] != "peak"
    ]
    if rivals and field == "bytes":
        eager = {"bytes": rivals["pytorch_eager_bytes"], "net_share": 0, "strategy": ""}
        marks.append({"what": "PyTorch eager", **eager})
    for point in document.get("measured", ()):
        share = {"net_share": point["measured_share"], "strategy": ""}
        peak = {"measured_peak_bytes": point["peak_bytes"]}
        marks.append({**point, **share, **peak, "what": "measured"})
    return _told(m for m in marks if m[field] is not None)


def _torch_cuts(rivals: Row | None) -> list[Row]:
    """PyTorch's cuts whose time is known; equal ones as one, with all its budgets."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    cuts = rivals["pytorch_cuts"] if rivals else ()
    for cut in (c for c in cuts if c["net_share"] is not None):
        groups.setdefault((cut["bytes"], cut["net_share"], cut["peak_bytes"]), []).append(cut)
    found = []
    for like in groups.values():
        ends = dict.fromkeys(f"{c['budget']:g}" for c in (like[-1], like[0]))
        found.append({**like[0], "what": _BY_BUDGET, "budgets": " to ".join(ends)})
    return found


def _torch_curve(
    theirs: Sequence[Row], x: alt.X, y: alt.Y, color: alt.Color, shape: alt.Shape, sizes: Any
) -> list[alt.Chart]:
    """PyTorch's cuts as a line, with their budgets; hollow where masks are drawn anew."""
    if not theirs:
        return []
    told = tips("what:N; what", "budgets:N; budget", *sizes, "drawn_anew:Q; masks drawn anew")
    line = _of(theirs).encode(x=x, y=y)
    text = line.mark_text(color=BASELINE, fontSize=11, dx=7, dy=-8, align="left")
    layers = [
        line.mark_line(color=BASELINE, strokeWidth=1.5, opacity=0.8).encode(order="budget:Q"),
        text.encode(text="budgets:N"),
    ]
    for anew in (False, True):
        if some := [c for c in theirs if bool(c["drawn_anew"]) == anew]:
            points = _of(some).mark_point(filled=not anew, size=60, opacity=1, strokeWidth=2)
            layers.append(points.encode(x=x, y=y, color=color, shape=shape, tooltip=told))
    return layers


def tips(*fields: str) -> list[alt.Tooltip]:
    """The tooltip of a mark: fields, each with an optional title and format."""
    return [
        alt.Tooltip(field, title=title or alt.Undefined, format=form or alt.Undefined)
        for field, title, form in [[*one.split("; "), "", ""][:3] for one in fields]
    ]


def _bytes_axis(most: int, least: int = 0) -> alt.Axis:
    """At most six round numbers of KiB or MiB."""
    step = 1024
    while (most - least) / step > 5:
        step *= 2
    unit, name = (2**20, "MiB") if step >= 2**18 or least >= 2**20 else (2**10, "KiB")
    ticks = [*range(-(-least // step) * step, most + 1, step)]
    digits = ".1f" if not ticks else ".4~f" if step < unit else ".0f"
    return alt.Axis(
        values=ticks or [most],  # of cuts that differ by less than a tick, the number itself
        labelExpr=f"datum.value ? format(datum.value / {unit}, '{digits}') + ' {name}' : '0'",
        labelOverlap=False,
    )


def _rule(cut: Row, most: int, what: str, down: int) -> list[alt.Chart]:
    """A cut of PyTorch's of unknown work: a line with its name `down` pixels below, or a tick."""
    held, budget = cut["bytes"], f"{cut['budget']:g}"
    named = {"what": what or "PyTorch's partitioner", "label": what.replace(" ", "\n", 1)}
    base = _of([{**cut, "size": size(held), "budget": budget, **named}]).encode(x="bytes:Q")
    told = tips("what:N; what", "budget:N", "size:N; kept", "drawn_anew:Q; masks drawn anew")
    if not what:
        tick = base.mark_tick(color=BASELINE, thickness=2, size=12, opacity=1)
        return [tick.encode(y=alt.YValue(284), tooltip=told)]
    where: Row = _LEFT if held > 0.5 * most else _RIGHT
    text = base.mark_text(color=QUIET, **where, y=down, fontSize=11, lineBreak="\n")
    return [
        base.mark_rule(color=QUIET, strokeDash=[5, 4], strokeWidth=1.5).encode(tooltip=told),
        text.encode(text="label:N"),
    ]


def live_bytes_chart(lifetimes: Row) -> alt.LayerChart:
    """The bytes held at each node of a training step; `lifetimes` is "held" of `cut_document`.
    `CLICKED` gives the "node" nearest to a click, its number through both phases."""
    turn, starts = lifetimes["forward"] + 1, {"forward": 0, "backward": lifetimes["forward"]}
    changes = [{**s, "node": s["step"] + starts[s["phase"]]} for s in lifetimes["changes"]]
    if not (changes and changes[0]["node"] == 0):
        changes.insert(0, {"phase": "forward", "node": 0, "bytes": 0, "captured": 0, "again": 0})
    every = -(-len(changes) // _MOST_STEPS)  # of so many, the one at which most is held
    pieces = (changes[k : k + every] for k in range(0, len(changes), every))
    steps = [max(piece, key=lambda s: s["bytes"]) for piece in pieces]
    end = {**changes[-1], "node": turn + lifetimes["backward"]}  # the last is as wide as the others
    rows = []
    for step in (*steps, end):
        kept, again = step["captured"], step["again"]
        parts = enumerate((kept, again, step["bytes"] - kept - again))
        rows += [
            {"node": step["node"], "what": [*_HELD][k], "order": k, "bytes": b} for k, b in parts
        ]
    x = alt.X("node:Q", title="nodes, in order of execution", axis=alt.Axis(tickCount=5))
    y = alt.Y("bytes:Q", title=None, stack=True, axis=alt.Axis(format="~s", tickCount=4))
    colours = alt.Scale(domain=[*_HELD], range=[*_HELD.values()])
    alone = alt.selection_point(fields=["what"], bind="legend")
    area = _of(rows).mark_area(interpolate="step-after", opacity=0.6)
    area = area.add_params(alone).transform_filter(alone)
    color = alt.Color("what:N", scale=colours, legend=legend_below(3, offset=4))
    area = area.encode(x=x, y=y, color=color, order="order:O")
    rule = _of([{"node": turn}]).mark_rule(color=QUIET, strokeDash=[3, 3]).encode(x="node:Q")
    sides = [
        _of([{"node": turn, "word": word}])
        .mark_text(color=QUIET, **where, y=6, fontSize=11)
        .encode(x="node:Q", text="word:N")
        for word, where in (("forward", _LEFT), ("backward", _RIGHT))
    ]
    told = tips("phase:N", "node:Q", "size:N; held")
    spots = _of([{**s, "size": size(s["bytes"])} for s in steps])
    click = alt.selection_point(name=CLICKED, fields=["node"], nearest=True, empty=False)
    spots = spots.mark_point(opacity=0, cursor="pointer").add_params(click)
    spots = spots.encode(x=x, y=alt.YValue(130), tooltip=told)
    return alt.layer(area, rule, *sides, spots).properties(height=260, width="container")


def times(rows: Sequence[TimeRow]) -> alt.LayerChart:
    """Every run as a tick, the quartiles as a bar and the median as a point, one line a row."""

    def line(row: TimeRow) -> str:
        return f"{row.what}, {timings.PHASES.get(row.phase, row.phase)}"

    y = alt.Y("row:N", title=None, sort=[*map(line, rows)], axis=alt.Axis(labelLimit=300))
    color = alt.Color("what:N", legend=None, sort=list(dict.fromkeys(r.what for r in rows)))
    middle = _of(
        [
            {"row": line(r), "what": r.what, "median": r.median_ms, "q1": r.q1_ms, "q3": r.q3_ms}
            for r in rows
        ]
    ).encode(y=y, color=color)
    samples = [{"row": line(r), "what": r.what, "ms": ms} for r in rows for ms in r.samples_ms]
    runs = alt.Chart(pd.DataFrame(samples, columns=["row", "what", "ms"]))
    x = alt.X("ms:Q", title="milliseconds", axis=alt.Axis(grid=True, tickCount=8))
    ticks = runs.mark_tick(opacity=0.4, thickness=1, size=16)
    ticks = ticks.encode(x=x, y=y, color=color, tooltip=tips("ms:Q; ; .3f"))
    box = middle.mark_bar(height=8, opacity=0.5).encode(x=alt.X("q1:Q"), x2="q3:Q")
    quartiles = "q1:Q; lower quartile, ms; .3f", "q3:Q; upper quartile, ms; .3f"
    told = tips("row:N; row", "median:Q; median, ms; .3f", *quartiles)
    median = alt.X("median:Q", scale=alt.Scale(zero=True))
    point = middle.mark_point(filled=True, size=70, opacity=1).encode(x=median, tooltip=told)
    return alt.layer(ticks, box, point).properties(height=alt.Step(32), width="container")


def storages(document: Row, clickable: bool = False) -> alt.LayerChart:
    """The storages of a memory plan (a `memory_document`) over its steps: a bar for each tensor,
    faults in red; if `clickable`, `CLICKED` gives the "id" of a bar's node."""
    tensors = [{**t, "size": size(t["bytes"])} for t in document["tensors"]]
    lanes: dict[int, list[int]] = {}  # of a storage, the step to which each is taken
    for tensor in sorted(tensors, key=lambda t: t["from"]):
        ends = lanes.setdefault(tensor["storage"], [])
        free = (lane for lane, step in enumerate(ends) if step < tensor["from"])
        tensor["lane"] = next(free, len(ends))
        ends[tensor["lane"] : tensor["lane"] + 1] = [tensor["to"]]
    bytes_of = {s["storage"]: s["bytes"] for s in document["storages"]}
    large = sorted(lanes, key=lambda k: (-len(lanes[k]), -(bytes_of[k] or 0)))
    place = {storage: row for row, storage in enumerate(sorted(large[:_STORAGES]))}

    def boxes(pieces: Sequence[Row]) -> alt.Chart:
        made = []
        for piece in (p for p in pieces if p["storage"] in place):
            high = 0.84 / len(lanes[piece["storage"]])
            top = place[piece["storage"]] + 0.08 + high * piece["lane"]
            left, right = piece["from"] - 0.44, piece["to"] + 0.44
            corners = {"left": left, "right": right, "top": top, "bottom": top + high - 0.04}
            made.append({**piece, **corners})
        return _of(made)

    labels = [f"{k}: {size(bytes_of[k])}" for k in place]
    steps, rows = [0.5, len(document["steps"]) + 1.5], [len(labels), 0]
    x = alt.X("left:Q", title="step", axis=_whole_steps()).scale(domain=steps, nice=False)
    middles = [row + 0.5 for row in range(len(labels))]
    named = f"{json.dumps(labels)}[floor(datum.value)]"
    plain = dict.fromkeys(("labelOverlap", "ticks", "domain", "grid"), False)
    axis = alt.Axis(values=middles, labelExpr=named, labelLimit=140, **plain)
    y = alt.Y("top:Q", title=None, axis=axis, scale=alt.Scale(domain=rows, nice=False))
    told = "type:N; tensor", "size:N", "written by:N", "from:Q; from step", "to:Q; to step"
    corners = {"x": x, "x2": "right", "y": y, "y2": "bottom"}
    whole = boxes(tensors).mark_rect(color=CAPTURED, opacity=0.75, cornerRadius=2)
    whole = whole.encode(**corners, tooltip=tips(*told, "last used by:N"))
    layers = [whole]
    if red := [{**tensors[at], **f} for f in document["faults"] for at in f["tensors"]]:
        layers.append(boxes(red).mark_rect(color=FAULT).encode(**corners))
    if clickable:
        click = alt.selection_point(name=CLICKED, fields=["id"], empty=False)
        layers.append(whole.mark_rect(opacity=0, cursor="pointer").add_params(click))
    return alt.layer(*layers).properties(height=66 + 20 * len(labels), width="container")


def _whole_steps() -> alt.Axis:
    return alt.Axis(format="d", tickMinStep=1, tickCount=8, grid=False)


def drawn(section: Section) -> Any:
    """The chart of a section of `viz.rows.sections.chart`."""
    return _CHARTS[section["name"]](*section["data"])


_CHARTS: dict[str, Callable[..., Any]] = {
    c.__name__: c for c in (capture_bytes, frontier, live_bytes_chart, storages, times)
}


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
    legend = legend_below(2, labelLimit=300, symbolType="stroke", symbolOpacity=1)
    scale = alt.Scale(domain=order, range=[*LINES])  # a legend of more kernels says nothing
    color = alt.Color("kernel:N", scale=scale, legend=legend if len(order) <= len(LINES) else None)
    trials_ = alt.Scale(zero=False, nice=False)
    x = alt.X("trial:Q", title="trial", scale=trials_, axis=_whole_steps())
    scale = alt.Scale(type="log", nice=False, padding=10)
    axis = alt.Axis(tickCount=5, format="~g")
    y = alt.Y("best:Q", title="milliseconds of a call", scale=scale, axis=axis)
    figures = "ms:Q; this trial, ms; .4f", "best:Q; best so far, ms; .4f"
    base = _of(rows).encode(x=x, color=color, tooltip=tips("kernel:N", "trial:Q", *figures))
    points = base.transform_filter("isValid(datum.ms)")
    points = points.mark_point(filled=True, size=22, opacity=0.35)
    points = points.encode(y=alt.Y("ms:Q", scale=scale))
    steps = base.mark_line(interpolate="step-after", strokeWidth=2).encode(y=y)
    return alt.layer(points, steps).properties(height=260, width="container")
