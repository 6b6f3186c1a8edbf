"""A fault that was narrowed: as a document, as text, and its report as files."""

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

from relascope.core.errors import EngineError
from relascope.engine.jobs import reduce
from relascope.engine.jobs.bisect import Bisection
from relascope.engine.jobs.reduce import PieceTry, Reduction
from relascope.engine.protocol.fault import Report
from relascope.engine.protocol.plain import plain
from relascope.viz.rows import Row, tables
from relascope.viz.rows.sections import Section, table

_BISECTED = "model engine target inputs pipeline culprit suspects kind compiles"
_PIECES = (
    "nodes; results; outcome; relative to scale?: max_rel; times as long?: ratio; "
    "test's exit status?: test.status; error?: error.message"
)
_TIME = (1980, 1, 1, 0, 0, 0)  # of files in an archive: equal reports are equal bytes


def document(ir: str, found: Bisection, made: Reduction | None, folder: str = "") -> Row:
    """What `reduce MODEL` prints: the culprit, the piece that shows it, and every piece tried.

    Args:
        made: None where there was nothing to narrow.
        folder: that the report was written to.
    """
    bisected = tables.bisect_document(ir, found)
    report = made.report if made else None
    piece = made.piece if made else None
    return {
        **{k: bisected[k] for k in _BISECTED.split()},
        "bisection": bisected["verdict"],
        "dtype": made and made.source.dtype,
        "total": made and made.total,
        "nodes": piece and len(piece.nodes),
        "operators": made and piece and list(made.operators),
        "minimal": made is not None and made.minimal,
        "shown": plain(made and made.shown),
        "tries": [] if made is None else [piece_row(t) for t in made.log],
        **{name: report and getattr(report, name) for name in ("title", "before", "after")},
        "report": None if report is None else {"folder": folder, "files": sorted(report.files)},
        "verdict": reduce.cannot(found) if made is None else reduce.verdict(ir, made),
    }


def piece_row(one: PieceTry) -> Row:
    """One piece that was tried."""
    shown = plain(one.shown)
    shown.pop("outputs")  # ids that say nothing without the graph
    return {"nodes": one.nodes, "results": one.outputs, **shown}


def pieces_table(tried: Iterable[Row]) -> Section:
    """The pieces that were tried, as `piece_row` has them."""
    return table("", tried, _PIECES)


def check_folder(folder: Path) -> None:
    """See that a report can be written to a folder, before it is made.

    Raises:
        EngineError: kind "usage"; there is something already, or a file has this name.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = "A report needs a folder of its own, and there is something here."
        raise EngineError("usage", message, str(folder), "Give another --out.")


def write(report: Report, folder: Path) -> None:
    """Write a report's files.

    Raises:
        EngineError: kind "file"; they cannot be written.
    """
    try:
        for name, content in report.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if content.startswith(b"#!"):  # a person's own test
                path.chmod(0o755)
    except OSError as wrong:
        raise EngineError(
            "file", f"Cannot write: {wrong.strerror or wrong}.", str(folder), "Give another --out."
        ) from wrong


def zipped(report: Report, folder: str) -> bytes:
    """A report as a zip archive of one folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in report.files.items():
            archive.writestr(zipfile.ZipInfo(f"{folder}/{name}", _TIME), content)
    return buffer.getvalue()
