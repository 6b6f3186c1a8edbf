"""Print what each strategy captures on each sample, beside what PyTorch keeps of the same module.

Run `python bench/cuts.py` from the project's root; name samples to have only those, add
`--engine` and `--gradient` for one engine and for PyTorch's way to the gradient, `--large` for
batch 8 and 128 tokens where a sample has tokens, `--check` to compare every output and gradient of
the split functions with PyTorch's, `--memory` to measure the peak memory of the default strategy's
step beside its estimate, `--size` for the time of cuts of made-up graphs of 10,000 and 100,000
nodes. The bars are those of `min_cut`: bytes, what it computes
again, and how long a cut takes.
"""

import argparse
import functools
import time
from collections.abc import Iterator

import common
from common import SAMPLES, Row

from graphs import joint as transformer
from relascope.core.graph import Graph
from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import joint_of
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.passes.catalogue import GRADIENTS, default_pipeline
from relascope.passes.cost import is_product
from relascope.passes.cuts.cut import STRATEGIES, Cut, Joint, cut

BUDGETS = (0.25, 0.5, 0.75)
LIMIT = 1e-4
"""Of an output's or a gradient's scale, in float32."""


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = common.options(__doc__, repeats=0)
    parser.add_argument("--gradient", choices=list(GRADIENTS), default="tvm")
    for flag in ("--large", "--check", "--memory", "--size"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    rows: list[Row] = _sizes() if args.size else []
    if args.samples or not args.size:
        rows += common.measured(args, _sources(args), functools.partial(_rows, args))
    return common.finish(args, rows, _missed)


def _sources(args: argparse.Namespace) -> Iterator[ModelSource]:
    for sample in (s for s in SAMPLES.values() if s.training):
        yield ModelSource(sample.name, training=True, gradient=args.gradient)
        if args.large and sample.has_tokens:
            yield ModelSource(sample.name, 8, 128, training=True, gradient=args.gradient)


def _sizes() -> list[Row]:
    """How long cuts of large graphs take: layers of a transformer with a backward."""
    rows = []
    for layers, most in ((70, 0.2), (700, 5.0)):
        graph = transformer(layers)
        began = time.process_time()
        found = cut(graph, "min_cut")
        seconds = time.process_time() - began
        figures = _figures(graph, found, "min_cut", seconds)
        rows.append({"sample": f"{len(graph)} nodes", "most": most, **figures})
    return rows


def _rows(
    args: argparse.Namespace, client: EngineClient, ir: str, source: ModelSource
) -> Iterator[Row]:
    """One row a strategy, and one for each way of PyTorch's."""
    pipeline = default_pipeline(ir, True, source.gradient)
    known = joint_of(client.call, source, pipeline)
    once = BuildRequest(source, pipeline, common.target(client), 1, 1)
    sizes = {"engine": ir, "sample": source.model, "batch": source.batch, "tokens": source.tokens}
    saved = client.call("torch_saved", source)
    eager, rival = saved.eager_bytes, saved.min_cut_bytes
    for name, held in (("pytorch eager", eager), ("pytorch min-cut", rival)):
        yield {**sizes, "strategy": name, "bytes": held, "to_min_cut": _over(held, rival)}
    asked: list[tuple[str, float | None]] = [
        *((s.name, None) for s in STRATEGIES.values() if not s.has_budget),
        *(("budget", b) for b in BUDGETS),
        ("frontier", None),
    ]
    for strategy, budget in asked:
        fresh = Joint(known.graph, known.kernels)  # every cut is timed from nothing
        began = time.process_time()
        found = cut(fresh, strategy, budget)
        seconds = time.process_time() - began
        label = strategy if budget is None else f"{strategy} {budget}"
        row = {**sizes, **_figures(known.graph, found, label, seconds), "eager": eager}
        own = (found.bytes or 0) - (found.mask_bytes or 0)  # what a strategy can choose
        row["to_min_cut"] = _over(own, rival)
        if args.check:
            compared = client.call("check", once.split_at(found.ids))
            row["max_rel"] = max(c.max_rel for c in compared)
        if args.memory and strategy == "min_cut":
            measured = client.call("profile", once.split_at(found.ids))
            row["peak_bytes"] = measured.peak_bytes
            row["estimated_peak"] = measured.estimated_peak_bytes
        yield row


def _over(held: int | None, rival: int | None) -> float | None:
    """Bytes over those of PyTorch's min-cut, None where it does not take the module.

    Ours without dropout masks, which no cut can do without and which are larger than PyTorch's.
    """
    return None if held is None or rival is None else held / rival


def _figures(joint: Graph, found: Cut, label: str, seconds: float) -> Row:
    return {
        "strategy": label,
        "captures": len(found.captures),
        "bytes": found.bytes,
        "budget": found.budget,
        "products": sum(is_product(joint.by_id[i]) for i in found.recomputed),
        "flops_share": found.recomputed_flops / found.forward_flops,
        "time_share": found.recomputed_seconds / found.forward_seconds,
        "seconds": seconds,
    }


def _missed(row: Row) -> list[str]:
    missed = []
    if row.get("most") is not None and row["seconds"] > row["most"]:
        missed.append(f"{row['seconds']:.2f} s, {row['most']} s promised")
    if row.get("budget") is not None and row["bytes"] > row["budget"]:
        missed.append(f"{row['bytes']} bytes, budget {row['budget']}")
    if row.get("max_rel") is not None and not row["max_rel"] <= LIMIT:
        missed.append(f"error {row['max_rel']:.2g} of the scale, {LIMIT} promised")
    if row.get("peak_bytes"):
        off = abs(row["estimated_peak"] / row["peak_bytes"] - 1)
        if off > 0.1:
            missed.append(f"the estimated peak memory is {off:.0%} off")
    if row["strategy"] == "min_cut" and "eager" in row:
        most = 0.66 if row["sample"] == "bert_layer" else 1.0
        if row["to_min_cut"] is not None and row["to_min_cut"] > most:
            missed.append(f"{row['to_min_cut']:.4f} of PyTorch's bytes, {most} promised")
        if row["bytes"] > row["eager"]:
            missed.append("more bytes than PyTorch eager")
        if row["products"]:
            missed.append(f"{row['products']} matrix products computed again")
        if row["time_share"] > 0.05:
            missed.append(f"{row['time_share']:.1%} of the forward's time recomputed")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
