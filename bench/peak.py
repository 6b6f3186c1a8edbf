"""The peak of a step of equal layers beside PyTorch's partitioner, over budgets, in MB.

Llama layers (`unseen.py`), as PyTorch's joint graph after Inductor's decompositions. PyTorch cuts
it within an `activation_memory_budget`; the strategy `peak` within that share of the peak where
everything that crosses is kept, or at its lowest if that is more. `passes.cuts.lifetimes` counts
both; of one layer, a proven bound stands beside them. PyTorch's solver takes minutes: `--resume`
goes on where FILE ends. Ends with 1 where ours is above PyTorch's, or rises as the budget falls.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
import unseen
from common import Row, finish, options, write

from relascope.engine.pytorch.baselines.saved import joint_and_saved, joint_graph, partitions
from relascope.passes.cuts.cut import Joint, cut
from relascope.passes.cuts.lifetimes import peak

SIZES = {1: 512, 16: 512, 24: 768, 32: 1024}  # tokens, by layers
BUDGETS = (0.30, 0.20, 0.15, 0.10, 0.05)


def _rows(layers: int, tokens: int) -> Iterator[Row]:
    ids = torch.zeros(2, tokens, dtype=torch.int64)
    found = partitions(unseen.Stack(layers, tokens), (ids,), BUDGETS)
    joint = Joint(joint_graph(found[0]))
    most, lowest = cut(joint, "keep_all").peak_bytes, cut(joint, "peak").peak_bytes
    for budget, partition in zip(BUDGETS, found, strict=True):
        theirs = joint_and_saved(partition)
        here = cut(joint, "peak", max(int(budget * most), lowest))
        ours = here.ids
        row: Row = {"layers": layers, "tokens": tokens, "budget": budget}
        for whose, (of, kept) in ("PyTorch's ", theirs), ("our ", (joint, ours)):
            row[f"{whose}peak"] = round(peak(of, kept) / 1e6, 1)
            row[f"{whose}kept"] = round(of.bytes_of(kept) / 1e6, 1)
            row[f"{whose}work again"] = round(of.again_seconds(kept) / of.forward_seconds, 3)
        bound = here.least_peak_bytes
        row["least possible"] = bound and round(bound / 1e6, 1)
        yield row


def main() -> int:
    """Print the table, and what misses its bar."""
    parser = options(__doc__, samples=False, repeats=0)
    parser.add_argument("--layers", type=int, action="append", choices=[*SIZES], metavar="N")
    parser.add_argument("--resume", action="store_true", help="what FILE lacks alone")
    args: Any = parser.parse_args()
    rows: list[Row] = []
    if args.resume and args.output is not None and args.output.exists():
        rows = json.loads(args.output.read_text(encoding="utf-8"))
    for layers in args.layers or [*SIZES][1:]:
        if all(row["layers"] != layers for row in rows):
            rows += _rows(layers, SIZES[layers])
            write(args.output, rows)

    def missed(row: Row) -> list[str]:
        ours = row["our peak"]
        more = (r for r in rows if r["layers"] == row["layers"] and r["budget"] > row["budget"])
        said = ["is above PyTorch's"] if ours > row["PyTorch's peak"] else []
        return said + ["is higher than with more"] * any(ours > r["our peak"] for r in more)

    return finish(args, rows, missed)


if __name__ == "__main__":
    sys.exit(main())
