"""Print how far each sample is from PyTorch in each engine: outputs and gradients, by dtype.

Run `python bench/accuracy.py` from the project's root; name samples to have only those, add
`--engine` for one engine, `--gradient pytorch` for PyTorch's joint graph. Inference runs the
default inference pipeline; training the default way to the gradient, split at the default
strategy's captures, with dropout on. Errors are relative to the scale of each tensor, as
`engine.protocol.accuracy.Comparison` defines it. Returns 1 where a bar is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import common
from common import SAMPLES, Row

from relascope.engine.client import EngineClient
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import GRADIENTS

LIMITS = {
    ("float32", "forward"): 1e-5,
    ("float32", "gradient"): 1e-4,
    ("float64", "forward"): 1e-10,
    ("float64", "gradient"): 1e-10,
}


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = common.options(__doc__, repeats=0)
    parser.add_argument("--gradient", choices=list(GRADIENTS), default="tvm")
    args = parser.parse_args()
    sources = [
        ModelSource(name, dtype=dtype, gradient=args.gradient)
        for name in SAMPLES
        for dtype in ("float32", "float64")
    ]
    return common.finish(args, common.measured(args, sources, _rows), _missed)


def _rows(client: EngineClient, ir: str, source: ModelSource) -> Iterator[Row]:
    row: Row = {"engine": ir, "sample": source.model, "dtype": source.dtype}
    found = client.call("check", common.request(client, ir, source))
    row["forward"] = worst(found, "output").max_rel
    if SAMPLES[source.model].training:
        asked = common.request(client, ir, replace(source, training=True))
        found = client.call("check", asked)
        row["training_forward"] = worst(found, "output").max_rel
        gradient = worst(found, "gradient")
        row["gradient"], row["worst"] = gradient.max_rel, gradient.name
    yield row


def worst(found: tuple[Comparison, ...], kind: str) -> Comparison:
    """The worst comparison whose name begins with `kind`."""
    return max((c for c in found if c.name.startswith(kind)), key=lambda c: c.max_rel)


def _missed(row: Row) -> list[str]:
    return [
        f"{phase} {row[phase]:.2g} of the scale, {limit} promised"
        for (dtype, phase), limit in LIMITS.items()
        if dtype == row["dtype"] and phase in row and not row[phase] <= limit
    ]


if __name__ == "__main__":
    raise SystemExit(main())
