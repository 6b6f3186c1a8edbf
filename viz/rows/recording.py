"""The passes of a recording as rows: one for each run, and one for all runs of a pass."""

from collections import Counter
from collections.abc import Sequence

from relascope.core.errors import EngineError
from relascope.recorder.reading import PassRun, Recording
from relascope.viz.compare.text import text_diff
from relascope.viz.rows import Row, fields
from relascope.viz.rows.formats import milliseconds, number
from relascope.viz.rows.sections import Section, figures, table

SLOW = 0.02  # a run is slow if its own time is more than this part of the whole
FILTERS = ("changed", "slow", "failed")
_RUNS = (
    "number; pass; ms: seconds; own ms: own_seconds; functions; changed; in which functions?: "
    "names; failed?"
)
_TOTALS = (
    "pass; runs; own ms: own_seconds; share; longest ms: longest; that changed something: changed; "
    "in which functions: functions"
)
_NAMED = 3  # functions that a row names
_LONGEST = 200  # characters of a pass's name in its list


def whole_seconds(recording: Recording) -> float:
    """Seconds in passes, each counted once."""
    return sum(p.seconds or 0.0 for p in recording.passes if not p.depth)


def end_words(rows: Sequence[Row]) -> str:
    """Where and why a compile of these `pass_rows` stopped, or ""."""
    bad = next((r for r in reversed(rows) if _bad(r)), None)
    if bad is None:
        return ""
    around = [r for r in rows[: bad["number"]] if not r["depth"]][-1:]
    if not all(map(_bad, around)) or any(r["depth"] <= bad["depth"] for r in rows[bad["number"] :]):
        return ""  # the program went on
    where = f"pass {number(bad['number'])}, {bad['pass']}"
    if bad["failure"] is None:
        return f"The process ended in {where}, and the recording stops there."
    lines = [line.strip() for line in bad["failure"].splitlines() if line.strip()]
    return f"The compile failed in {where}: {lines[-1][:300] if lines else 'without a message'}"


def _bad(row: Row) -> bool:
    return row["failure"] is not None or not row["ended"]


def pass_rows(recording: Recording) -> list[Row]:
    """One row for each run of a pass, in the order in which they began."""
    slow = SLOW * whole_seconds(recording)
    return [
        {
            **fields(one, "number depth"),
            "pass": one.name,
            **fields(one, "opt_level seconds own_seconds"),
            "functions": None if one.before is None else len(one.before),
            **fields(one, "touched failure kind"),
            "ended": one.seconds is not None,
            "slow": (one.own_seconds or 0.0) > slow,
        }
        for one in recording.passes
    ]


def list_rows(rows: Sequence[Row]) -> list[Row]:
    """`pass_rows` for the list in the browser, whose buttons stop at `own_changes`."""
    changes = set(own_changes(rows))
    longest = max((r["own_seconds"] or 0.0 for r in rows), default=0.0)
    return [
        {
            "title": r["pass"][:_LONGEST],
            "depth": r["depth"],
            "level": r["opt_level"],
            "changed": len(r["touched"] or ()),
            "own": "" if r["own_seconds"] is None else milliseconds(r["own_seconds"]),
            "share": round(100 * (r["own_seconds"] or 0.0) / (longest or 1.0)),
            "time": "" if r["seconds"] is None else milliseconds(r["seconds"]),
            "slow": r["slow"],
            "bad": "failed" if r["failure"] is not None else "" if r["ended"] else "did not end",
            "idle": not (r["touched"] is None or r["touched"] or _bad(r)),
            "stop": index in changes,
        }
        for index, r in enumerate(rows)
    ]


def first(rows: Sequence[Row]) -> int:
    """Index of the pass to look at first: the innermost that failed, or one with changes."""
    failed = [r for r in rows if r["failure"] is not None]
    if failed:
        return int(max(failed, key=lambda r: r["depth"])["number"]) - 1
    return next(iter(own_changes(rows)), 0)


def own_changes(rows: Sequence[Row]) -> list[int]:
    """Indices of the passes that changed something themselves, not through a pass inside."""
    found: list[int] = []
    least = 0  # the least depth on the way to the next pass that changed something
    for index, row in reversed([*enumerate(rows)]):
        if row["touched"]:
            if row["depth"] >= least:  # that pass did not run inside this one
                found.append(index)
            least = row["depth"]
        least = min(least, row["depth"])
    return found[::-1]


def became(function: str, old: str | None, new: str | None, row: Row, ended: bool) -> str:
    """What a run did to a function, by hashes of its content before and after (None: it did not
    exist), and which others it changed. `ended` says whether the run's result is known."""
    if not ended:
        return f"{function}, as the pass received it"
    if old == new:
        said = "unchanged"
    else:
        said = "made by the pass" if old is None else "removed" if new is None else "changed"
    others = [n for n in row["touched"] or () if n != function]
    more = f". The pass changed {functions_text(others)}{', too' * (old != new)}" if others else ""
    return f"{function}: {said}{more}"


def gaps(document: Row) -> list[str]:
    """Sentences on what a `recording_document` lacks, and where its compile stopped."""
    cut = "The recording ends in the middle of a line: the process ended while writing it."
    stopped = document["stopped"]
    found = (
        not document["whole"] and cut,
        stopped and f"The compile continued, but the recording stopped: {stopped[:500]}",
        document["end"],
        not document["totals"] and "No pass ran during this recording.",
    )
    return [said for said in found if said]


def recording_document(recording: Recording, rows: Sequence[Row]) -> Row:
    """The document of `open FILE.rsc` without the passes; `rows` are from `pass_rows`."""
    return {
        **fields(recording, "about whole stopped"),
        "end": end_words(rows),
        "seconds": whole_seconds(recording),
        "totals": total_rows(rows),
    }


def runs_table(rows: Sequence[Row]) -> Section:
    """A table of rows of `pass_rows`, each below the pass around it."""
    cells = []
    for row in rows:
        failure, touched = row["failure"], row["touched"]
        last = None if failure is None else (failure or "failed").splitlines()[-1][:200]
        more = {
            "pass": "  " * min(row["depth"], 40) + row["pass"],
            "changed": None if touched is None else len(touched),
            "names": functions_text(touched or ()),
            "failed": last if last or row["ended"] else "did not end",
        }
        cells.append(row | more)
    return table("", cells, _RUNS)


def times_sections(document: Row) -> list[Section]:
    """Figures of a recording, and a table of `total_rows`, from `recording_document`."""
    totals = document["totals"]
    note = "Own time leaves out the passes that ran inside, so that the times add up."
    return [
        figures(
            (milliseconds(document["seconds"]), "in passes"),
            (number(sum(t["runs"] for t in totals)), "runs"),
            (number(len(totals)), "different passes"),
        ),
        table("Where the time is", totals, _TOTALS, note=note, most=10),
    ]


def about(recording: Recording, document: Row) -> Row:
    """Facts of a recording for the head of a page; `document` is a `recording_document`."""
    given, runs = recording.about.get("arguments"), number(len(recording.passes))
    return {
        "recording": recording.path.name,
        "command": " ".join(map(str, given)) if isinstance(given, list) else "",
        "TVM": recording.about.get("tvm"),
        "Python": recording.about.get("python"),
        "level": recording.about.get("level"),
        "passes": f"{runs} in {milliseconds(document['seconds'])}",
    }


NAMES_ALONE = (
    "At this level a recording has only names and times. Record with `--level text` or more to see "
    "what passes change."
)


def passes_filter(row: Row, only: str | None) -> bool:
    """Whether a row of `pass_rows` matches a filter of `FILTERS`; None matches all."""
    lets = {"changed": row["touched"], "slow": row["slow"], "failed": _bad(row), None: True}
    return bool(lets[only])


def total_rows(rows: Sequence[Row]) -> list[Row]:
    """One row for all runs of a pass, by name, the longest own time first."""
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row["pass"], []).append(row)
    whole = sum(r["own_seconds"] or 0.0 for r in rows)
    found = []
    for name, of in runs.items():
        times = [r["own_seconds"] or 0.0 for r in of]
        touched = Counter(function for r in of for function in r["touched"] or ())
        row = {"pass": name, "runs": len(of), "own_seconds": sum(times), "longest": max(times)}
        row["share"] = sum(times) / whole if whole else 0.0
        row["changed"] = sum(bool(r["touched"]) for r in of)
        row["functions"] = functions_text([function for function, _ in touched.most_common()])
        found.append(row)
    return sorted(found, key=lambda r: -r["own_seconds"])


def no_module(run: PassRun) -> str:
    """A sentence on why a pass returned no module."""
    if run.failure is not None:
        raised = (run.failure.strip().splitlines() or ["an error without a message"])[-1]
        return f"It raised {raised[:200].rstrip('.')}."
    if run.seconds is None:
        return "It had not ended when the recording did."
    return "It returns code, not a module." if run.kind != "pass" else "It is not in the file."


def module_text(recording: Recording, run: PassRun, after: bool) -> str:
    """As `Recording.module`; raises EngineError, kind "file", if there is none."""
    text = recording.module(run.index, after)
    if text is None:
        where = f"{'after' if after else 'before'} pass {run.number}"
        message = f"The recording has no module {where}. {no_module(run)}"
        raise EngineError("file", message, run.name, "Record the compile with --level modules.")
    return text


def pass_of(recording: Recording, number: int) -> PassRun:
    """A pass by its number. Raises EngineError, kind "usage", if there is none."""
    if not 1 <= number <= len(recording.passes):
        message = f"There is no pass {number}: the recording has {len(recording.passes)}."
        raise EngineError("usage", message, str(number), "Passes are counted from 1.")
    return recording.passes[number - 1]


def step_diff(recording: Recording, number: int) -> str:
    """A pass's changes by function, by `text_diff`. Raises EngineError if they are unknown."""
    run = pass_of(recording, number)
    if run.touched is None:
        message = f"The changes of pass {number}, {run.name}, are unknown. "
        raise EngineError("file", message + no_module(run), recording.path.name)

    def diff(name: str) -> str:
        sides = (run.before or {}, run.after or {})
        old, new = (recording.text(side[name]) if name in side else "" for side in sides)
        return text_diff(old, new, (f"{name} before", f"{name} after"))

    return "\n".join(map(diff, run.touched))


def functions_text(names: Sequence[str]) -> str:
    """Functions in a few words: the first by name, the rest counted."""
    said = ", ".join(names[:_NAMED])
    return said if len(names) <= _NAMED else f"{said} and {number(len(names) - _NAMED)} more"
