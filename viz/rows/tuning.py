"""Rows of tuning tasks and results, for the page and the command line."""

from collections.abc import Sequence
from dataclasses import replace

from relascope.core.graph import Graph
from relascope.engine.protocol.records import Book
from relascope.engine.protocol.tuning import TuneTask
from relascope.viz.rows import Row, fields
from relascope.viz.rows.formats import duration
from relascope.viz.rows.sections import Section, figures, sentence, table

_TASKS = (
    "kernel: name; shapes; calls; FLOPs: flops; share; without: before_ms; best: best_ms; gain; "
    "trials; built with: built; computes?: operators; key"
)
_TUNED = (
    "kernel: name; trials; failed; without: before_ms; earlier: earlier_ms; best: best_ms; "
    "built with: built; key"
)
_BUILT = {True: "its record", False: "no record"}


def task_rows(tasks: Sequence[TuneTask], graph: Graph | None = None) -> list[Row]:
    """One row for each task, as `tasks` prints them, with operators of the graph if it is known."""
    by_id = {} if graph is None else graph.by_id
    return [
        {
            **fields(t, "key name calls flops share before_ms best_ms trials uses_record nodes"),
            "shapes": [list(a.shape) for a in t.arguments],
            "dtypes": [a.dtype for a in t.arguments],
            "operators": [by_id[n].title for n in t.nodes if n in by_id],
        }
        for t in tasks
    ]


def tasks_table(tasks: Sequence[Row]) -> Section:
    rows = []
    for t in tasks:
        text, before, best = shapes_text(t["shapes"], t["dtypes"]), t["before_ms"], t["best_ms"]
        faster = before / best if before and best else None
        rows.append({**t, "shapes": text, "gain": faster, "built": _BUILT[t["uses_record"]]})
    return table("", rows, _TASKS)


def tuned_sections(document: Row) -> list[Section]:
    """The sections of `tune MODEL`, and of a run on the page."""
    tasks = document["tasks"]
    fastest = f"{sum(t['uses_record'] for t in tasks)} of {len(tasks)}"
    return [
        figures(
            (str(sum(t["trials"] for t in tasks)), "trials"),
            (duration(document["seconds"]), ""),
            (str(document["threads"]), "threads"),
            (fastest, "kernels have a record that is the fastest"),
        ),
        *(sentence(note, True) for note in dict.fromkeys(document["notes"])),
        table("", [{**t, "built": _BUILT[t["uses_record"]]} for t in tasks], _TUNED),
    ]


def refreshed(tasks: Sequence[TuneTask], book: Book) -> tuple[TuneTask, ...]:
    """Tasks that an engine listed from fewer records, updated from the records now."""
    return tuple(
        replace(
            t,
            before_ms=book.before_ms(t.key) or t.before_ms,
            best_ms=book.with_record_ms(t.key),
            trials=len(book.of(t.key)),
            uses_record=book.takes(t.key),
        )
        for t in tasks
    )


def labels(tasks: Sequence[TuneTask]) -> dict[str, str]:
    """A unique name for each task, with the shapes of its inputs."""
    return {
        t.key: f"{t.name} " + ", ".join("x".join(map(str, a.shape)) for a in t.arguments[:-1])
        for t in tasks
    }


def shapes_text(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> str:
    """A kernel's arguments in one line; the dtype only once if it is the same."""
    plain_shapes = ["x".join(map(str, s)) or "1" for s in shapes]
    if len(set(dtypes)) == 1:
        return f"{', '.join(plain_shapes)}: {dtypes[0]}"
    return ", ".join(f"{s}:{d}" for s, d in zip(plain_shapes, dtypes, strict=True))
