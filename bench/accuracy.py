"""Print how far each sample is from PyTorch in each engine: outputs and gradients, by dtype.

Run `python bench/accuracy.py` from the project's root; name samples to have only those, add
`--engine` for one engine, `--gradient pytorch` for PyTorch's joint graph, `-o FILE` for the figures
as JSON. Inference runs the default inference pipeline; training the default way to the gradient,
split at the default strategy's captures, with dropout on. Errors are relative to the scale of each
tensor, as `engine.protocol.accuracy.Comparison` defines it. Returns 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from relascope.core.errors import EngineError
from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import with_cut
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import GRADIENTS, default_pipeline
from relascope.samples import SAMPLES
from relascope.viz.rows.formats import text_table

LIMITS = {
    ("float32", "forward"): 1e-5,
    ("float32", "gradient"): 1e-4,
    ("float64", "forward"): 1e-10,
    ("float64", "gradient"): 1e-10,
}
Row = dict[str, Any]


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", nargs="*", choices=[[], *SAMPLES], metavar="SAMPLE")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--gradient", choices=list(GRADIENTS), default="tvm")
    parser.add_argument("-o", dest="output", type=Path)
    args = parser.parse_args()
    rows: list[Row] = []
    for ir in args.engine or ENGINES:
        with EngineClient(ir) as client:
            target = client.call("describe").targets[0].name
            for name in args.samples or SAMPLES:
                for dtype in ("float32", "float64"):
                    source = ModelSource(name, dtype=dtype, gradient=args.gradient)
                    rows.append(_row(client, ir, source, target))
                    print(text_table(rows[-1:], list(rows[-1])).splitlines()[-1], file=sys.stderr)
    print(text_table(rows, list(rows[0])))
    if args.output:
        args.output.write_text(json.dumps(rows), encoding="utf-8")
    missed = [m for row in rows for m in _missed(row)]
    print("\n".join(missed) or "Every bar is met.")
    return 1 if missed else 0


def _row(client: EngineClient, ir: str, source: ModelSource, target: str) -> Row:
    row: Row = {
        "engine": ir,
        "sample": source.model,
        "dtype": source.dtype,
        "forward": None,
        "training_forward": None,
        "gradient": None,
        "worst": "",
        "failure": "",
    }
    try:
        found = client.call("check", BuildRequest(source, default_pipeline(ir, False), target))
        row["forward"] = _largest(found, "output").max_rel
        if SAMPLES[source.model].training:
            train = replace(source, training=True)
            pipeline = default_pipeline(ir, True, source.gradient)
            request = with_cut(client.call, BuildRequest(train, pipeline, target))
            found = client.call("check", request)
            row["training_forward"] = _largest(found, "output").max_rel
            worst = _largest(found, "gradient")
            row["gradient"], row["worst"] = worst.max_rel, worst.name
    except EngineError as error:
        row["failure"] = f"{error.message} ({error.where})"
    return row


def _largest(found: tuple[Comparison, ...], kind: str) -> Comparison:
    return max((c for c in found if c.name.startswith(kind)), key=lambda c: c.max_rel)


def _missed(row: Row) -> list[str]:
    """What a row promises and does not keep, in words."""
    where = f"{row['engine']}, {row['sample']}, {row['dtype']}"
    if row["failure"]:
        return [f"{where}: {row['failure']}"]
    return [
        f"{where}: {phase} {row[phase]:.2g} of the scale, {limit} promised"
        for (dtype, phase), limit in LIMITS.items()
        if dtype == row["dtype"] and row[phase] is not None and not row[phase] <= limit
    ]


if __name__ == "__main__":
    raise SystemExit(main())
