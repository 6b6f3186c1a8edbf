"""Timings as rows: for tables, for files, and for a history of runs."""

import csv
import io
import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from relascope.core.visible import visible
from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.targets import Target
from relascope.engine.protocol.times import TimeResult, TimeRow
from relascope.viz.rows import Row, fields
from relascope.viz.rows.formats import milliseconds
from relascope.viz.rows.sections import Section, chart, figures, sentence, table

_EQUAL = 1.05  # times as long: as fast as eager, for people
_NEARLY = 1.1
_WIDE = 1.5  # a spread is wide if its upper end is more than this many times the lower

_COLUMNS = (
    "what phase median_ms q1_ms q3_ms ratio_to_eager ratio_of_minima ours_over max_abs_error "
    "peak_bytes capture_bytes build_seconds kept_bytes"
)
COLUMNS = _COLUMNS.split()
"""The fields of a timing's row, without its samples and its target."""

_RUN = "when model batch tokens dtype engine training pipeline strategy machine threads repeats"
_SPREAD = ("ratio_q1", "ratio_q3")
HISTORY_COLUMNS = (*_RUN.split(), *COLUMNS, "target", *_SPREAD, "min_ms", "runs", "notes")
"""The fields of a line of a history: the run, and one of its rows."""

_SHOWN = (
    "what; phase; median: median_ms; q1?: q1_ms; q3?: q3_ms; against the baseline?: said; "
    "ratio?: ratio_to_eager; of minima?: ratio_of_minima; ours over it?: ours_over; "
    "max abs error?: max_abs_error; peak memory?: peak_bytes; "
    "kept between runs?: kept_bytes; captures held?: capture_bytes; "
    "build?: build_seconds; target?"
)

COMPARED = "tensor: name; max abs error: max_abs; relative to scale: max_rel; scale; dtype"
"""Columns of the comparisons behind a timing's errors, as `viz.rows.columns.renamed` takes them."""

PHASES = {"forward": "forward", "forward_backward": "forward + backward"}


def verdicts(rows: Sequence[TimeRow]) -> list[tuple[str, bool] | None]:
    """Each row's verdict against the baseline of its phase (eager, or the imported program), and
    whether runs agree enough for a headline; None for a baseline. The spread of a ratio has both
    quartiles over the rounds, and the ratio of the best runs, which differs on a busy machine. A
    ratio is one number if its spread is narrow and on one side of 1."""
    baselines = {r.phase: r for r in rows if r.ratio_to_eager is None}
    return [_verdict(r, baselines.get(r.phase)) for r in rows]


def _verdict(row: TimeRow, baseline: TimeRow | None) -> tuple[str, bool] | None:
    ratio = row.ratio_to_eager
    if ratio is None or baseline is None:
        return None
    spread = (ratio, row.ratio_q1, row.ratio_q3, row.ratio_of_minima)
    known = sorted(r for r in spread if r is not None)
    low, high = known[0], known[-1]
    busy = not (row.steady and baseline.steady)
    wide = busy or high > _WIDE * low
    text = _against(baseline.what.removeprefix("pytorch "), ratio, low, high, wide)
    return f"{text}; the machine is busy" if busy else text, not wide


def _against(baseline: str, ratio: float, low: float, high: float, wide: bool) -> str:
    """A ratio to a baseline's time, with the ends of its spread, in words."""
    if low > 1 / _EQUAL and high < _EQUAL:
        return f"as fast as {baseline}"
    if not wide and low > 1:
        return f"{ratio:.2f}× slower than {baseline}"
    if not wide and high < 1:
        return f"{1 / ratio:.2f}× faster than {baseline}"
    if 1 / _NEARLY < ratio < _NEARLY and low < 1 < high:
        return f"about equal to {baseline}"
    if high < 1 / _EQUAL:
        return f"{_times(1 / high)} to {_times(1 / low)} faster than {baseline}"
    if low > _EQUAL:
        return f"{_times(low)} to {_times(high)} slower than {baseline}"
    return f"{low:.2f} to {high:.2f} of {baseline}'s time"


def _times(factor: float) -> str:
    """A factor with two significant digits: `1.3×`, `6×`, `190×`."""
    return f"{float(f'{factor:.2g}'):g}×"


def label(target: str, row: TimeRow) -> str:
    """The label of a large figure: the phase, after the name of anything but the chosen target."""
    phase = PHASES.get(row.phase, row.phase)
    if row.what.endswith(f", {target}"):
        return phase
    return f"{row.what.partition(', ')[2] if row.target else row.what}, {phase}"


def short(text: str, targets: Iterable[Target]) -> str:
    """A text in which the kernels' origin replaces the name of each known target."""
    for target in sorted(targets, key=lambda t: -len(t.name)):
        if target.kernels:
            text = text.replace(target.name, target.kernels)
    return text


def run_facts(model: str, request: BuildRequest, ir: str, strategy: str | None) -> Row:
    """The facts of a run for `run_document`; `strategy` is for training only."""
    return {
        "model": model,
        **fields(request.source, "batch tokens dtype training"),
        "repeats": request.repeats,
        "engine": ir,
        "pipeline": str(request.pipeline),
        "strategy": strategy,
    }


def run_document(result: TimeResult, facts: Row) -> Row:
    """One run as the document of `time MODEL`; `facts` are from `run_facts`."""
    return {**facts, "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **plain(result)}


def run_sections(run: Row, title: str = "", targets: Sequence[Target] = ()) -> list[Section]:
    """A `run_document`: facts, a headline that its data supports, all rows; targets by `short`."""
    rows = [TimeRow(**r) for r in run["rows"]]
    said = verdicts(rows)
    headline = [
        (verdict[0], label(run["target"], r), *([] if verdict[1] else ["unsure"]))
        for r, verdict in zip(rows, said, strict=True)
        if verdict is not None
    ]
    facts = [
        (title or str(run.get("model") or ""), ""),
        (str(run.get("when") or ""), ""),
        (run["machine"], ""),
        (str(run["threads"]), "thread" if run["threads"] == 1 else "threads"),
        (str(run.get("repeats") or ""), "runs a row"),
        (milliseconds(run["build_seconds"]), "to build"),
    ]
    named = [replace(r, what=short(r.what, targets)) for r in rows]
    lines = [
        {**plain(r), "phase": PHASES.get(r.phase, r.phase), "said": v[0] if v else "baseline"}
        for r, v in zip(named, said, strict=True)
    ]
    return [
        figures(*facts),
        figures(*headline, large=True),
        *(sentence(short(note, targets), True) for note in run["notes"]),
        table("", lines, _SHOWN),
        chart("", "times", named),
        table(f"Against {run['against']}, tensor by tensor", run["comparisons"], COMPARED, most=5),
    ]


def history_rows(runs: Iterable[Row]) -> list[Row]:
    """One line for each row of each run, the oldest run first."""
    return [
        {
            **{name: run.get(name) for name in _RUN.split()},
            **{name: row.get(name) for name in (*COLUMNS, "target", *_SPREAD)},
            "min_ms": min(row["samples_ms"], default=None),
            "runs": len(row["samples_ms"]),
            "notes": " ".join(run["notes"]),
        }
        for run in runs
        for row in run["rows"]
    ]


def history_csv(runs: Iterable[Row], columns: Sequence[str] = ()) -> str:
    """The lines of a history as CSV: a whole file, or lines to append to one with `columns`."""
    return csv_text(history_rows(runs), columns or HISTORY_COLUMNS, not columns)


def history_json(runs: Sequence[Row]) -> str:
    """Every run as JSON, with samples and comparisons."""
    return json.dumps({"runs": list(runs)}, ensure_ascii=False, indent=1)


def csv_text(rows: Sequence[Row], columns: Sequence[str], head: bool = True) -> str:
    """Rows as CSV in which no text is a formula to a spreadsheet."""
    text = io.StringIO()
    writer: csv.DictWriter[Any] = csv.DictWriter(
        text, columns, extrasaction="ignore", lineterminator="\n"
    )
    if head:
        writer.writeheader()
    writer.writerows({c: _csv_cell(row.get(c)) for c in columns} for row in rows)
    return text.getvalue()


_FORMULA = re.compile(r"[=+\-@]")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = visible(str(value), keep="")
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
