"""Print how long compiled code takes against PyTorch eager, and torch.compile, beside its bars.

Run `python bench/speed.py` from the project's root on a machine that does nothing else; name
samples to have only those, add `--engine` for one engine, `--threads N` (repeat; one and all
otherwise), `--rival` to time torch.compile too. Each ratio is the median over interleaved rounds,
end to end with every copy counted, with the same number of threads on both sides; the largest
error against PyTorch stands beside it, and how long building took. Returns 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
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
    """What is timed, and how long it may take.

    Args:
        most: of the time of PyTorch eager, in Relax and in Relay; the default cut in training.
        batch, tokens: of the sample; None is its own default.
        build: seconds that building may take.
    """

    sample: str
    training: bool
    most: tuple[float, float]
    batch: int | None = None
    tokens: int | None = None
    build: float | None = None

    @property
    def source(self) -> ModelSource:
        """The sample so."""
        return ModelSource(self.sample, self.batch, self.tokens, training=self.training)


CASES = (
    Case("bert_layer", False, (0.95, 0.6), 1, 14),
    Case("bert_layer", False, (0.95, 1.0), 8, 128),
    Case("bert_layer", True, (0.9, 1.0), 1, 14),
    Case("bert_layer", True, (0.9, 1.0), 8, 128),
    Case("bert", False, (0.95, 0.95), 1, 14, 15.0),
    *(Case(n, False, (1.05, 1.05)) for n in ("resnet", "vit", "gpt2_block", "super_resolution")),
)
MOST_OF_RIVAL = 1.0
"""Of the time of torch.compile, forward and backward in Relax."""


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = common.options(__doc__)
    parser.add_argument("--threads", type=int, action="append", metavar="N")
    parser.add_argument("--rival", action="store_true")
    args = parser.parse_args()
    rows: list[Row] = []
    for ir in args.engine or ENGINES:
        for threads in args.threads or sorted({1, os.cpu_count() or 1}):
            # A process has the threads of its first call: TVM's pool does not grow.
            with EngineClient(ir) as client:
                for case in CASES:
                    if not args.samples or case.sample in args.samples:
                        asked = (client, ir, case, threads, args)
                        rows += common.tried(lambda a=asked: _rows(*a), engine=ir, s=case.sample)
    document = {"machine": common.machine(), "rows": rows}
    print(json.dumps(document["machine"]))
    common.table(rows, [c for c in rows[0] if c != "target"])
    common.write(args.output, document)
    missed = sum(bool(row["missed"]) for row in rows)
    print(f"{missed} bars are missed." if missed else "Every bar is met.")
    return 1 if missed else 0


def _rows(
    client: EngineClient, ir: str, case: Case, threads: int, args: argparse.Namespace
) -> Iterator[Row]:
    asked = common.request(client, ir, case.source, threads, args.repeats)
    baselines = BASELINES[:1] if args.rival and ir == "relax" else ()
    result: TimeResult = client.call("time", asked, baselines)
    for note in result.notes:
        print(f"{ir}, {case.sample}: {note}", file=sys.stderr)
    for row in result.rows:
        rival, ours = row.ours_over is not None, row.ratio_to_eager is not None
        barred = row.phase == (WHOLE if rival or case.training else "forward")
        most = MOST_OF_RIVAL if rival else case.most[ENGINES.index(ir)]
        ratio = row.ours_over if rival else row.ratio_to_eager
        late = ours and not rival and case.build and result.build_seconds > case.build
        slow = ratio is not None and barred and ratio > most
        yield {
            "engine": ir,
            "sample": case.sample,
            "batch": case.batch,
            "tokens": case.tokens,
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
