"""The passes of a recording as rows: one a run, and one a pass with all its runs."""

from collections import Counter
from collections.abc import Sequence

from relascope.core.errors import EngineError
from relascope.recorder.reading import PassRun, Recording
from relascope.viz.compare.text import text_diff
from relascope.viz.rows import Row, fields
from relascope.viz.rows.formats import milliseconds, number
from relascope.viz.rows.sections import Section, figures, table

SLOW = 0.02  # a run whose own time is more than this part of the whole is slow
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
    """Where and why a compile of these `pass_rows` stopped; "" where all of it ended well."""
    bad = next((r for r in reversed(rows) if _bad(r)), None)
    if bad is None:
        return ""
    around = [r for r in rows[: bad["number"] + 1] if not r["depth"]][-1:]
    later = rows[bad["number"] + 1 :]
    if not all(map(_bad, around)) or any(r["depth"] <= bad["depth"] for r in later):
        return ""  # the program went on
    where = f"pass {number(bad['number'])}, {bad['pass']}"
    if bad["failure"] is None:
        return f"The process ended in {where}, and the recording stops there."
    lines = [line.strip() for line in bad["failure"].splitlines() if line.strip()]
    return f"The compile failed in {where}: {lines[-1][:300] if lines else 'without a message'}"


def _bad(row: Row) -> bool:
    return row["failure"] is not None or not row["ended"]


def pass_rows(recording: Recording) -> list[Row]:
    """One row a run of a pass, in the order in which they began."""
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


def as_columns(rows: Sequence[Row]) -> Row:
    """Rows of `pass_rows` column by column, as the list of passes in the browser takes them."""
    return {
        "name": [r["pass"][:_LONGEST] for r in rows],
        "depth": [r["depth"] for r in rows],
        "changed": [None if r["touched"] is None else len(r["touched"]) for r in rows],
        "own": [r["own_seconds"] for r in rows],
        "time": [r["seconds"] for r in rows],
        "slow": [int(r["slow"]) for r in rows],
        "failed": [1 if r["failure"] is not None else 0 if r["ended"] else 2 for r in rows],
    }


def first(rows: Sequence[Row], changes: Sequence[int]) -> int:
    """The pass to look at first: the innermost that failed, else one that changed something."""
    failed = [r for r in rows if r["failure"] is not None]
    if failed:
        return int(max(failed, key=lambda r: r["depth"])["number"])
    return changes[0] if changes else 0


def own_changes(rows: Sequence[Row]) -> list[int]:
    """Numbers of the passes that changed something by themselves, and not by one inside."""
    found: list[int] = []
    inside: list[bool] = [False]  # by depth: whether one there or deeper did
    for row in reversed(rows):
        depth = row["depth"]
        deeper = any(inside[depth + 1 :])
        del inside[depth + 1 :]
        inside += [False] * (depth + 1 - len(inside))
        if row["touched"]:
            inside[depth] = True
            if not deeper:
                found.append(row["number"])
        inside[depth] |= deeper
    return found[::-1]


def facts(rows: Sequence[Row], at: int, around: Sequence[tuple[str, ...]] = ()) -> str:
    """Of a run its place, level and times, and what it ran inside of; `around` is of `insides`."""
    row = rows[at]
    times = [
        f"{milliseconds(row[name])} {said}"
        for name, said in (("seconds", "in all"), ("own_seconds", "of its own"))
        if row[name] is not None
    ]
    inside = (around or insides(rows))[at]
    parts = [f"pass {number(at)} of {number(len(rows))}", f"level {row['opt_level']}", *times]
    return ", ".join(parts + ([f"in {' › '.join(inside)}"] if inside else []))


def insides(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """For each pass the names of those that it ran inside of, the outermost first."""
    found: list[tuple[str, ...]] = []
    around: list[tuple[int, tuple[str, ...]]] = []  # depth, and names up to that pass
    for row in rows:
        while around and around[-1][0] >= row["depth"]:
            around.pop()
        names = around[-1][1] if around else ()
        found.append(names)
        around.append((row["depth"], (*names, row["pass"])))
    return found


def became(function: str, old: str | None, new: str | None, row: Row, ended: bool) -> str:
    """What became of a function in a run, by hashes of what it held before and after (None: it was
    not there), and how many others it changed. `ended`: whether it is known what the run made."""
    if not ended:
        return f"{function}, as the pass was given it"
    if old == new:
        said = "as it was"
    else:
        said = "made by the pass" if old is None else "removed" if new is None else "changed"
    others = [n for n in row["touched"] or () if n != function]
    more = f". The pass changed {functions_text(others)}{', too' * (old != new)}" if others else ""
    return f"{function}: {said}{more}"


def gaps(document: Row) -> list[str]:
    """What a `recording_document` lacks, and where its compile stopped, a sentence each."""
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
    """What `open FILE.rsc` prints besides the passes; `rows` are of `pass_rows`."""
    return {
        **fields(recording, "about whole stopped"),
        "end": end_words(rows),
        "seconds": whole_seconds(recording),
        "totals": total_rows(rows),
    }


def runs_table(rows: Sequence[Row]) -> Section:
    """Rows of `pass_rows` for people, each below the pass that it ran in."""
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
    """What a recording is of, for the head of a page; `document` as of `recording_document`."""
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
UNDER_WAY = "The recording ends while this pass runs: the process ended in it."


def passes_filter(row: Row, only: str | None) -> bool:
    """Whether a filter of `FILTERS` lets a row of `pass_rows` through; None lets all."""
    lets = {"changed": row["touched"], "slow": row["slow"], "failed": _bad(row), None: True}
    return bool(lets[only])


def total_rows(rows: Sequence[Row]) -> list[Row]:
    """One row a pass by its name, the one that took longest first: how often, how much, where."""
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
    """Why a pass left no module, a sentence."""
    if run.failure is not None:
        raised = (run.failure.strip().splitlines() or ["an error without a message"])[-1]
        return f"It raised {raised[:200].rstrip('.')}."
    if run.seconds is None:
        return "It had not ended when the recording did."
    return "It returns code, not a module." if run.kind != "pass" else "It is not in the file."


def step_diff(recording: Recording, number: int) -> str:
    """What a pass changed, by function, as of `text_diff`; EngineError where that is not known."""
    if not 0 <= number < len(recording.passes):
        message = f"There is no pass {number}: the recording has {len(recording.passes)}."
        raise EngineError("usage", message, str(number), "Passes are counted from 0.")
    run = recording.passes[number]
    if run.touched is None:
        message = f"What pass {number}, {run.name}, changed is not known. "
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
