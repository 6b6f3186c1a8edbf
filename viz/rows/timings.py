"""Timings as rows: for tables, for files, and for a history of runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from relascope.engine.protocol.plain import plain
from relascope.engine.protocol.times import TimeResult
from relascope.viz.rows import Row

COLUMNS = (
    "what",
    "phase",
    "median_ms",
    "q1_ms",
    "q3_ms",
    "ratio_to_eager",
    "ratio_of_minima",
    "ours_over",
    "max_abs_error",
    "peak_bytes",
    "capture_bytes",
    "build_seconds",
)
"""What a row of a timing has, without its samples and its target."""

_RUN = (
    "when",
    "model",
    "batch",
    "tokens",
    "dtype",
    "engine",
    "training",
    "pipeline",
    "strategy",
    "machine",
    "threads",
    "repeats",
)
HISTORY_COLUMNS = (*_RUN, *COLUMNS, "target", "min_ms", "runs", "notes")
"""What a line of a history has: what was run, and one of its rows."""


def run_document(
    result: TimeResult, ir: str, pipeline: str, strategy: str | None, about: Row
) -> Row:
    """One run as a document: what `time MODEL` prints.

    Args:
        about: more of what was run: "model", "batch", "tokens", "dtype", "training", "repeats",
            "when".
    """
    return {**about, "engine": ir, "pipeline": pipeline, "strategy": strategy, **plain(result)}


def history_rows(runs: Iterable[Row]) -> list[Row]:
    """One line a row of each run, the oldest run first."""
    return [
        {
            **{name: run.get(name) for name in _RUN},
            **{name: row[name] for name in (*COLUMNS, "target")},
            "min_ms": min(row["samples_ms"], default=None),
            "runs": len(row["samples_ms"]),
            "notes": " ".join(run["notes"]),
        }
        for run in runs
        for row in run["rows"]
    ]


def history_csv(runs: Iterable[Row], head: bool = True) -> str:
    """The lines of a history as CSV."""
    return csv_text(history_rows(runs), HISTORY_COLUMNS, head)


def history_json(runs: Sequence[Row]) -> str:
    """Every run as it is, samples and comparisons included."""
    return json.dumps({"runs": list(runs)}, ensure_ascii=False, indent=1)


def csv_text(rows: Sequence[Row], columns: Sequence[str], head: bool = True) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    writer: csv.DictWriter[Any] = csv.DictWriter(
        text, columns, extrasaction="ignore", lineterminator="\n"
    )
    if head:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
