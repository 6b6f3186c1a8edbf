"""The peak of a step of equal layers beside PyTorch's partitioner, over budgets, in MB.

Llama layers (`unseen.py`), as PyTorch's joint graph after Inductor's decompositions. PyTorch cuts
it within an `activation_memory_budget`; the strategy `peak` within that share of the peak where
everything that crosses is kept, or at its lowest if that is more. `passes.cuts.lifetimes` counts
both. PyTorch's solver takes minutes: `--resume` goes on where FILE ends. Ends with 1 where our peak
is above PyTorch's, or rises as the budget falls.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
import unseen
from common import Row, finish, options, write
from torch.utils._pytree import tree_leaves

from relascope.core.graph import Graph, Kind, Node, TensorType
from relascope.engine.pytorch.baselines.saved import Partition, is_view, partitions
from relascope.passes.cuts.cut import Joint, cut
from relascope.passes.cuts.lifetimes import peak

SIZES = {16: 512, 24: 768, 32: 1024}  # tokens, by layers
BUDGETS = (0.30, 0.20, 0.15, 0.10, 0.05)
_NAMES = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), "matmul"),
    **{"mul": "multiply", "sub": "subtract", "div": "divide", "pow": "power"},
    **{"neg": "negative", "clone": "copy", "amax": "max", "_softmax": "nn.softmax"},
    "_scaled_dot_product_flash_attention_for_cpu": "nn.attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "nn.attention",
}


def _graph(of: Partition) -> Graph:
    """PyTorch's joint graph as ours; views have the storage of what they are of."""
    nodes = []
    for node in of[0].graph.nodes:
        kind, name, attrs = Kind.CALL, "", {}
        if node.op != "call_function":
            kind = Kind.INPUT if node.op == "placeholder" else Kind.CONSTANT
        elif hasattr(node.target, "_schema"):
            name = node.target._schema.name.partition("::")[2]
            name = "reshape" if is_view(node.target._schema) else _NAMES.get(name, name)
        else:
            kind, attrs = Kind.ITEM, {"index": node.args[1]}
        values = [v for v in tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
        types = tuple(TensorType((*v.shape,), str(v.dtype).removeprefix("torch.")) for v in values)
        reads = tuple(n.name for n in node.all_input_nodes)
        nodes.append(Node(node.name, kind, name, node.name, attrs, reads, types))
    ends = tuple(a.name for a in tree_leaves(of[0].graph.output_node().args[0]) if a is not None)
    inputs = tuple(n.id for n in nodes if n.kind is Kind.INPUT)
    return Graph("joint", "relax", tuple(nodes[:-1]), inputs, ends, of[1])


def _rows(layers: int, tokens: int) -> Iterator[Row]:
    ids = torch.zeros(2, tokens, dtype=torch.int64)
    found = partitions(unseen.Stack(layers, tokens), (ids,), BUDGETS)
    joint = Joint(_graph(found[0]))
    most, lowest = cut(joint, "keep_all").peak_bytes, cut(joint, "peak").peak_bytes
    for budget, (*_, saved) in zip(BUDGETS, found, strict=True):
        theirs = [n.name for n in saved if isinstance(n, torch.fx.Node)]
        ours = cut(joint, "peak", max(int(budget * most), lowest)).ids
        row: Row = {"layers": layers, "tokens": tokens, "budget": budget}
        for whose, ids in ("PyTorch's ", filter(joint.may_be_captured, theirs)), ("our ", ours):
            kept = [*ids]
            row[f"{whose}peak"] = round(peak(joint, kept) / 1e6, 1)
            row[f"{whose}kept"] = round(joint.bytes_of(kept) / 1e6, 1)
            row[f"{whose}work again"] = round(joint.again_seconds(kept) / joint.forward_seconds, 3)
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
    for layers in args.layers or SIZES:
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
