"""A narrowed fault as a document and a table, and its report as an archive."""

from collections.abc import Iterable

from relascope.engine.jobs import reduce
from relascope.engine.jobs.bisect import Bisection
from relascope.engine.protocol.fault import Report
from relascope.engine.protocol.plain import plain
from relascope.viz.rows import Row, archive, fields
from relascope.viz.rows.sections import Section, table

_BISECTED = "model engine target inputs pipeline culprit suspects kind compiles"
_NOTHING: Row = {
    **dict.fromkeys(("dtype", "total", "nodes", "operators")),
    **{"minimal": False, "shown": None, "tries": []},
    **dict.fromkeys(("title", "before", "after", "report")),
}
_PIECES = (
    "nodes; results; outcome; relative to scale?: max_rel; times as long?: ratio; "
    "test's exit status?: test.status; error?: error.message"
)


def document(
    ir: str, bisection: Bisection, bisected: Row, result: reduce.Reduction | None, folder: str = ""
) -> Row:
    """The document of `reduce MODEL`: the bisection's culprit, the piece with it, and all tries."""
    document = {**{k: bisected[k] for k in _BISECTED.split()}, "bisection": bisected["verdict"]}
    if result is None:
        return {**document, **_NOTHING, "verdict": reduce.cannot(bisection)}
    report, piece = result.report, result.piece
    return {
        **document,
        **_NOTHING,
        **({} if piece is None else {"nodes": len(piece.nodes), "operators": [*result.operators]}),
        **({} if report is None else fields(report, "title before after")),
        "dtype": result.source.dtype,
        "total": result.total,
        "minimal": result.minimal,
        "shown": plain(result.shown),
        "tries": [piece_row(t) for t in result.log],
        "report": report and {"folder": folder, "files": sorted(report.files)},
        "verdict": reduce.verdict(ir, result),
    }


def piece_row(tried: reduce.PieceTry) -> Row:
    shown = plain(tried.shown)
    shown.pop("outputs")  # ids, which need the graph
    return {"nodes": tried.nodes, "results": tried.outputs, **shown}


def pieces_table(tried: Iterable[Row]) -> Section:
    return table("", tried, _PIECES)


def zipped(report: Report, folder: str) -> bytes:
    """A report as a zip archive of one folder."""
    return archive({f"{folder}/{name}": content for name, content in report.files.items()})
