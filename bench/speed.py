"""Print how long compiled code takes beside PyTorch eager and others, with its bars.

For a machine that does nothing else. Each ratio is the median over interleaved rounds, end to end
with every copy, with the same number of threads on both sides, beside the largest error against
PyTorch and the time of building. `--all --larger --rival -o FILE` takes more than an hour;
`--resume` continues where FILE ends, `--page` puts the figures into docs/speed.md. Returns 1 if a
bar is missed."""

import argparse
import functools
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import common
import speed_page
from common import ENGINES, Row

from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import with_cut
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.protocol.times import BASELINES, TimeResult, TimeRow, Variant
from relascope.passes.catalogue import default_pipeline
from relascope.samples import SAMPLES
from relascope.viz.rows import fields

WHOLE = "forward_backward"


@dataclass(frozen=True)
class Case:
    """The most time that a source, with the default cut in training, may take: as a share of
    PyTorch eager's, in Relax and in Relay, and in seconds of building."""

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
OTHER = Case((1.05, 1.05), 30.0)
"""Of every other sample, with `--all`."""
MOST_OF_RIVAL = {"torch.compile": (1.0, 1.0), "onnxruntime": (1.0, 1.1)}
"""In Relax, of `bert_layer` at (1, 14) and at (8, 128): of the time of torch.compile, forward and
backward; of ONNX Runtime's, forward."""

_TOKENS = ("bert_self_attention", "bert_layer", "gpt2_block", "llama_block")
LARGER = [
    *(("mlp", 256, None), ("bert", 1, 128), ("super_resolution", 4, None)),
    *((name, 8, 128) for name in _TOKENS),
    *((name, 16, None) for name in ("vit", "resnet", "mobilenet_v2")),
]
"""A second size of samples: batch and tokens."""

ON_GPU = {
    ModelSource("bert_layer", 1, 14): 0.5,
    ModelSource("bert_layer", 1, 14, training=True): 0.8,
}
"""There, of the time of PyTorch eager; at (8, 128) also at most torch.compile's, in Relax."""


def main() -> int:
    """Measure and print; 0 if every bar is met."""
    parser = common.options(__doc__)
    parser.add_argument("--all", action="store_true", help="every sample, at its own size")
    parser.add_argument("--larger", action="store_true", help="with --all: at a second size, too")
    parser.add_argument("--training", action="store_true", help="that alone")
    parser.add_argument("--inference", action="store_true", help="that alone")
    about = "words of its name, such as cuda or -graphs=cuda; the first target that runs here"
    parser.add_argument("--target", action="append", metavar="TEXT", help=about)
    parser.add_argument("--threads", type=int, action="append", metavar="N")
    parser.add_argument("--rival", action="store_true", help="torch.compile and ONNX Runtime, too")
    parser.add_argument("--resume", action="store_true", help="what FILE lacks alone")
    parser.add_argument("--page", action="store_true", help="write FILE's figures to docs/speed.md")
    parser.add_argument("--tokens", type=int, metavar="N", help="sources of so many tokens alone")
    args = parser.parse_args()
    args.target = args.target or [""]
    if (args.resume or args.page) and args.output is None:
        parser.error("Name the file of figures: -o FILE")
    resumed = (args.resume or args.page) and args.output.exists()
    rows: list[Row] = json.loads(args.output.read_text(encoding="utf-8")) if resumed else []
    if args.page:
        speed_page.write(rows)
        return 0
    modes = (False, True) if args.training == args.inference else (args.training,)
    sizes = [(name, None, None) for name in SAMPLES] + LARGER * args.larger
    every = [
        ModelSource(name, batch, tokens, training=training)
        for name, batch, tokens in sizes
        for training in sorted({False, SAMPLES[name].training})
    ]
    asked = every if args.all else CASES
    cases = [s for s in asked if s.training in modes and args.tokens in (None, s.tokens)]
    # A process has the threads of its first call: TVM's pool does not grow.
    for threads in args.threads or sorted({1, os.cpu_count() or 1}):
        found = functools.partial(_lacking, args, threads, rows)
        rows += [r for r in common.measured(args, cases, found) if r not in rows]
    return common.finish(args, rows)


def _lacking(
    args: argparse.Namespace,
    threads: int,
    rows: list[Row],
    client: EngineClient,
    ir: str,
    source: ModelSource,
) -> Iterator[Row]:
    """Rows that are missing for a source, each written at once."""
    names = {"engine": ir, "sample": source.model, "batch": source.batch, "tokens": source.tokens}
    names |= {"training": source.training, "threads": threads, **common.machine()}
    if not any(names.items() <= row.items() for row in rows):
        for row in _rows(args, threads, client, ir, source):
            rows.append(names | row)
            yield rows[-1]
        common.write(args.output, rows)


def _rows(
    args: argparse.Namespace, threads: int, client: EngineClient, ir: str, source: ModelSource
) -> Iterator[Row]:
    pipeline = default_pipeline(ir, source.training, source.gradient)
    target = common.target(client, args.target[0])
    asked = with_cut(client.call, BuildRequest(source, pipeline, target, threads, args.repeats))
    gpu = asked.target.startswith("cuda")
    of = BASELINES[:2] if gpu else BASELINES[:1] if source.training else BASELINES[::2]
    baselines = of if args.rival and ir == "relax" and not (gpu and source.training) else ()
    variants = tuple(
        Variant(name, replace(asked, target=name))
        for name in (common.target(client, words) for words in args.target[1:])
        if name != asked.target
    )
    result: TimeResult = client.call("time", asked, baselines, variants)
    for note in result.notes:
        print(f"{ir}, {source.model}: {note}", file=sys.stderr)
    eager = {r.phase: r.peak_bytes for r in result.rows if r.what == result.rows[0].what}
    for row in result.rows:
        held = eager[row.phase]
        rival, default = row.ours_over is not None, row.what.endswith(asked.target)
        most = _most(ir, source, row, gpu) if rival or default else None
        ratio = row.ours_over if rival else row.ratio_to_eager
        build = None if gpu or rival else CASES.get(source, OTHER).build
        slow = most and ratio and not ratio <= most
        missed = [f"{ratio:.3f}, at most {most}"] if slow else []
        if ratio and build and result.build_seconds > build:
            missed.append(f"built in {result.build_seconds:.0f} s")
        yield {
            **fields(row, "phase what median_ms"),
            "ratio": ratio,
            "of_eager": row.ratio_to_eager,
            "most": most if ratio is not None else None,
            "error": row.max_abs_error,
            "peak_bytes": row.peak_bytes,
            "of_eagers": row.peak_bytes / held if row.peak_bytes and held else None,
            "capture_bytes": row.capture_bytes,
            "build_s": row.build_seconds,
            "target": asked.target,
            "missed": "; ".join(missed),
        }


def _most(ir: str, source: ModelSource, row: TimeRow, gpu: bool) -> float | None:
    """The largest share of eager's time, or of a baseline's, that a row may take; None if any."""
    if row.phase != (WHOLE if source.training else "forward"):
        return None
    if row.ours_over is None:
        return ON_GPU.get(source) if gpu else CASES.get(source, OTHER).most[ENGINES.index(ir)]
    if source.model != "bert_layer" or (gpu and (source.batch == 1 or row.what != BASELINES[0])):
        return None
    return 1.0 if gpu else MOST_OF_RIVAL[row.what][source.batch != 1]


if __name__ == "__main__":
    raise SystemExit(main())
