"""Print how far each sample is from PyTorch in each engine: outputs and gradients, by dtype.

Inference runs the default inference pipeline; training the default way to the gradient, split at
the default strategy's captures, with dropout on. Errors are relative to the scale of each tensor,
as of `engine.protocol.accuracy.Comparison`. Returns 1 where a bar is missed.
"""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import common
from common import SAMPLES, Row

from relascope.engine.client import EngineClient
from relascope.engine.jobs.accuracy import LIMITS
from relascope.engine.protocol.accuracy import Comparison
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import GRADIENTS

ON_GPU = 1e-4  # in float32, of outputs too: sums there are taken in another order


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = common.options(__doc__, repeats=0, modes=True)
    parser.add_argument("--gradient", choices=list(GRADIENTS), default="tvm")
    parser.add_argument("--dtype", choices=("float32", "float64"), action="append")
    args = parser.parse_args()
    sources = [
        ModelSource(name, training=training, dtype=dtype, gradient=args.gradient)
        for name in SAMPLES
        for dtype in args.dtype or ("float32", "float64")
        for training in common.modes(args)
        if SAMPLES[name].training or not training
    ]
    return common.finish(args, common.measured(args, sources, partial(_rows, args)))


def _rows(args: Namespace, client: EngineClient, ir: str, source: ModelSource) -> Iterator[Row]:
    asked = common.request(client, ir, source, words=(args.target or [""])[0])
    # The gradient in one function, and split; a forward is one function.
    for split in (False, True) if source.training else (False,):
        one = asked if split else replace(asked, captures=(), split=False)
        found = client.call("check", one)
        row: Row = {"engine": ir, "sample": source.model, "dtype": source.dtype, "split": split}
        row |= {"target": asked.target, "tensors": len(found)}
        row["training_forward" if source.training else "forward"] = worst(found, "output").max_rel
        if source.training:
            gradient = worst(found, "gradient")
            row |= {"gradient": gradient.max_rel, "worst": gradient.name}
        yield row | {"missed": "; ".join(_missed(row))}


def worst(found: tuple[Comparison, ...], kind: str) -> Comparison:
    """The worst comparison whose name begins with `kind`; NaN is worse than all."""
    return max(
        (c for c in found if c.name.startswith(kind)),
        key=lambda c: c.max_rel if c.max_rel == c.max_rel else float("inf"),
    )


def _missed(row: Row) -> list[str]:
    least = ON_GPU if row["dtype"] == "float32" and not row["target"].startswith("llvm") else 0.0
    limits = LIMITS[row["dtype"]]
    return [
        f"{phase} {row[phase]:.2g} of the scale, {max(limit, least)} promised"
        for phase, limit in (("forward", limits.outputs), ("gradient", limits.gradients))
        if phase in row and not row[phase] <= max(limit, least)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
