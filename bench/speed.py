"""Print how long compiled code takes against PyTorch eager, and torch.compile, beside its bars.

Run `python bench/speed.py` from the project's root on a machine that does nothing else; name
samples to have only those, add `--engine` for one engine, `--threads N` (repeat; one and all
otherwise), `--repeats N`, `--rival` to time torch.compile too, `-o FILE` for the figures as JSON.
Each ratio is the median over interleaved rounds, end to end with every copy counted, with the same
number of threads on both sides; the largest error against PyTorch stands beside it, and how long
building took. Returns 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import with_cut
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import BASELINES, TimeResult
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import default_pipeline
from relascope.samples import SAMPLES
from relascope.viz.rows.formats import text_table

WHOLE = "forward_backward"
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What is timed, and how long it may take.

    Args:
        batch, tokens: of the sample; None is its own default.
        most: of the time of PyTorch eager, by engine and phase; the default cut in training.
        build: seconds that building may take.
    """

    sample: str
    training: bool
    most: dict[tuple[str, str], float]
    batch: int | None = None
    tokens: int | None = None
    build: float | None = None


CASES = (
    Case("bert_layer", False, {("relax", "forward"): 0.95, ("relay", "forward"): 0.6}, 1, 14),
    Case("bert_layer", False, {("relax", "forward"): 0.95, ("relay", "forward"): 1.0}, 8, 128),
    Case("bert_layer", True, {("relax", WHOLE): 0.9, ("relay", WHOLE): 1.0}, 1, 14),
    Case("bert_layer", True, {("relax", WHOLE): 0.9, ("relay", WHOLE): 1.0}, 8, 128),
    Case("bert", False, {("relax", "forward"): 0.95, ("relay", "forward"): 0.95}, 1, 14, 15.0),
    *(
        Case(name, False, {(ir, "forward"): 1.05 for ir in ENGINES})
        for name in ("resnet", "vit", "gpt2_block", "super_resolution")
    ),
)
MOST_OF_RIVAL = 1.0
"""Of the time of torch.compile, forward and backward in Relax."""


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", nargs="*", choices=[[], *SAMPLES], metavar="SAMPLE")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--threads", type=int, action="append", metavar="N")
    parser.add_argument("--repeats", type=int, default=30, metavar="N")
    parser.add_argument("--rival", action="store_true")
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE")
    args = parser.parse_args()
    cases = [c for c in CASES if not args.samples or c.sample in args.samples]
    rows: list[Row] = []
    for ir in args.engine or ENGINES:
        for threads in args.threads or sorted({1, os.cpu_count() or 1}):
            # A process has the threads of its first call: TVM's pool does not grow.
            with EngineClient(ir) as client:
                for case in cases:
                    try:
                        rows += _rows(client, ir, case, threads, args)
                    except EngineError as error:
                        print(f"{ir}, {case.sample}: {error.message}", file=sys.stderr)
                        rows.append({"engine": ir, "sample": case.sample, "missed": "failed"})
    document = {"machine": _machine(), "rows": rows}
    print(json.dumps(document["machine"]))
    columns = [
        "engine",
        "sample",
        "batch",
        "tokens",
        "phase",
        "threads",
        "what",
        "median_ms",
        "ratio",
        "most",
        "error",
        "build_s",
        "missed",
    ]
    print(text_table(rows, columns))
    if args.output:
        args.output.write_text(json.dumps(document, indent=1), encoding="utf-8")
    missed = sum(bool(row["missed"]) for row in rows)
    print(f"{missed} bars are missed." if missed else "Every bar is met.")
    return 1 if missed else 0


def _rows(
    client: EngineClient, ir: str, case: Case, threads: int, args: argparse.Namespace
) -> list[Row]:
    source = ModelSource(case.sample, batch=case.batch, tokens=case.tokens, training=case.training)
    pipeline = default_pipeline(ir, case.training)
    target = client.call("describe").targets[0].name
    baselines = BASELINES[:1] if args.rival and ir == "relax" else ()
    request = with_cut(client.call, BuildRequest(source, pipeline, target, threads, args.repeats))
    result: TimeResult = client.call("time", request, baselines)
    for note in result.notes:
        print(f"{ir}, {case.sample}: {note}", file=sys.stderr)
    rows = []
    for row in result.rows:
        ratio = row.ratio_to_eager if row.ours_over is None else row.ours_over
        most = case.most.get((ir, row.phase))
        if row.ours_over is not None:
            most = MOST_OF_RIVAL if row.phase == WHOLE else None
        elif row.ratio_to_eager is None:
            most = None
        ours = row.ratio_to_eager is not None and row.ours_over is None
        late = ours and case.build is not None and result.build_seconds > case.build
        rows.append(
            {
                "engine": ir,
                "sample": case.sample,
                "batch": case.batch,
                "tokens": case.tokens,
                "phase": row.phase,
                "threads": result.threads,
                "what": row.what,
                "median_ms": row.median_ms,
                "ratio": ratio,
                "most": most,
                "error": row.max_abs_error,
                "build_s": result.build_seconds if ours else None,
                "machine": result.machine,
                "target": target,
                "missed": "missed" if late or (most is not None and ratio > most) else "",
            }
        )
    return rows


def _machine() -> Row:
    names = ("torch", "apache-tvm", "bitblas")
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        **{name: version(name) for name in names},
    }


if __name__ == "__main__":
    raise SystemExit(main())
