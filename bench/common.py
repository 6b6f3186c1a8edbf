"""What the scripts of this folder share: their options, how they ask an engine, how they print."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import with_cut
from relascope.engine.measure.timing import machine as processor
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import default_pipeline
from relascope.samples import SAMPLES
from relascope.viz.rows.formats import text_table

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests/support")]

ENGINES = ("relax", "relay")
Row = dict[str, Any]


def options(doc: str | None, samples: bool = True, repeats: int = 30) -> argparse.ArgumentParser:
    """A parser with the options that most scripts have.

    Args:
        repeats: rounds of each timing; 0 where nothing is timed in rounds.
    """
    parser = argparse.ArgumentParser(description=doc)
    if samples:
        parser.add_argument("samples", nargs="*", choices=[[], *SAMPLES], metavar="SAMPLE")
        parser.add_argument("--engine", choices=ENGINES, action="append", help="may be repeated")
    if repeats:
        parser.add_argument("--repeats", type=int, default=repeats, metavar="N")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", help="figures as JSON")
    return parser


def best_target(client: EngineClient) -> str:
    """The first target of an engine that runs here."""
    return next(str(t.name) for t in client.call("describe").targets if t.runs_here)


def request(
    client: EngineClient, ir: str, source: ModelSource, threads: int = 0, repeats: int = 1
) -> BuildRequest:
    """A source by its default pipeline for the best target; in training, at the default cut."""
    pipeline = default_pipeline(ir, source.training, source.gradient)
    asked = BuildRequest(source, pipeline, best_target(client), threads, repeats)
    return with_cut(client.call, asked)


def tried(make: Callable[[], Iterable[Row]], **about: Any) -> Iterator[Row]:
    """Rows, or one that says `failed` and why."""
    try:
        yield from make()
    except EngineError as error:
        print(f"{', '.join(map(str, about.values()))}: {error.message}", file=sys.stderr)
        yield {**about, "missed": f"failed: {error.message}"}


def machine(**more: Any) -> Row:
    """What is measured on."""
    found = {"processor": processor(), "cores": os.cpu_count(), **more}
    names = ("torch", "apache-tvm", "bitblas")
    return {**found, "python": platform.python_version(), **{n: version(n) for n in names}}


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Print rows, with all columns that any of them has unless some are named."""
    print(text_table(rows, columns or list(dict.fromkeys(c for row in rows for c in row))))
    sys.stdout.flush()


def write(path: Path | None, document: Any) -> None:
    """Write a document as JSON where that is wished."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def verdict(missed: Sequence[str]) -> int:
    """Print what is missed, in words; 1 where something is."""
    print("\n".join(missed) or "Every bar is met.")
    return 1 if missed else 0
