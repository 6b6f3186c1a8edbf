"""Print what each strategy captures on each sample, beside what PyTorch keeps of the same module.

Run `python bench/cuts.py` from the project's root; name samples to have only those, add
`--engine` and `--gradient` for one engine and for PyTorch's way to the gradient, `--large` for
batch 8 and 128 tokens where a sample has tokens, `--check` to compare every output and gradient of
the split functions with PyTorch's, `--memory` to measure the peak memory of the default strategy's
step beside its estimate, `--size` for the time of cuts of made-up graphs of 10,000 and 100,000
nodes, `-o FILE` for the figures as JSON. The bars are those of `min_cut`: bytes, what it computes
again, and how long a cut takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphs import joint as transformer
from relascope.core.errors import EngineError
from relascope.core.graph import Graph
from relascope.engine.client import EngineClient
from relascope.engine.jobs.cut import joint_of
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import ModelSource
from relascope.engine.registry import ENGINES
from relascope.passes.catalogue import GRADIENTS, default_pipeline
from relascope.passes.cost import is_product
from relascope.passes.cuts.cut import STRATEGIES, Cut, Joint, cut
from relascope.samples import SAMPLES
from relascope.viz.rows.formats import text_table

BUDGETS = (0.25, 0.5, 0.75)
LIMIT = 1e-4
"""Of an output's or a gradient's scale, in float32."""
Row = dict[str, Any]


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", nargs="*", choices=[[], *SAMPLES], metavar="SAMPLE")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--gradient", choices=list(GRADIENTS), default="tvm")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--size", action="store_true")
    parser.add_argument("-o", dest="output", type=Path)
    args = parser.parse_args()
    rows: list[Row] = _sizes() if args.size else []
    names = args.samples or [s.name for s in SAMPLES.values() if s.training]
    for ir in (args.engine or ENGINES) if args.samples or not args.size else ():
        with EngineClient(ir) as client:
            for name in names:
                for source in _sources(name, args.large):
                    try:
                        rows += _rows(client, ir, replace(source, gradient=args.gradient), args)
                    except EngineError as error:
                        print(f"{ir}, {name}: {error.message}", file=sys.stderr)
    columns = [
        "engine",
        "sample",
        "batch",
        "tokens",
        "strategy",
        "captures",
        "bytes",
        "to_min_cut",
        "products",
        "flops_share",
        "time_share",
        "seconds",
        "max_rel",
        "peak_bytes",
        "estimated_peak",
    ]
    print(text_table(rows, columns))
    if args.output:
        args.output.write_text(json.dumps(rows), encoding="utf-8")
    missed = [m for row in rows for m in _missed(row)]
    print("\n".join(missed) or "Every bar is met.")
    return 1 if missed else 0


def _sources(name: str, large: bool) -> list[ModelSource]:
    first = ModelSource(name, training=True)
    if not (large and SAMPLES[name].has_tokens):
        return [first]
    return [first, replace(first, batch=8, tokens=128)]


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
    client: EngineClient, ir: str, source: ModelSource, args: argparse.Namespace
) -> list[Row]:
    """One row a strategy and one a rival."""
    pipeline = default_pipeline(ir, True, source.gradient)
    known = joint_of(client.call, source, pipeline)
    target = client.call("describe").targets[0].name
    joint = known.graph
    sizes = {"engine": ir, "sample": source.model, "batch": source.batch, "tokens": source.tokens}
    saved = client.call("torch_saved", source)
    eager, rival = saved.eager_bytes, saved.min_cut_bytes
    rows: list[Row] = [
        {**sizes, "strategy": "pytorch eager", "bytes": eager, "to_min_cut": _over(eager, rival)},
        {**sizes, "strategy": "pytorch min-cut", "bytes": rival, "to_min_cut": _over(rival, rival)},
    ]
    asked: list[tuple[str, float | None]] = [
        (s.name, None) for s in STRATEGIES.values() if not s.has_budget
    ]
    asked += [("budget", b) for b in BUDGETS] + [("frontier", None)]
    for strategy, budget in asked:
        fresh = Joint(joint, known.kernels)  # every cut is timed from nothing
        began = time.process_time()
        found = cut(fresh, strategy, budget)
        seconds = time.process_time() - began
        label = strategy if budget is None else f"{strategy} {budget}"
        rows.append({**sizes, **_figures(joint, found, label, seconds), "eager": eager})
        rows[-1]["to_min_cut"] = _over(found.bytes or 0, rival)
        if args.check:
            request = BuildRequest(source, pipeline, target).split_at(found.ids)
            compared = client.call("check", request)
            rows[-1]["max_rel"] = max(c.max_rel for c in compared)
        if args.memory and strategy == "min_cut":
            request = BuildRequest(source, pipeline, target, 1, 1).split_at(found.ids)
            measured = client.call("profile", request)
            rows[-1]["peak_bytes"] = measured.peak_bytes
            rows[-1]["estimated_peak"] = measured.estimated_peak_bytes
    return rows


def _over(held: int | None, rival: int | None) -> float | None:
    """Bytes over those of PyTorch's min-cut; None where it does not take the module."""
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
    """What a row promises and does not keep, in words."""
    names = ("engine", "sample", "batch", "tokens", "strategy")
    where = ", ".join(f"{n} {row[n]}" for n in names if row.get(n) is not None)
    missed = []
    if row.get("most") is not None and row["seconds"] > row["most"]:
        missed.append(f"{where}: {row['seconds']:.2f} s, {row['most']} s promised")
    if row.get("budget") is not None and row["bytes"] > row["budget"]:
        missed.append(f"{where}: {row['bytes']} bytes, budget {row['budget']}")
    if row.get("max_rel") is not None and not row["max_rel"] <= LIMIT:
        missed.append(f"{where}: error {row['max_rel']:.2g} of the scale, {LIMIT} promised")
    if row.get("peak_bytes"):
        off = abs(row["estimated_peak"] / row["peak_bytes"] - 1)
        if off > 0.1:
            missed.append(f"{where}: the estimated peak memory is {off:.0%} off")
    if row["strategy"] == "min_cut" and "eager" in row:
        most = 0.66 if row["sample"] == "bert_layer" else 1.0
        if row["to_min_cut"] is not None and row["to_min_cut"] > most:
            missed.append(f"{where}: {row['to_min_cut']:.4f} of PyTorch's bytes, {most} promised")
        if row["bytes"] > row["eager"]:
            missed.append(f"{where}: more bytes than PyTorch eager")
        if row["products"]:
            missed.append(f"{where}: {row['products']} matrix products computed again")
        if row["time_share"] > 0.05:
            missed.append(f"{where}: {row['time_share']:.1%} of the forward's time recomputed")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
