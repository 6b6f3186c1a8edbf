"""The passes of a recording as rows: one a run, and one a pass with all its runs."""

from __future__ import annotations

from collections.abc import Sequence

from relascope.core.errors import EngineError
from relascope.recorder.reading import PassRun, Recording
from relascope.viz.compare.text import text_diff
from relascope.viz.rows import Row
from relascope.viz.rows.formats import number

SLOW = 0.02
"""A run whose own time is more than this part of the whole is slow."""
FILTERS = ("changed", "slow", "failed")
_NAMED = 3  # functions that a row names


def whole_seconds(recording: Recording) -> float:
    """Seconds in passes, each counted once."""
    return sum(p.seconds or 0.0 for p in recording.passes if not p.depth)


def end_words(rows: Sequence[Row]) -> str:
    """Where and why a compile stopped, in a sentence; "" where all of it ended well.

    Args:
        rows: of `pass_rows`.
    """
    bad = next((r for r in reversed(rows) if _bad(r)), None)
    if bad is None:
        return ""
    around = [r for r in rows[: bad["number"] + 1] if not r["depth"]][-1:]
    later = rows[bad["number"] + 1 :]
    if not all(map(_bad, around)) or any(r["depth"] <= bad["depth"] for r in later):
        return ""  # the program went on
    where = f"pass {number(bad['number'])}, {bad['pass']}"
    if bad["failure"] is None:
        return f"The compile was ended in {where}: the recording stops there."
    lines = [line.strip() for line in bad["failure"].splitlines() if line.strip()]
    return f"The compile failed in {where}: {lines[-1][:300] if lines else 'without a message'}"


def _bad(row: Row) -> bool:
    return row["failure"] is not None or not row["ended"]


def pass_rows(recording: Recording) -> list[Row]:
    """One row a run of a pass, in the order in which they began."""
    whole = whole_seconds(recording)
    return [_row(one, whole) for one in recording.passes]


def _row(one: PassRun, whole: float) -> Row:
    touched = one.touched
    return {
        "number": one.number,
        "depth": one.depth,
        "pass": one.name,
        "opt_level": one.opt_level,
        "seconds": one.seconds,
        "own_seconds": one.own_seconds,
        "functions": None if one.before is None else len(one.before),
        "touched": None if touched is None else list(touched),
        "failure": one.failure,
        "kind": one.kind,
        "ended": one.seconds is not None,
        "slow": (one.own_seconds or 0.0) > SLOW * whole,
    }


def wanted(row: Row, only: str | None) -> bool:
    """Whether a filter lets a row of `pass_rows` through; None lets all.

    Args:
        only: in `FILTERS`; what did not end has failed.
    """
    if only == "changed":
        return bool(row["touched"])
    if only == "slow":
        return bool(row["slow"])
    return only is None or row["failure"] is not None or not row["ended"]


def total_rows(rows: Sequence[Row]) -> list[Row]:
    """One row a pass by its name, the one that took longest first: how often, how much, where."""
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row["pass"], []).append(row)
    whole = sum(r["own_seconds"] or 0.0 for r in rows)
    found = []
    for name, of in runs.items():
        times = [r["own_seconds"] or 0.0 for r in of]
        touched: dict[str, int] = {}
        for r in of:
            for function in r["touched"] or ():
                touched[function] = touched.get(function, 0) + 1
        found.append(
            {
                "pass": name,
                "runs": len(of),
                "own_seconds": sum(times),
                "longest": max(times),
                "share": sum(times) / whole if whole else 0.0,
                "changed": sum(bool(r["touched"]) for r in of),
                "functions": functions_text(sorted(touched, key=lambda n: -touched[n])),
            }
        )
    return sorted(found, key=lambda r: -r["own_seconds"])


def step_diff(recording: Recording, number: int) -> str:
    """What a pass changed, function by function, each as `viz.compare.text.text_diff` has it.

    Raises:
        EngineError: kind "usage"; there is no such pass.
    """
    if not 0 <= number < len(recording.passes):
        message = f"There is no pass {number}: the recording has {len(recording.passes)}."
        raise EngineError("usage", message, str(number), "They are counted from 0.")
    run, parts = recording.passes[number], []
    for name in run.touched or ():
        old, new = (
            recording.text(side[name]) if side and name in side else ""
            for side in (run.before, run.after)
        )
        parts.append(text_diff(old, new, (f"{name} before", f"{name} after")))
    return "\n".join(parts)


def functions_text(names: Sequence[str]) -> str:
    """Functions in a few words: the first by name, the rest counted."""
    said = ", ".join(names[:_NAMED])
    return said if len(names) <= _NAMED else f"{said} and {number(len(names) - _NAMED)} more"
