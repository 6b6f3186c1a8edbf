"""What the scripts of this folder share: options, how they query an engine, how they print."""

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.building.cpu import machine as processor
from relascope.engine.client import EngineClient
from relascope.engine.protocol.source import ModelSource
from relascope.samples import SAMPLES
from relascope.viz.rows.sections import text_table

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests/support")]

_OWN = tempfile.TemporaryDirectory(prefix="relascope-bench-")
os.environ.update(XDG_DATA_HOME=_OWN.name, XDG_CONFIG_HOME=_OWN.name)  # not the user's sessions
os.environ["RELASCOPE_BUILDS"] = f"{_OWN.name}/builds"  # in which there are none yet

ENGINES = ("relax", "relay")
Row = dict[str, Any]


def options(doc: str | None, samples: bool = True, repeats: int = 30) -> argparse.ArgumentParser:
    """A parser with the options that most scripts have; `repeats` are the rounds of each timing."""
    parser = argparse.ArgumentParser(description=doc)
    if samples:
        parser.add_argument("samples", nargs="*", choices=[[], *SAMPLES], metavar="SAMPLE")
        parser.add_argument("--engine", choices=ENGINES, action="append", help="may be repeated")
    if repeats:
        parser.add_argument("--repeats", type=int, default=repeats, metavar="N")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", help="figures as JSON")
    return parser


def target(client: EngineClient, words: str = "") -> str:
    """The first target of an engine that runs here and has all `words` in its name, such as "cuda
    -graphs=cuda"; a word after a "!" must not occur. Raises EngineError, kind "target", if none."""

    def fits(name: str) -> bool:
        return all(
            word[1:] not in name if word.startswith("!") else word in name.split()
            for word in words.split()
        )

    of = [t for t in client.call("describe").targets if fits(t.name)]
    for found in of:
        if found.runs_here and " -gpu=" not in found.name:
            return str(found.name)
    why = next((t.missing for t in of), f"It has no target {words} here.")
    raise EngineError("target", why, client.ir)


def measured(
    args: argparse.Namespace,
    sources: Iterable[ModelSource],
    rows: Callable[[EngineClient, str, ModelSource], Iterable[Row]],
) -> list[Row]:
    """Rows of each requested engine and source. If one fails, its row says why, in `missed`."""
    found: list[Row] = []
    chosen = [s for s in sources if not args.samples or s.model in args.samples]
    for ir in args.engine or ENGINES:
        with EngineClient(ir) as client:
            for source in chosen:
                try:
                    for row in rows(client, ir, source):
                        found.append(row)
                        words = (f"{k} {v}" for k, v in row.items() if v is not None)
                        print(*words, sep=", ", file=sys.stderr, flush=True)
                except EngineError as error:
                    said = f"failed: {error.message} ({error.where}) {error.hint}".strip()
                    print(f"{ir}, {source.model} {said}", file=sys.stderr)
                    found.append({"engine": ir, "sample": source.model, "missed": said})
    return found


def machine() -> Row:
    """The processor, the versions, and OpenBLAS's kernels if the environment names some."""
    found = {"processor": processor(), "cores": os.cpu_count()}
    if core := os.environ.get("OPENBLAS_CORETYPE"):
        found["openblas"] = core
    found["python"] = platform.python_version()
    for name in ("torch", "apache-tvm", "bitblas"):
        with contextlib.suppress(PackageNotFoundError):  # a bench of one engine needs one TVM
            found[name] = version(name)
    return found


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Print rows, with the columns of the first or those named."""
    print(text_table([{c: row.get(c) for c in columns or row} for row in rows]))
    sys.stdout.flush()


def write(path: Path | None, document: Any) -> None:
    """Write a document as JSON, if there is a path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def finish(
    args: argparse.Namespace,
    rows: Sequence[Row],
    missed: Callable[[Row], list[str]] = lambda row: [],
) -> int:
    """Print the rows, write them if requested, and print the bars that they miss, which `missed`
    gives of a row that did not fail. Returns 1 if any is missed, or nothing was measured."""
    table(rows)
    write(args.output, rows)
    said = [] if rows else ["Nothing was measured: no case fits these options."]
    for row in rows:
        names = ("engine", "sample", "batch", "tokens", "dtype", "strategy")
        where = ", ".join(f"{n} {row[n]}" for n in names if row.get(n) is not None)
        own = [row["missed"]] if "missed" in row else missed(row)
        said += [f"{where}: {m}" for m in own if m]
    print("\n".join(said) or "Every bar is met.")
    return 1 if said else 0
