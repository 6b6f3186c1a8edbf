"""The captures and bytes of a minimum cut beside those of PyTorch's partitioner, masks as bits.

For small functions like those in PyTorch's tests of its partitioner (`partitioning.py`), and for
samples at a batch of 8 with 128 tokens, of one with 14, or at their own size; also with masks that
are drawn again. PyTorch uses Inductor's decompositions: by default, and at its best, with
`activation_memory_budget` 0.8; *least without products* is of all cuts that recompute none, in any
time. Returns 1 if a function's gradient is wrong or it keeps more than PyTorch by default, or if a
sample keeps more than `MOST` of PyTorch's best or recomputes more products and convolutions.

`--large` cuts 96 Llama layers by every strategy and a drawn graph of 100,000 nodes by `min_cut`.
Returns 1 if that takes 5 or 2 seconds of the processor at best, or ten runs have two answers."""

import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from math import inf
from pathlib import Path

import partitioning
import torch
import unseen
from common import Row, finish, measured, options, target

from joints import messy
from relascope.engine.client import EngineClient
from relascope.engine.jobs.accuracy import LIMITS
from relascope.engine.jobs.cut import joint_of
from relascope.engine.protocol.request import BuildRequest
from relascope.engine.protocol.source import CODE, ModelSource
from relascope.engine.protocol.times import BEST_BUDGET
from relascope.engine.pytorch.baselines.saved import joint_and_saved, joint_graph, partitions
from relascope.passes.catalogue import default_pipeline, gradients
from relascope.passes.cost import is_product
from relascope.passes.cuts.cut import STRATEGIES, Joint, cut
from relascope.passes.cuts.min_cut import min_cut
from relascope.passes.cuts.problem import Wish
from relascope.passes.pipeline import Pipeline, Step
from relascope.samples import build

_SIZES = dict.fromkeys(("bert_layer", "gpt2_block", "llama_block"), ((8, 128), (1, 14)))
SAMPLES = _SIZES | dict.fromkeys(("vit", "resnet", "mobilenet_v2"), ((None, None),))
MOST = 0.95
_OWN = f"{CODE}:{Path(partitioning.__file__).resolve()}:"


def _rows(client: EngineClient, ir: str, source: ModelSource) -> Iterable[Row]:
    name = source.model.removeprefix(_OWN)
    if source.model == name:
        module, inputs = build(name, batch=source.batch, tokens=source.tokens, training=True)
    else:
        module, inputs = getattr(partitioning, name)()
    cuts = map(joint_and_saved, partitions(module, inputs, (1.0, BEST_BUDGET)))
    theirs, best = ((of.kept(s).values(), _products(of, s), of.net_share(s)) for of, s in cuts)
    for gradient in gradients(ir):
        given = replace(source, gradient=gradient)
        pipeline = Pipeline((*default_pipeline(ir, True, gradient), Step("masks_as_bits")))
        joint = joint_of(client.call, given, pipeline)
        found = cut(joint)
        drawn = cut(joint, recompute=["dropout_mask_*"] if joint.draws else ())
        row = {"engine": ir, "gradient": gradient, "sample": name, "tokens": source.tokens}
        row |= {"captures": len(found.ids), "bytes": found.bytes}
        row |= {"of them masks": found.mask_bytes, "masks drawn again": drawn.bytes}
        row |= {"PyTorch's": len(theirs[0]), "PyTorch's bytes": sum(theirs[0])}
        least = min_cut(joint, Wish(), price=0.0, share=inf)
        row |= {"at best": sum(best[0]), "least without products": joint.bytes_of(least)}
        row |= {"products again": _products(joint, found.ids), "at best, products again": best[1]}
        row |= {"net %": round(100 * found.net_share, 1), "at best, net %": round(100 * best[2], 1)}
        if name != source.model:
            request = BuildRequest(given, pipeline, target(client)).split_at(found.ids)
            row["error"] = max(c.max_rel for c in client.call("check", request))
        yield row


def _large() -> Iterable[Row]:
    (layers,) = partitions(unseen.Stack(96, 128), (torch.zeros(2, 128, dtype=torch.int64),), (1.0,))
    deep, drawn = joint_graph(layers), messy(1, 50_000, reach=20)
    for graph, strategy in (*((deep, name) for name in STRATEGIES), (drawn, "min_cut")):
        taken, answers = list[float](), set[tuple[str, ...]]()
        for _ in range(10):
            begin = time.process_time()
            answers.add(cut(Joint(graph), strategy).ids)
            taken.append(time.process_time() - begin)
        row: Row = {"nodes": len(graph), "strategy": strategy, "seconds": round(min(taken), 2)}
        slow = row["seconds"] > (2 if graph is drawn else 5) or len(answers) > 1
        yield row | {"answers": len(answers), "missed": "too long, or not one answer" * slow}


def _products(joint: Joint, saved: Iterable[str]) -> int:
    """How many matrix products and convolutions a cut recomputes."""
    return sum(is_product(joint.graph.by_id[i]) for i in joint.computed_again(tuple(saved)))


def _missed(row: Row) -> list[str]:
    said = []
    if row["products again"] > row["at best, products again"]:
        said.append("computes more products again than PyTorch at its best")
    if row["sample"] in SAMPLES:
        if row["bytes"] > MOST * row["at best"]:
            kept, least = (row[k] / row["at best"] for k in ("bytes", "least without products"))
            said.append(f"keeps {kept:.4f} of PyTorch's at its best; the least is {least:.4f}")
    elif row["bytes"] > row["PyTorch's bytes"]:
        said.append(f"keeps {row['bytes']} bytes, more than PyTorch")
    if row.get("error", 0.0) > LIMITS["float32"].gradients:
        said.append(f"is off by {row['error']:.1e}")
    return said


def main() -> int:
    """Print the table, and what misses its bar."""
    parser = options(__doc__, repeats=0)
    parser.add_argument("--large", action="store_true", help="time cuts of large graphs alone")
    args = parser.parse_args()
    if args.large:
        return finish(args, list(_large()))
    functions = (ModelSource(_OWN + n, training=True) for n in partitioning.FUNCTIONS)
    sizes = ((n, *size) for n, given in SAMPLES.items() for size in given)
    samples = (ModelSource(n, batch=b, tokens=t, training=True) for n, b, t in sizes)
    return finish(args, measured(args, (*functions, *samples), _rows), _missed)


if __name__ == "__main__":
    sys.exit(main())
