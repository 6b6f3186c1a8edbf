"""Print what each strategy captures on each sample, beside what PyTorch keeps of the same module.

Run `python bench/cuts.py` from the project's root; name samples to have only those, add
`--large` for batch 8 and 128 tokens where a sample has tokens, `--check` to compare every output
and gradient of the split functions with PyTorch's, `-o FILE` for the figures as JSON. The bars are
those of `min_cut`: bytes, what it computes again, and how long a cut takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine.client import EngineClient  # noqa: E402
from engine.rivals import eager_bytes, min_cut_bytes  # noqa: E402
from engine.session import EngineError, ModelSource  # noqa: E402
from passes.catalogue import default_pipeline  # noqa: E402
from passes.cost import is_product  # noqa: E402
from passes.cut import STRATEGIES, Cut, cut  # noqa: E402
from samples import SAMPLES, build  # noqa: E402
from viz.graph import Graph  # noqa: E402
from viz.tables import text_table  # noqa: E402

BUDGETS = (0.25, 0.5, 0.75)
LIMIT = {"float32": 1e-3}
Row = dict[str, Any]


def main() -> int:
    """Measure, print, and return 0 where every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", nargs="*", choices=[[], *SAMPLES], metavar="SAMPLE")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("-o", dest="output", type=Path)
    args = parser.parse_args()
    names = args.samples or [s.name for s in SAMPLES.values() if s.training]
    rows: list[Row] = []
    with EngineClient("relay") as client:
        for name in names:
            for source in _sources(name, args.large):
                try:
                    rows += _rows(client, source, args.check)
                except EngineError as error:
                    print(f"{name}: {error.message}", file=sys.stderr)
    columns = ["sample", "batch", "tokens", "strategy", "captures", "bytes", "to_min_cut",
               "products", "flops_share", "time_share", "seconds", "max_abs"]  # fmt: skip
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


def _rows(client: EngineClient, source: ModelSource, check: bool) -> list[Row]:
    """One row a strategy and one a rival."""
    pipeline = default_pipeline("relay", True)
    joint: Graph = client.call("graph_after", source, pipeline, len(pipeline) - 1)
    sizes = {"sample": source.model, "batch": source.batch, "tokens": source.tokens}
    module, inputs = build(source.model, source.batch, source.tokens, training=True)
    eager, rival = eager_bytes(module, inputs), min_cut_bytes(module, inputs)
    rows: list[Row] = [
        {**sizes, "strategy": "pytorch eager", "bytes": eager, "to_min_cut": eager / rival},
        {**sizes, "strategy": "pytorch min-cut", "bytes": rival, "to_min_cut": 1.0},
    ]
    asked: list[tuple[str, float | None]] = [(s, None) for s in STRATEGIES if s != "budget"]
    for strategy, budget in [*asked, *(("budget", b) for b in BUDGETS)]:
        began = time.perf_counter()
        found = cut(joint, strategy, budget)
        seconds = time.perf_counter() - began
        label = strategy if budget is None else f"{strategy} {budget}"
        rows.append({**sizes, **_figures(joint, found, label, seconds), "eager": eager})
        rows[-1]["to_min_cut"] = (found.bytes or 0) / rival
        if check:
            compared = client.call("check", source, pipeline, found.ids, "llvm")
            rows[-1]["max_abs"] = max(c.max_abs for c in compared)
    return rows


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
    where = f"{row['sample']} (batch {row['batch']}, tokens {row['tokens']}), {row['strategy']}"
    missed = []
    if row.get("budget") is not None and row["bytes"] > row["budget"]:
        missed.append(f"{where}: {row['bytes']} bytes, budget {row['budget']}")
    if row.get("max_abs") is not None and not row["max_abs"] <= LIMIT["float32"]:
        missed.append(f"{where}: error {row['max_abs']}")
    if row["strategy"] == "min_cut":
        most = 0.66 if row["sample"] == "bert_layer" else 1.0
        if row["to_min_cut"] > most:
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
