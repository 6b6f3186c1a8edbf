"""Print how long compiled code takes against PyTorch eager, and torch.compile, beside its bars.

Run `python bench/speed.py` from the project's root on a machine that does nothing else; name
samples to have only those, add `--engine` for one engine, `--threads N` (repeat; one and all
otherwise), `--rival` to time torch.compile too, and in inference ONNX Runtime in its place. Each
ratio is the median over interleaved rounds, end to end with every copy counted, with the same
number of threads on both sides; the largest error against PyTorch stands beside it, and how long
building took. Returns 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import common
from common import ENGINES, Row

from relascope.engine.client import EngineClient
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import BASELINES, TimeResult

WHOLE = "forward_backward"


@dataclass(frozen=True)
class Case:
    """How long a source may take; the default cut in training.

    Args:
        most: of the time of PyTorch eager, in Relax and in Relay.
        build: seconds that building may take.
    """

    most: tuple[float, float]
    build: float | None = None


CASES = {
    ModelSource("bert_layer", 1, 14): Case((0.95, 0.6)),
    ModelSource("bert_layer", 8, 128): Case((0.95, 1.0)),
    ModelSource("bert_layer", 1, 14, training=True): Case((0.9, 1.0)),
    ModelSource("bert_layer", 8, 128, training=True): Case((0.9, 1.0)),
    ModelSource("bert", 1, 14): Case((0.95, 0.95), 15.0),
    **dict.fromkeys(
        map(ModelSource, ("resnet", "vit", "gpt2_block", "super_resolution")), Case((1.05, 1.05))
    ),
}
MOST_OF_RIVAL = {"torch.compile": (1.0, 1.0), "onnxruntime": (1.0, 1.1)}
"""In Relax, of `bert_layer` at (1, 14) and at (8, 128): of the time of torch.compile, forward and
backward; of ONNX Runtime's, forward."""


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = common.options(__doc__)
    parser.add_argument("--threads", type=int, action="append", metavar="N")
    parser.add_argument("--rival", action="store_true")
    args = parser.parse_args()
    rows: list[Row] = []
    # A process has the threads of its first call: TVM's pool does not grow.
    for threads in args.threads or sorted({1, os.cpu_count() or 1}):
        rows += common.measured(args, CASES, functools.partial(_rows, args, threads))
    document = {"machine": common.machine(), "rows": rows}
    print(json.dumps(document["machine"]))
    common.table(rows)
    common.write(args.output, document)
    missed = sum(bool(row["missed"]) for row in rows)
    print(f"{missed} bars are missed." if missed else "Every bar is met.")
    return 1 if missed else 0


def _rows(
    args: argparse.Namespace, threads: int, client: EngineClient, ir: str, source: ModelSource
) -> Iterator[Row]:
    case = CASES[source]
    asked = common.request(client, ir, source, threads, args.repeats)
    of = BASELINES[0] if source.training else BASELINES[2]
    baselines = (of,) if args.rival and ir == "relax" else ()
    result: TimeResult = client.call("time", asked, baselines)
    for note in result.notes:
        print(f"{ir}, {source.model}: {note}", file=sys.stderr)
    for row in result.rows:
        rival, ours = row.ours_over is not None, row.ratio_to_eager is not None
        barred = row.phase == (WHOLE if source.training else "forward")
        most = case.most[ENGINES.index(ir)]
        if rival:
            most = MOST_OF_RIVAL[row.what][source.batch != 1]
            barred = barred and source.model == "bert_layer"
        ratio = row.ours_over if rival else row.ratio_to_eager
        late = ours and not rival and case.build and result.build_seconds > case.build
        slow = ratio is not None and barred and ratio > most
        yield {
            "engine": ir,
            "sample": source.model,
            "batch": source.batch,
            "tokens": source.tokens,
            "phase": row.phase,
            "threads": result.threads,
            "what": row.what,
            "median_ms": row.median_ms,
            "ratio": ratio,
            "most": most if barred and ratio is not None else None,
            "error": row.max_abs_error,
            "build_s": row.build_seconds,
            "target": asked.target,
            "missed": "missed" if late or slow else "",
        }


if __name__ == "__main__":
    raise SystemExit(main())
